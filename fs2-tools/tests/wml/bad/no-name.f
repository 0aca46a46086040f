# error: 2:1: define fileset needs `name`
define fileset path=/tmp
