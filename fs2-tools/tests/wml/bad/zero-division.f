# error: 2:9: this calculation divides by zero
set $x=1/0
