# The statements and attributes that the other files have not.
# exact: open=10 sync=100 print=10 read=99 write=20
# Ten times: 9 reads of files in rotation, whose opening counts too, once each: 99. Synced are those 9 and the one at
# fd 3. The sink is closed and opened again by each write: two.
# said: hello 7 of $x
# said: talking/thread: words
# ended: finished
set $x=7
set $y = "a text"
set $mode=true
set mode nousestats
set mode quit timeout
echo "hello $x of \$x\n"
usage "Usage: set \$x=<number>   defaults to ${x}"
version
list flowop
list fileset
enable lathist
system "true"
define fileset name=set,path=/tmp,filesize=4k,entries=9,dirwidth=3,prealloc=100,trusttree=false,writeonly=false
define fileset name=sink,path=/tmp/elsewhere,size=4k,entries=1,dirwidth=3,prealloc,writeonly
create files
define process name=talking,instances=1
{
  thread name=thread,procname=talking,memsize=64k
  {
    flowop openfile name=open,filesetname=set,fd=1
    flowop openfile name=open2,filesetname=set,fd=2
    flowop read name=read,filesetname=set,opennext,iosize=512,iters=9
    flowop openfile name=open3,filesetname=set,fd=3
    flowop closefile name=close1,fd=1
    flowop closefile name=close2,fd=2
    flowop fsyncset name=sync,filesetname=set
    flowop write name=write,filesetname=sink,fd=9,iosize=1k
    flowop closefile name=close9,fd=9
    flowop closefile name=close3,fd=3
    flowop print name=print,value=words
    flowop delay name=no-delay,value=0
    flowop finishoncount name=end,value=10,target=print
  }
}
define fileset name=few,path=/tmp,size=1k,entries=3,dirwidth=3,prealloc
create processes
stats clear
sleep 30
stats snap
shutdown processes
