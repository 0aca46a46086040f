# As ratelimcopyfiles, webproxy and videoserver: limits by operations, reads and writes, bytes, and plain events, each by
# a flowop of the thread. The rate is so high that none of them waits long: what is tried is that they count.
# mix: open=1 read=1 write=1 close=1 event=1
# Limits count from their second turn on.
# exact: read=200 ops=199 iops=199 bytes=199
# ended: finished
set $rate=100000
eventgen rate=$rate
define fileset name=set,path=/tmp,size=8k,entries=10,dirwidth=20,prealloc
define process name=limited
{
  thread name=limited,memsize=1m
  {
    flowop openfile name=open,filesetname=set,fd=1
    flowop read name=read,fd=1,iosize=4k
    flowop write name=write,fd=1,iosize=4k
    flowop closefile name=close,fd=1
    flowop opslimit name=ops,target=close
    flowop iopslimit name=iops,target=write
    flowop bwlimit name=bytes,target=read
    flowop eventlimit name=event
    flowop finishoncount name=end,value=200,target=event
  }
}
