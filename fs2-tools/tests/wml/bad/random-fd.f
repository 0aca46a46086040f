# error: 4:71: `fd` cannot be random
set $r=cvar(type=uniform,parameters=lower:1;upper:2)
define file name=f,path=/tmp
define process name=p { thread name=t { flowop openfile filename=f,fd=$r } }
