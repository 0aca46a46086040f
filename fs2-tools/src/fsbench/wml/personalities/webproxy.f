# A proxy's cache: one page replaced for five that are read from it.

set $dir=/tmp
set $files=10000
set $dirwidth=1000000
set $filesize=cvar(type=cvar-gamma,parameters=mean:16384;gamma:1.5)
set $threads=100
set $iosize=1m
set $appendsize=16k
set $seconds=60

define fileset name=cache,path=$dir,size=$filesize,entries=$files,dirwidth=$dirwidth,prealloc=80

define flowop name=hit {
  flowop openfile name=open,filesetname=cache,fd=1
  flowop readwholefile name=read,fd=1,iosize=$iosize
  flowop closefile name=close,fd=1
}

define process name=proxy,instances=1 {
  thread name=client,memsize=10m,instances=$threads {
    flowop deletefile name=delete,filesetname=cache
    flowop createfile name=create,filesetname=cache,fd=1
    flowop appendfilerand name=store,iosize=$appendsize,fd=1
    flowop closefile name=close-stored,fd=1
    flowop hit name=hit,iters=5
    flowop opslimit name=limit
  }
}

run $seconds
