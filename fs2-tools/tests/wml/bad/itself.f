# error: 2:35: unknown flowop `again`
define flowop name=again { flowop again name=x }
define process name=p { thread name=t { flowop again name=y } }
