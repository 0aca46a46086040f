# error: 4:1: a definition after the processes were started: move it before
define process name=p { thread name=t { flowop hog name=h,value=1 } }
create processes
define fileset name=late,path=/tmp
