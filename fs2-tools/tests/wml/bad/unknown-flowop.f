# error: 4:10: unknown flowop `opnefile`: did you mean `openfile`?
define fileset name=set,path=/tmp
define process name=p { thread name=t {
  flowop opnefile name=o,filesetname=set
} }
