# error: 2:8: this calculation is below zero
set $x=1 - 2
