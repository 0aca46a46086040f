# A database: shadow processes read and compute, writers write back behind them, one writes the log.
# The SSD study varies $iosize against the file system's block size.

set $dir=/tmp
set $rate=0
set $iosize=2k
set $logiosize=256k
set $shadows=200
set $writers=10
set $usermode=200000
set $files=10
set $filesize=10m
set $logsize=10m
set $memory=1m
set $workingset=0
set $directio=false
set $seconds=60

eventgen rate=$rate

define fileset name=data,path=$dir,size=$filesize,entries=$files,dirwidth=1024,prealloc=100,reuse
define fileset name=log,path=$dir,size=$logsize,entries=1,dirwidth=1024,prealloc=100,reuse

define process name=log-writer,instances=1 {
  thread name=log-writer,memsize=$memory,useism {
    flowop aiowrite name=log-write,filesetname=log,iosize=$logiosize,random,directio=$directio,dsync
    flowop aiowait name=log-wait
    flowop semblock name=log-block,value=3200,highwater=1000
  }
}

define process name=db-writer,instances=$writers {
  thread name=db-writer,memsize=$memory,useism {
    flowop aiowrite name=db-write,filesetname=data,iosize=$iosize,workingset=$workingset,random,iters=100,
      opennext,directio=$directio,dsync
    flowop hog name=db-hog,value=10000
    flowop semblock name=db-block,value=1000,highwater=2000
    flowop aiowait name=db-wait
  }
}

define process name=shadow,instances=$shadows {
  thread name=shadow,memsize=$memory,useism {
    flowop read name=shadow-read,filesetname=data,iosize=$iosize,workingset=$workingset,random,opennext,
      directio=$directio
    flowop hog name=shadow-hog,value=$usermode
    flowop sempost name=post-log,value=1,target=log-block,blocking
    flowop sempost name=post-db,value=1,target=db-block,blocking
    flowop eventlimit name=rate
  }
}

run $seconds
