# error: 3:74: unknown local variable `b`: expected one of a
define flowop name=c, $a=1 { flowop hog name=h,value=$a }
define process name=p { thread name=t { flowop c name=x                , $b=2 } }
