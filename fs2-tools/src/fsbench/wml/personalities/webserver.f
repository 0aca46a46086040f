# A web server: each thread serves ten pages, then writes a line of the log that all share.

set $dir=/tmp
set $files=1000
set $dirwidth=20
set $filesize=cvar(type=cvar-gamma,parameters=mean:16384;gamma:1.5)
set $threads=100
set $iosize=1m
set $appendsize=16k
set $seconds=60

define fileset name=pages,path=$dir,size=$filesize,entries=$files,dirwidth=$dirwidth,prealloc=100,readonly
define fileset name=log,path=$dir,size=16k,entries=1,dirwidth=$dirwidth,prealloc

define flowop name=serve {
  flowop openfile name=open,filesetname=pages,fd=1
  flowop readwholefile name=read,fd=1,iosize=$iosize
  flowop closefile name=close,fd=1
}

define process name=server,instances=1 {
  thread name=worker,memsize=10m,instances=$threads {
    flowop serve name=page,iters=10
    flowop appendfilerand name=log,filesetname=log,iosize=$appendsize,fd=2
  }
}

run $seconds
