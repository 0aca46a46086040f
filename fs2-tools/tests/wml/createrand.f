# As filemicro_createrand: appends of a random length, uniform from 1 byte to iosize.
# exact: create=40 append=4000
# bytes: append=4096.5 2
# The mean of 1..8192; its standard deviation is 8192/sqrt(12) = 2365, over sqrt(4000) = 37.4, that is 0.91 % of the mean.
# ended: finished
define fileset name=big,path=/tmp,size=0,entries=100,dirwidth=1024
define process name=writer
{
  thread name=writer,memsize=1m
  {
    flowop createfile name=create,filesetname=big,fd=1
    flowop appendfilerand name=append,iosize=8k,iters=100,fd=1
    flowop closefile name=close,fd=1
    flowop finishoncount name=end,value=4000,target=append
  }
}
