# As filemicro_statfile, and of an open file.
# exact: stat=30 open=1 fstat=30
# ended: finished
define fileset name=set,path=/tmp,size=1k,entries=20,dirwidth=5,prealloc
define process name=looker
{
  thread name=looker
  {
    flowop statfile name=stat,filesetname=set,iters=30
    flowop openfile name=open,filesetname=set,fd=1
    flowop statfile name=fstat,fd=1,iters=30
    flowop closefile name=close,fd=1
    flowop finishoncount name=end,value=1
  }
}
