# As mongo: one file deleted in each loop; with the last of them gone the run is over.
# exact: open1=81 append=81 close1=81 open2=81 read=81 close2=81 delete=80
# ended: firstdone
set $name=victims
set mode quit firstdone
define fileset name=set,path=/tmp,size=4k,entries=50,dirwidth=20,prealloc,paralloc
define fileset name=$name,path=/tmp,size=4k,entries=80,dirwidth=20,prealloc,paralloc
define process name=reader,instances=1
{
  thread name=reader,memsize=10m,instances=1
  {
    flowop openfile name=open1,filesetname=set,fd=1
    flowop appendfilerand name=append,iosize=4k,fd=1
    flowop closefile name=close1,fd=1
    flowop openfile name=open2,filesetname=set,fd=1
    flowop readwholefile name=read,fd=1,iosize=1m
    flowop closefile name=close2,fd=1
    flowop deletefile name=delete,filesetname=$name
  }
}
