# As filemicro_rread and randomread: random reads of one file. The file is opened by the first, which counts there.
# exact: read=1026
# bytes: read=4092 0.1
# Each read moves 4096 bytes, the opening none. The end comes when more than 4 MiB were read: 1024 * 4096 = 4 MiB is
# not more, 1025 reads are; with the opening 1026, and 1025 * 4096 / 1026 = 4092 bytes on average.
# ended: finished
set $cached=false
define file name=one,path=/tmp,size=1m,prealloc,reuse,cached=$cached
define process name=reader,instances=1
{
  thread name=reader,memsize=5m,instances=1
  {
    flowop read name=read,filename=one,random,iosize=4k,workingset=512k
    flowop finishonbytes name=end,value=4m
  }
}
