"""The peers: each a process of its own, which takes lines of JSON and answers with lines of JSON.

`python sides.py NAME WORKLOAD ELEMENTS THREADS SEED` says what was made and how long the first call took; then
`{"seconds": S}` is answered with the times of samples, and `{"check": IN.npz, "out": OUT.npz}` with results at
those inputs.
"""

import importlib.util
import json
import os
import sys
import time

THREADS_ARE = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NPROC")


def limit(threads):
    """Holds this process to so many cores and threads; before a library is loaded that asks for them."""
    cores = sorted(os.sched_getaffinity(0))[:threads]
    os.sched_setaffinity(0, cores)
    for name in THREADS_ARE:
        os.environ[name] = str(threads)
    if threads == 1:
        os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["CUDA_VISIBLE_DEVICES"] = ""


def missing(side):
    """Why a peer cannot run here, or nothing."""
    package = "jax" if side == "jax" else "torch"
    return None if importlib.util.find_spec(package) else f"{package} is not installed"


def jax_side(workload, rate):
    """The step, what makes arguments of it, what waits for a result, and the version."""
    import jax
    import jax.numpy as jnp
    from workloads import Ops

    def layer_norm(x, g, b):
        c = x - x.mean(-1, keepdims=True)
        return c * jax.lax.rsqrt((c * c).mean(-1, keepdims=True) + 1e-5) * g + b

    def cross_entropy(x, labels):
        return -jnp.take_along_axis(jax.nn.log_softmax(x), labels[:, None], 1).sum()

    def conv(x, kernels, offsets):
        return jax.lax.conv_general_dilated(x, kernels, (1, 1), "VALID") + offsets[None, :, None, None]

    def max_pool(x):
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")

    def attend(q, k, v, factor):
        scores = jnp.einsum("bqhe,bkhe->bhqk", q * factor, k)
        places = jnp.arange(q.shape[1])
        scores = jnp.where(places[:, None] < places[None, :], -1e9, scores)
        return jnp.einsum("bhqk,bkhe->bqhe", jax.nn.softmax(scores), v)

    ops = Ops(
        tanh=jnp.tanh, sigmoid=jax.nn.sigmoid, relu=jax.nn.relu, silu=jax.nn.silu, rsqrt=jax.lax.rsqrt,
        gelu=lambda x: jax.nn.gelu(x, approximate=False), softmax=jax.nn.softmax, log_softmax=jax.nn.log_softmax,
        cross_entropy=cross_entropy, layer_norm=layer_norm, einsum=jnp.einsum, conv=conv, max_pool=max_pool,
        attend=attend,
    )  # fmt: skip

    def prepare(inputs):
        names = list(inputs)
        places = tuple(names.index(name) for name in workload.wrt)
        both = jax.value_and_grad(lambda *args: workload.loss(ops, *args), argnums=places)

        def step(*args):
            loss, gradients = both(*args)
            if workload.updates:
                gradients = tuple(args[k] - rate * g for k, g in zip(places, gradients))
            return (loss, *gradients)

        made, args = jax.jit(step), [jax.device_put(x) for x in inputs.values()]
        return lambda: jax.block_until_ready(made(*args))

    return prepare, jax.__version__


def torch_side(workload, rate, threads, compiled):
    """As `jax_side`, eager or by torch.compile."""
    import torch
    import torch.nn.functional as F
    from workloads import Ops

    torch.set_num_threads(threads)

    def attend(q, k, v, factor):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=factor).transpose(1, 2)

    ops = Ops(
        tanh=torch.tanh, sigmoid=torch.sigmoid, relu=F.relu, silu=F.silu, rsqrt=torch.rsqrt, gelu=F.gelu,
        softmax=lambda x: F.softmax(x, -1), log_softmax=lambda x: F.log_softmax(x, -1),
        cross_entropy=lambda x, labels: F.cross_entropy(x, labels, reduction="sum"),
        layer_norm=lambda x, g, b: F.layer_norm(x, x.shape[-1:], g, b, 1e-5), einsum=torch.einsum,
        conv=F.conv2d, max_pool=lambda x: F.max_pool2d(x, 2), attend=attend,
    )  # fmt: skip

    def prepare(inputs):
        # Labels are 64 bits wide in this library.
        args = {n: torch.from_numpy(x.astype("int64") if x.dtype == "int32" else x) for n, x in inputs.items()}
        wrt = [args[name].requires_grad_() for name in workload.wrt]

        def loss(*args):
            return workload.loss(ops, *args)

        def update(old, gradients):
            return [p - rate * g for p, g in zip(old, gradients)]

        if compiled:
            loss, update = torch.compile(loss), torch.compile(update)

        def step():
            value = loss(*args.values())
            gradients = torch.autograd.grad(value, wrt)
            if workload.updates:
                with torch.no_grad():
                    gradients = update(wrt, gradients)
            return (value.detach(), *gradients)

        return step

    return prepare, torch.__version__


def samples(step, seconds):
    """Milliseconds of a step in each sample: as many steps as take .2 ms, or one."""
    began = time.perf_counter()
    step()
    count = max(1, int(2e-4 / max(time.perf_counter() - began, 1e-7)))
    taken, end = [], time.perf_counter() + seconds
    while len(taken) < 5 or time.perf_counter() < end:
        began = time.perf_counter()
        for _ in range(count):
            step()
        taken.append((time.perf_counter() - began) * 1e3 / count)
    return taken


def peak_mb():
    """The most memory that this process has held."""
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def main(side, name, elements, threads, seed):
    limit(int(threads))
    began = time.perf_counter()
    import numpy as np
    from workloads import RATE, WORKLOADS

    workload = next(w for w in WORKLOADS if w.program == name)
    if side == "jax":
        prepare, version = jax_side(workload, RATE)
    else:
        prepare, version = torch_side(workload, RATE, int(threads), side == "torch compile")
    loaded = time.perf_counter()
    step = prepare(workload.inputs(int(elements), int(seed)))
    step()
    first = time.perf_counter()
    for _ in range(3):
        step()
    say = lambda answer: print(json.dumps(answer), flush=True)
    say({"version": version, "load_ms": (loaded - began) * 1e3, "first_ms": (first - loaded) * 1e3})
    for line in sys.stdin:
        asked = json.loads(line)
        if "check" in asked:
            # Copies: results may share memory with inputs.
            given = dict(np.load(asked["check"]))
            np.savez(asked["out"], *[np.array(x) for x in prepare(given)()])
            say({})
        else:
            say({"ms": samples(step, asked["seconds"]), "peak_mb": peak_mb()})


if __name__ == "__main__":
    main(*sys.argv[1:])
