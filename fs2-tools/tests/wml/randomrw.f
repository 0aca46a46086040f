# As randomrw: readers and writers of one file, each at its own speed.
# ops: 4000
# ended: ops
set $workingset=0
define file name=one,path=/tmp,size=1m,prealloc,reuse,paralloc
define process name=both
{
  thread name=r,memsize=1m
  {
    flowop read name=read,filename=one,iosize=8k,random,workingset=$workingset,directio=0
  }
  thread name=w,memsize=1m
  {
    flowop write name=write,filename=one,iosize=8k,random,workingset=$workingset,directio=false
  }
}
