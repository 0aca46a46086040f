# error: 2:1: 10000000 threads are more than can be started (32768)
define process name=p,instances=1000 { thread name=t,instances=10000 { flowop hog name=h,value=1 } }
