# error: 2:1: `enable multi` needs other hosts, which are not supported: remove it to run on this one
enable multi master=a,client=b
