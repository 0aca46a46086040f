# error: 2:25: `name` is given twice
define fileset name=set,name=other,path=/tmp
