# error: 3:48: flowop `w` needs `random`
define file name=f,path=/tmp
define process name=p { thread name=t { flowop aiowrite name=w,filename=f,iosize=1k } }
