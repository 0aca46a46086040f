# error: 5:41: unknown flowop of this thread as target `wrte`: did you mean `write`?
define file name=set,path=/tmp
define process name=p { thread name=t {
  flowop write name=write,filename=set,iosize=1k
  flowop finishoncount name=end,value=1,target=wrte
} }
