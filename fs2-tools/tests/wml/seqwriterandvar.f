# As filemicro_seqwriterandvargam and -tab: sizes by the older form of a random variable, of both kinds.
# exact: gam=20000 tab=20000
# bytes: gam=5632 3
# bytes: tab=5632 6
# Both means are 5632: given for gamma; 0.80 * 2560 + 0.15 * 10240 + 0.05 * 40960 for the table. Standard deviations:
# 1024 + gamma(1.5) of mean 4608: 4608/sqrt(1.5) = 3762, over sqrt(20000) 26.6 or 0.5 %; of the table 9.2 K, 65 or 1.2 %.
# ended: finished
define randvar name=$gam, type=gamma, min=1k, mean=5632, gamma=1500
define randvar name=$tab, type=tabular, min=1k, randtable =
{{ 80, 1k, 4k},
 { 15, 4k, 16k},
 { 05, 16k, 64k}}
define fileset name=big,path=/tmp,size=0,entries=400,dirwidth=1024
define process name=writer
{
  thread name=writer,memsize=1m
  {
    flowop createfile name=create,filesetname=big,fd=1
    flowop appendfile name=gam,iosize=$gam,fd=1,iters=100
    flowop appendfile name=tab,iosize=$tab,fd=1,iters=100
    flowop closefile name=close,fd=1
    flowop deletefile name=delete,fd=1
    flowop finishoncount name=end,value=20000,target=tab
  }
}
