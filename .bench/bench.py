import sys,time,json,os
sys.path.insert(0,'src')
import torch
from concurrent.futures import ThreadPoolExecutor
from convloom.problem.notation import parse_problem
from convloom.compiler import *
from convloom.target.arch import *
from convloom.problem.conv import *
from convloom.problem.layout import *
from convloom.dtypes import *
from convloom.plan.tiled import plan_text
from convloom.runtime.device import device_named
torch.backends.cudnn.benchmark=True
def spec(sh,dt,last): return TensorSpec(dt,dense(sh,[0]+list(range(2,len(sh)))+[1] if last else None))
def mk(p,d,last,dt=F16):
    n,c,h,w,k,oh,ow=[x.value for x in (p.batch,p.in_channels,*p.in_spatial,p.out_channels,*p.out_spatial)]
    return Conv(d,n,c,k,1,(h,w),(oh,ow),p.kernel,p.stride,p.dilation,p.pad_begin,spec((n,c,h,w),dt,last),spec((k,c,*p.kernel),dt,last),spec((n,k,oh,ow),dt,last),name=p.name)
lines=[l.strip() for f in ('resnet50','sdxl','vgg16') for l in open(f'suites/{f}.txt') if l.strip() and not l.startswith('#')]
sel=[l for l in lines if any(s in l for s in ('l1.1x1a','l1.3x3','l2.3x3"','l3.3x3"','l4.3x3"','l3.1x1b','sdxl:640"','vgg16:3_2'))]
dev=device_named('cuda')
flush=torch.empty(64*1024*1024,dtype=torch.int32,device='cuda')
def timeit(f,n=12):
    for _ in range(3): f()
    ts=[]
    for _ in range(n):
        flush.sum(); a=torch.cuda.Event(enable_timing=True); b=torch.cuda.Event(enable_timing=True)
        a.record(); f(); b.record(); torch.cuda.synchronize(); ts.append(a.elapsed_time(b)*1e3)
    return sorted(ts)[len(ts)//2]
jobs=[]
for l in sel:
    p=parse_problem(l)
    for last in (True,False):
        for d in Direction: jobs.append((l,mk(p,d,last),d,last))
def build(j):
    c=prepare(j[1]); pl=plan_for(c.contraction,SM_90A); g=generate(c.contraction,SM_90A,pl)
    return c,pl,g,dev.build(g.source)
t0=time.time()
with ThreadPoolExecutor(12) as ex: built=list(ex.map(build,jobs))
print('built',len(built),f'{time.time()-t0:.1f}s',flush=True)
rows=[]
for (l,cv,d,last),(c,pl,g,b) in zip(jobs,built):
    n,cc,h,w,k,oh,ow=[x.value for x in (cv.batch,cv.in_channels,*cv.in_spatial,cv.out_channels,*cv.out_spatial)]
    mf=torch.channels_last if last else torch.contiguous_format
    x=torch.randn(n,cc,h,w,device='cuda',dtype=torch.half).to(memory_format=mf); wt=(torch.randn(k,cc,*cv.kernel,device='cuda',dtype=torch.half)*0.05).to(memory_format=mf); y=torch.randn(n,k,oh,ow,device='cuda',dtype=torch.half).to(memory_format=mf)
    t={'src':x,'wei':wt,'dst':y}
    res=cv.result.value
    def lib():
        if d is Direction.FWD: return torch.nn.functional.conv2d(x,wt,stride=cv.stride,padding=cv.pad_begin)
        m=[d is Direction.BWD_D, d is Direction.BWD_W, False]
        return torch.ops.aten.convolution_backward(y,x,wt,None,cv.stride,cv.pad_begin,(1,1),False,[0,0],1,m)[0 if m[0] else 1]
    ref=lib()
    out=torch.full_like(t[res],float('nan')); t2=dict(t); t2[res]=out
    names=dict(c.tensors); order=[names[bb.name] for bb in b.source.buffers]
    s=torch.cuda.current_stream().cuda_stream
    args=[t2[o].data_ptr() for o in order]
    def ours(): b.launch(args,{}, {},s)
    ours(); torch.cuda.synchronize()
    err=((out.float()-ref.float()).norm()/ref.float().norm()).item()
    tl=timeit(lib); to=timeit(ours)
    fl=cv.ops
    rows.append((cv.name,'nhwc' if last else 'nchw',d.value,tl,to,tl/to,fl/to*1e-6,err,plan_text(pl)))
    print(f"{cv.name:16} {'nhwc' if last else 'nchw'} {d.value:6} lib {tl:8.1f} ours {to:8.1f} ratio {tl/to:.3f} {fl/to*1e-6:6.1f} TF/s err {err:.1e} regs {b.resources.registers if b.resources else ''} {plan_text(pl)[6:70]} {pl.row[:4]} st{pl.stages}",flush=True)
import math
for last in ('nhwc','nchw'):
    for d in ('fwd','bwd_d','bwd_w'):
        r=[x[5] for x in rows if x[1]==last and x[2]==d]
        print(last,d,'geomean ratio %.3f'%math.exp(sum(map(math.log,r))/len(r)))
json.dump(rows,open(os.environ['OUT']+'/bench.json','w'))
