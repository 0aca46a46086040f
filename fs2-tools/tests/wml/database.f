# As tpcso and oltp: many single files, asynchronous writers behind readers, semaphores with a high-water mark.
# mix: read-a=1 hog=2 read-b=1 post-log=1 post-db=1
# Each of P posts puts one into the log's semaphore, taken 20 at a time, and one into each of the two writers', taken 50
# at a time; the high-water marks (30 and 60) hold the posts back. So the log is written for every 20 posts, and each
# writer writes five times to each file for every 50: tests/it/fsbench_wml.rs has the bounds.
# ended: finished
set $iosize=2k
debug 1
eventgen rate=0
define file name=a.df,path=/tmp,size=64k,reuse,prealloc,paralloc
define file name=b_0,path=/tmp,size=64k,reuse,prealloc,paralloc
define fileset name=log,path=/tmp,size=1m,entries=1,dirwidth=1024,prealloc=100,reuse
define process name=dbwr,instances=2,nice=1
{
  thread name=dbwr,memsize=1m,useism
  {
    flowop aiowrite name=db-write-a,filename=a.df,iosize=$iosize,workingset=64k,random,dsync,iters=5
    flowop aiowrite name=db-write-b,filename=b_0,iosize=$iosize,random,dsync,iters=5,opennext
    flowop hog name=db-hog,value=100
    flowop semblock name=db-block,value=50,highwater=60
    flowop aiowait name=db-wait
  }
}
define process name=lgwr,instances=1
{
  thread name=lgwr,memsize=1m,useism,ioprio=4
  {
    flowop write name=log-write,filesetname=log,iosize=16k,random,dsync
    flowop semblock name=log-block,value=20,highwater=30
  }
}
define process name=shadow,instances=3
{
  thread name=shadow,memsize=1m,useism
  {
    flowop read name=read-a,filename=a.df,iosize=$iosize,random
    flowop hog name=hog,value=1000
    flowop read name=read-b,filename=b_0,fd=2,iosize=$iosize,random,noreadahead
    flowop hog name=hog,value=1000
    flowop sempost name=post-log,value=1,target=log-block,blocking
    flowop sempost name=post-db,value=1,target=db-block,blocking
    flowop eventlimit name=rate
    flowop finishoncount name=end,value=333,target=post-db
  }
}
