# error: 2:15: unknown quit mode `firstdon`: did you mean `firstdone`?
set mode quit firstdon
