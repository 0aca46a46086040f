# error: 3:48: flowop `r` needs `iosize`
define file name=f,path=/tmp
define process name=p { thread name=t { flowop read name=r,filename=f } }
