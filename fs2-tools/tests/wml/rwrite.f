# As filemicro_rwritefsync: batches of random writes, then fsync.
# exact: write=257 sync=4
# Four times 64 writes and a sync; the first write opens the file too, and that counts there.
# ended: finished
set $iters=64
define file name=one,path=/tmp,size=256k,prealloc,cached=true
define process name=writer,instances=1
{
  thread name=writer,memsize=5m
  {
    flowop write name=write,filename=one,random,iosize=8k,iters=$iters
    flowop fsync name=sync
    flowop finishoncount name=end,value=4,target=sync
  }
}
