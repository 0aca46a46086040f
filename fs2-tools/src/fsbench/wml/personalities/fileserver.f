# A file server: home directories of as many users as there are threads.

set $dir=/tmp
set $files=10000
set $dirwidth=20
set $filesize=cvar(type=cvar-gamma,parameters=mean:131072;gamma:1.5)
set $threads=50
set $iosize=1m
set $appendsize=16k
set $seconds=60

define fileset name=homes,path=$dir,size=$filesize,entries=$files,dirwidth=$dirwidth,prealloc=80

define process name=server,instances=1 {
  thread name=user,memsize=10m,instances=$threads {
    flowop createfile name=create,filesetname=homes,fd=1
    flowop writewholefile name=write,srcfd=1,fd=1,iosize=$iosize
    flowop closefile name=close-written,fd=1
    flowop openfile name=open-to-append,filesetname=homes,fd=1
    flowop appendfilerand name=append,iosize=$appendsize,fd=1
    flowop closefile name=close-appended,fd=1
    flowop openfile name=open-to-read,filesetname=homes,fd=1
    flowop readwholefile name=read,fd=1,iosize=$iosize
    flowop closefile name=close-read,fd=1
    flowop deletefile name=delete,filesetname=homes
    flowop statfile name=stat,filesetname=homes
  }
}

run $seconds
