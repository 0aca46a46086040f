# As networkfs and netsfs: arithmetic, tables of sizes, files picked by a gamma law.
# ops: 40000
# mix: launch.open=1 launch.read=1 launch.close=1 rmw.open=6 rmw.new=6 rmw.write=6 rmw.delete=6 append.open=3 append.close=3 stat=1
# ended: ops
set $nfiles=100
set $factor=4
set $total=$nfiles * $factor - 200/2 + 100
eventgen rate=0
define randvar name=$wrtiosize, type=tabular, min=1k, round=1k, randtable =
{{ 0,   1k,    7k},
 {50,   9k,   15k},
 {50,  17k,   23k}
}
set $rdiosize = randvar(type=tabular, min=8k, round=1k, randtable =
{{85,   8k,   8k},
 {15,  17k,  23k}
})
set $filesize = randvar(type=tabular, min=1k, round=1k, randtable =
{{60,   1k,    1k},
 {40,   3k,    9k}
})
set $fileidx = randvar(type=gamma, min=0, gamma=100)
define fileset name=set,path=/tmp,size=$filesize,entries=$total,dirwidth=20,prealloc=60,cached=false
define flowop name=rmw, $from
{
  flowop openfile name=open,filesetname=$from,indexed=$fileidx,fd=1
  flowop readwholefile name=read,iosize=$rdiosize,fd=1
  flowop createfile name=new,filesetname=$from,indexed=$fileidx,fd=2
  flowop writewholefile name=write,fd=2,iosize=$wrtiosize,srcfd=1
  flowop closefile name=close1,fd=1
  flowop closefile name=close2,fd=2
  flowop deletefile name=delete,fd=1
}
define flowop name=launching, $from
{
  flowop openfile name=open,filesetname=$from,indexed=$fileidx,fd=3
  flowop readwholefile name=read,iosize=$rdiosize,fd=3
  flowop closefile name=close,fd=3
}
define flowop name=appending, $from
{
  flowop openfile name=open,filesetname=$from,indexed=$fileidx,fd=6
  flowop appendfilerand name=append,iosize=$wrtiosize,fd=6
  flowop closefile name=close,fd=6
}
define process name=client,instances=1
{
  thread name=user,memsize=10m,instances=1
  {
    flowop launching name=launch,iters=1,$from=set
    flowop rmw name=rmw,iters=6,$from=set
    flowop appending name=append,iters=3,$from=set
    flowop statfile name=stat,filesetname=set,indexed=$fileidx
    flowop eventlimit name=rate
  }
}
