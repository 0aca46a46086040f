# As singlestreamreaddirect and its like: past the page cache, where the file system can.
# exact: read=21 write=21
# ended: finished
# needs: direct
set $directio=1
define file name=one,path=/tmp,size=64k,prealloc
define process name=direct
{
  thread name=direct,memsize=1m
  {
    flowop read name=read,filename=one,random,iosize=8k,directio=$directio,iters=20
    flowop write name=write,filename=one,fd=2,random,iosize=8k,directio,iters=20
    flowop finishoncount name=end,value=21,target=write
  }
}
