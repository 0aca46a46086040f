# error: 3:36: unknown variable `nfile`: did you mean `nfiles`?
set $nfiles=10
define fileset name=set,   entries=$nfile,path=/tmp
