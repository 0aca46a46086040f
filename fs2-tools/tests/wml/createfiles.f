# As createfiles and filemicro_createfiles: every file of the set is made once, whichever thread does it.
# exact: create=300 write=300 close=300
# bytes: write=5000
# 300 entries, none made in advance; the first thread that finds none ends the run, so those of the other threads that
# are under way may be missing: at most three of 300.
# slack: 3
# ended: firstdone
set mode quit firstdone
define fileset name=set,path=/tmp,size=5000,entries=300,dirwidth=20
define process name=maker,instances=1
{
  thread name=maker,memsize=1m,instances=4
  {
    flowop createfile name=create,filesetname=set,fd=1
    flowop writewholefile name=write,fd=1,iosize=2k
    flowop closefile name=close,fd=1
  }
}
