# As singlestreamwrite: on and on, beyond the size the file had.
# exact: write=33
# bytes: write=63550 0.1
# 32 writes of 64 KiB and the opening: 32 * 65536 / 33
# ended: finished
define file name=one,path=/tmp,size=64k,prealloc
define process name=writer
{
  thread name=writer,memsize=1m
  {
    flowop write name=write,filename=one,iosize=64k
    flowop finishoncount name=end,value=33
  }
}
