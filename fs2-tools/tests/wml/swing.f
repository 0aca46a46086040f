# As createdelete-swing: one process makes all files and wakes the other, which deletes them and wakes the first.
# mix: make.create=1 make.write=1 make.close=1 delete=1
# exact: make.create=200 delete=200
# Twenty files, ten times there and back; the deleter ends it when it has deleted 200.
# ended: finished
set $path=/tmp
set $nfiles=20
set $width=$nfiles
set $gamma=0
eventgen rate=0
define fileset name=many,
               path=$path,
               entries=$nfiles,
               size=1k,
               filesizegamma=$gamma,
               dirwidth=$width,
               dirgamma=$gamma
define flowop name=makeone
{
  flowop createfile name=create,
                    filesetname=many,
                    fd=1
  flowop writewholefile name=write,filesetname=many,fd=1
  flowop closefile name=close,fd=1
  flowop eventlimit name=rate
}
define process name=makers {
  thread name=maker {
    flowop makeone name=make,iters=$nfiles
    flowop wakeup name=wake-deleter,target=deleter-waits
    flowop block name=maker-waits
  }
}
define process name=deleters {
  thread name=deleter {
    flowop block name=deleter-waits
    flowop deletefile name=delete,filesetname=many,iters=$nfiles
    flowop finishoncount name=end,value=200,target=delete
    flowop wakeup name=wake-maker,target=maker-waits
  }
}
