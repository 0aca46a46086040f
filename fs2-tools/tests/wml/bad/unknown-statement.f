# error: 2:1: unknown statement `defin`: did you mean `define`?
defin fileset name=x
