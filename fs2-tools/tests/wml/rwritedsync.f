# As filemicro_rwritedsync: each write is on the medium before it returns.
# exact: write=101
# ended: finished
define file name=one,path=/tmp,size=256k,prealloc
define process name=writer
{
  thread name=writer,memsize=1m
  {
    flowop write name=write,filename=one,dsync,random,iosize=2k,iters=100
    flowop finishoncount name=end,value=100
  }
}
