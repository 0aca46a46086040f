# error: 2:30: expected `,` before `path`
define fileset name=set,path path=/tmp
