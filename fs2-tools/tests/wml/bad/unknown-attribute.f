# error: 2:25: unknown attribute of define fileset `entrys`: did you mean `entries`?
define fileset name=set,entrys=10,path=/tmp
