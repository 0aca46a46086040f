# As listdirs: all directories in turn.
# exact: list=500
# 20 files in 20 directories of width 1 below the root, no gamma laws: each of these lists `.`, `..` and one name of 8,
# 3 * 279 + 3 + 8 = 848 bytes; the root 22 * 279 + 3 + 160 = 6301. Of 500 listings every 21st is the root's.
# bytes: list=1108 2
# ended: finished
define fileset name=set,path=/tmp,size=0,entries=20,dirwidth=1,dirgamma=0,dirdepthrv=2,prealloc
define process name=lister
{
  thread name=lister
  {
    flowop listdir name=list,filesetname=set
    flowop finishoncount name=end,value=500
  }
}
