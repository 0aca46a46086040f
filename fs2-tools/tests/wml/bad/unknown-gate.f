# error: 3:26: unknown semblock as target `blok`: did you mean `block`?
define process name=p { thread name=t { flowop semblock name=block,value=1
  flowop                 sempost name=post,value=1,target=blok } }
