# error: 3:1: expected `flowop` or `}`, found the end of the file
define process name=p { thread name=t { 
