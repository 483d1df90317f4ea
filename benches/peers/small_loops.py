"""Times of the programs `recurrent_cell.ir`, `lstm_cell.ir` and `newton.ir` of `benches/loops` in JAX, on one thread of a CPU."""
import os
os.environ["XLA_FLAGS"]="--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
import jax, jax.numpy as jnp, time
print(jax.__version__)
k=jax.random.split(jax.random.PRNGKey(0),5)
n,T=14,100000
w,u=jax.random.normal(k[0],(n,n))/4,jax.random.normal(k[1],(n,n))/4
b,h,xs=jax.random.normal(k[2],(n,)),jax.random.normal(k[3],(n,)),jax.random.normal(k[4],(T,n))
def f(w,u,b,h,xs):
    def s(h,x): return jnp.tanh(h@w+x@u+b),None
    return jax.lax.scan(s,h,xs)[0].sum()
def lstm(wx,wh,b,xs):
    def s(c,x):
        h,c=c
        i,f_,g,o=jnp.split(h@wh+x@wx+b,4)
        c=jax.nn.sigmoid(f_)*c+jax.nn.sigmoid(i)*jnp.tanh(g)
        return (jax.nn.sigmoid(o)*jnp.tanh(c),c),None
    z=jnp.zeros(64)
    return jax.lax.scan(s,(z,z),xs)[0][0].sum()
def newton(a,x):
    return jax.lax.while_loop(lambda c:c[0]<1000000,lambda c:(c[0]+1,(a/c[1]+c[1])*0.5),(0,x))[1]
def t(name,g,*a):
    g=jax.jit(g); jax.block_until_ready(g(*a)); best=[]
    for _ in range(9):
        s=time.perf_counter(); jax.block_until_ready(g(*a)); best.append(time.perf_counter()-s)
    best.sort(); print(name,"min",best[0]*1e3,"median",best[4]*1e3,"ms",flush=True)
t("cell",f,w,u,b,h,xs); t("cell grad",jax.value_and_grad(f,(0,1,2,3,4)),w,u,b,h,xs)
W=jax.random.normal(k[0],(64,256))/8;V=jax.random.normal(k[1],(64,256))/8;X=jax.random.normal(k[2],(1000,64))
t("lstm",lstm,W,V,jnp.zeros(256),X); t("lstm grad",jax.value_and_grad(lstm,(0,1,2,3)),W,V,jnp.zeros(256),X)
jax.config.update("jax_enable_x64",True)
t("newton",newton,jnp.float64(2),jnp.float64(3))
