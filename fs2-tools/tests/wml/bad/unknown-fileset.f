# error: 3:72: unknown fileset `bigfilset`: did you mean `bigfileset`?
define fileset name=bigfileset,path=/tmp
define process name=p { thread name=t { flowop openfile name=o,fd=1,   filesetname=bigfilset } }
