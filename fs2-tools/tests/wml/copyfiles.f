# As copyfiles: each file of one set to a new one of the other, as long as there are new ones.
# exact: open=100 read=100 create=100 write=100 close1=100 close2=100
# bytes: read=10000
# bytes: write=10000
# One more is opened and read before none can be created.
# slack: 1
# ended: firstdone
set mode quit firstdone
define fileset name=from,path=/tmp,size=10000,entries=100,dirwidth=20,prealloc=100
define fileset name=to,path=/tmp,size=20000,entries=100,dirwidth=20
define process name=copier
{
  thread name=copier,memsize=1m
  {
    flowop openfile name=open,filesetname=from,fd=1
    flowop readwholefile name=read,fd=1,iosize=1m
    flowop createfile name=create,filesetname=to,fd=2
    flowop writewholefile name=write,filesetname=to,fd=2,srcfd=1,iosize=1m
    flowop closefile name=close1,fd=1
    flowop closefile name=close2,fd=2
  }
}
