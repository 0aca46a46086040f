# As compflow_demo: composites with variables of their own, one within the other, used more than once.
# ops: 30000
# mix: a.create=1 a.rw.open=5 a.rw.read=5 a.rw.close=5 a.stat=1
# mix: b.create=1 b.rw.open=2 b.rw.read=2 b.rw.close=2 b.stat=1
# ended: ops
set $iosize=4k
define fileset name=one,path=/tmp,size=8k,entries=60,dirwidth=20,prealloc=50
define fileset name=two,path=/tmp,size=8k,entries=60,dirwidth=20,prealloc=50
define flowop name=readwrite, $set
{
  flowop openfile name=open,filesetname=$set,fd=2
  flowop readwholefile name=read,fd=2,iosize=$iosize
  flowop closefile name=close,fd=2
}
define flowop name=work, $from, $times=2
{
  flowop createfile name=create,filesetname=$from,fd=1
  flowop writewholefile name=write,fd=1
  flowop closefile name=close,fd=1
  flowop readwrite name=rw,iters=$times,$set=$from
  flowop deletefile name=delete,filesetname=$from
  flowop statfile name=stat,filesetname=$from
}
define process name=worker
{
  thread name=a,memsize=1m,instances=2
  {
    flowop work name=a,iters=1,$times=5,$from=one
  }
  thread name=b,memsize=1m,instances=2
  {
    flowop work name=b,$from=two
  }
}
