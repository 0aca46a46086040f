# error: 3:7: the rows' percentages add up to 90, not to 100
set $x=randvar(type=tabular,
      randtable={{90,1k,2k}})
