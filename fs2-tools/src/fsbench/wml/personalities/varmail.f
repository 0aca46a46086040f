# A mail server with a file for each mail, all in one directory: mails are deleted, delivered, answered, read.

set $dir=/tmp
set $files=1000
set $dirwidth=1000000
set $filesize=cvar(type=cvar-gamma,parameters=mean:16384;gamma:1.5)
set $threads=16
set $iosize=1m
set $appendsize=16k
set $seconds=60

define fileset name=mails,path=$dir,size=$filesize,entries=$files,dirwidth=$dirwidth,prealloc=80

define process name=server,instances=1 {
  thread name=session,memsize=10m,instances=$threads {
    flowop deletefile name=delete,filesetname=mails
    flowop createfile name=create,filesetname=mails,fd=1
    flowop appendfilerand name=deliver,iosize=$appendsize,fd=1
    flowop fsync name=sync-delivered,fd=1
    flowop closefile name=close-delivered,fd=1
    flowop openfile name=open-to-answer,filesetname=mails,fd=1
    flowop readwholefile name=read-answered,fd=1,iosize=$iosize
    flowop appendfilerand name=answer,iosize=$appendsize,fd=1
    flowop fsync name=sync-answered,fd=1
    flowop closefile name=close-answered,fd=1
    flowop openfile name=open-to-read,filesetname=mails,fd=1
    flowop readwholefile name=read,fd=1,iosize=$iosize
    flowop closefile name=close-read,fd=1
  }
}

run $seconds
