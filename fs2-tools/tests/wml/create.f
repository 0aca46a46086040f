# A file created and filled in pieces, as filemicro_create; then the end, when one was synced.
# mix: create=1 append=64 close=1
# bytes: append=16384
# The loop: one create, 64 appends of 16 KiB, one close; the run ends in the 20th when 20 files were closed.
# exact: create=20 append=1280 close=20
# ended: finished
set $dir=/tmp
set $iosize=16k
set $count=64
define fileset name=big,path=$dir,size=0,entries=100,dirwidth=1024
define process name=writer,instances=1
{
  thread name=writer,memsize=1m
  {
    flowop createfile name=create,filesetname=big,fd=1
    flowop appendfile name=append,iosize=$iosize,iters=$count,fd=1
    flowop closefile name=close,fd=1
    flowop finishoncount name=end,value=20,target=close
  }
}
