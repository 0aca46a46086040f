# As singlestreamread and filemicro_seqread: at the end of the file, from the start again.
# exact: read=45
# Ten reads of 64 KiB, one that finds the end and reads nothing, and so on: 44 = 4 * 11, and the opening.
# bytes: read=58254 0.1
# 40 * 65536 / 45
# ended: finished
define file name=one,path=/tmp,size=640k,prealloc
define process name=reader
{
  thread name=reader,memsize=1m
  {
    flowop read name=read,filename=one,iosize=64k
    flowop finishoncount name=end,value=45
  }
}
