# As openfiles: opened and closed, by many threads.
# ops: 20000
# mix: open=1 close=1
# ended: ops
define fileset name=set,path=/tmp,size=0,entries=200,dirwidth=20,prealloc
define process name=opener,instances=1
{
  thread name=opener,memsize=1m,instances=8
  {
    flowop openfile name=open,filesetname=set,fd=1
    flowop closefile name=close,fd=1
  }
}
