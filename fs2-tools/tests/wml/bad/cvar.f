# error: 2:36: unknown parameter `men`: did you mean `mean`?
set $x=cvar(type=gamma, parameters=men:10)
