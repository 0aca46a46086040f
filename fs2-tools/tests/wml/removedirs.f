# As removedirs.
# exact: remove=300
# ended: alldone
set mode quit alldone
define fileset name=set,path=/tmp,size=0,leafdirs=300,dirwidth=30,prealloc
define process name=remover,instances=1
{
  thread name=remover,memsize=1m,instances=4
  {
    flowop removedir name=remove,filesetname=set
  }
}
