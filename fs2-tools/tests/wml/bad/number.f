# error: 2:8: `10q` is not a number: expected digits and at most one of k, m, g, t
set $x=10q
