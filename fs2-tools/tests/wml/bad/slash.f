# error: 2:16: `a/b` cannot be the name of a directory
define fileset name=a/b,path=/tmp
