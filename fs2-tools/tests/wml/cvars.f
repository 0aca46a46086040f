# Every custom variable and every random one. Means of 100,000 draws each, within 2 %: the widest, the lognormal,
# has a standard deviation of half its mean, and so an error of 0.2 %.
# drawn: erlang=500 exponential=2000 gamma=16384 lognormal=1133 normal=5000 triangular=2000 uniform=6144 weibull=886
# 1000 * exp(0.5^2 / 2) = 1133; 1000 * Gamma(1 + 1/2) = 886; (1000 + 3000 + 2000) / 3 = 2000
# drawn: rv-uniform=3000 rv-gamma=5632 rv-tabular=2560 rounded=4096
# ended: finished
set $erlang=cvar(type=cvar-erlang,parameters=shape:4;rate:500)
set $exponential=cvar(type=cvar-exponential,parameters=mean:2000)
set $gamma=cvar(type=cvar-gamma,parameters=mean:16384;gamma:1.5)
set $lognormal=cvar(type=cvar-lognormal,parameters=shape:0.5;scale:1000)
set $normal=cvar(type=cvar-normal,parameters=mean:5000;sigma:300)
set $triangular=cvar(type=cvar-triangular,parameters=lower:1000;upper:3000;mode:2000)
set $uniform=cvar(type=cvar-uniform,parameters=lower:4096;upper:8192)
set $weibull=cvar(type=cvar-weibull,parameters=shape:2;scale:1000)
set $rounded=cvar(type=cvar-uniform,parameters=lower:0;upper:8192,min=4096,max=4096,round=512)
set $rvuniform=randvar(type=uniform,min=1000,mean=3000,randsrc=rand48,seed=7)
set $rvgamma=randvar(type=gamma,min=1k,mean=5632,gamma=1500,round=1,randsrc=urandom)
set $rvtab=randvar(type=tabular,min=1k,randtable={{100,1k,4k}})
define process name=drawing
{
  thread name=drawing
  {
    flowop testrandvar name=erlang,value=$erlang
    flowop testrandvar name=exponential,value=$exponential
    flowop testrandvar name=gamma,value=$gamma
    flowop testrandvar name=lognormal,value=$lognormal
    flowop testrandvar name=normal,value=$normal
    flowop testrandvar name=triangular,value=$triangular
    flowop testrandvar name=uniform,value=$uniform
    flowop testrandvar name=weibull,value=$weibull
    flowop testrandvar name=rv-uniform,value=$rvuniform
    flowop testrandvar name=rv-gamma,value=$rvgamma
    flowop testrandvar name=rv-tabular,value=$rvtab
    flowop testrandvar name=rounded,value=$rounded
    flowop finishoncount name=end,value=100000,target=rounded
  }
}
