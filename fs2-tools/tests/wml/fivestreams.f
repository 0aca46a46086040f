# As fivestreamread and fivestreamwrite: several files, several kinds of threads. Each file is opened by its own stream.
# exact: r1=101 r2=101 w1=101 w2=101
# ended: alldone
set mode quit alldone
set $iters=100
define file name=a,path=/tmp,size=1m,prealloc,reuse,paralloc
define file name=b,path=/tmp,size=1m,prealloc,reuse,paralloc
define file name=c,path=/tmp,size=1m,prealloc,reuse,paralloc
define file name=d,path=/tmp,size=1m,prealloc,reuse,paralloc
define fileset name=tokens,path=/tmp,size=0,entries=4,dirwidth=10,prealloc
define process name=streams,instances=1
{
  thread name=r1,memsize=1m
  {
    flowop deletefile name=token,filesetname=tokens
    flowop read name=r1,filename=a,iosize=8k,iters=$iters
    flowop deletefile name=no-more,filesetname=none
  }
  thread name=r2,memsize=1m
  {
    flowop read name=r2,filename=b,iosize=8k,iters=$iters
    flowop deletefile name=no-more,filesetname=none
  }
  thread name=w1,memsize=1m
  {
    flowop write name=w1,filename=c,iosize=8k,iters=$iters
    flowop deletefile name=no-more,filesetname=none
  }
  thread name=w2,memsize=1m
  {
    flowop write name=w2,filename=d,iosize=8k,iters=$iters
    flowop deletefile name=no-more,filesetname=none
  }
}
define fileset name=none,path=/tmp,size=0,entries=1,dirwidth=10
