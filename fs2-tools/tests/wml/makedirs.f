# As makedirs.
# exact: make=300
# Those under way in the other threads when one finds none left are not counted.
# slack: 3
# ended: firstdone
set mode quit firstdone
define fileset name=set,path=/tmp,size=0,leafdirs=300,dirwidth=30
define process name=maker,instances=1
{
  thread name=maker,memsize=1m,instances=4
  {
    flowop makedir name=make,filesetname=set
  }
}
