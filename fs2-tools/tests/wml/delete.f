# As filemicro_delete: until nothing is left.
# exact: delete=250
# ended: alldone
set mode quit alldone
define fileset name=set,path=/tmp,size=1k,entries=250,dirwidth=20,prealloc=100,paralloc
define process name=deleter,instances=2
{
  thread name=deleter,memsize=1m,instances=3
  {
    flowop deletefile name=delete,filesetname=set
  }
}
