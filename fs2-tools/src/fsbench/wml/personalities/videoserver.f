# A video server: films that are watched, read at $rate MiB a second together, and films that are not, one of which is
# replaced every $interval seconds.

set $dir=/tmp
set $rate=96
set $filesize=10g
set $threads=48
set $active=32
set $passive=194
set $reuse=false
set $readsize=256k
set $writesize=1m
set $interval=10
set $seconds=60

eventgen rate=$rate

define fileset name=watched,path=$dir,size=$filesize,entries=$active,dirwidth=4,prealloc,paralloc,reuse=$reuse
define fileset name=shelf,path=$dir,size=$filesize,entries=$passive,dirwidth=20,prealloc=50,paralloc,reuse=$reuse

define process name=writer,instances=1 {
  thread name=writer,memsize=10m,instances=1 {
    flowop deletefile name=remove,filesetname=shelf
    flowop createfile name=create,filesetname=shelf,fd=1
    flowop writewholefile name=write,iosize=$writesize,fd=1,srcfd=1
    flowop closefile name=close,fd=1
    flowop delay name=interval,value=$interval
  }
}

define process name=reader,instances=1 {
  thread name=reader,memsize=10m,instances=$threads {
    flowop read name=read,filesetname=watched,iosize=$readsize
    flowop bwlimit name=limit,target=read
  }
}

run $seconds
