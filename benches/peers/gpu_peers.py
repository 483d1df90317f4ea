"""adfuse beside PyTorch and JAX on this machine's GPU: `python benches/peers/gpu_peers.py --adfuse target/release/adfuse`.

Every side computes a function and its gradients at random inputs that stay on the device, in a process of its own. Times are
those of the device: events for PyTorch, `bench` for adfuse; for JAX, of many steps that wait for the last. The table goes to
standard output, what is going on to standard error.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = Path(__file__).resolve().parent.parent / "programs"
SIDES = ("torch eager", "torch compile", "jax")
MODES = ("strict", "reproducible", "fast")


@dataclass(frozen=True)
class Workload:
    """One row of the table."""

    name: str
    program: str
    # The extent of `n`, and shapes by parameter; a pair has an element type beside the shape.
    n: int
    shapes: dict
    # Parameters to differentiate with respect to.
    wrt: tuple


def rows(kind, n, d, *more):
    shapes = {"x": (kind, (n, d))}
    for name in more:
        shapes[name] = (kind, (d,) if name in "gb" else (n, d))
    return shapes


WORKLOADS = [
    Workload(
        "add + tanh-gelu, 64Mi", "add_gelu_tanh_loss", 1 << 26, {k: ("f32", (1 << 26,)) for k in "abw"}, ("a", "b")
    ),
    Workload("gelu of a x + b, 64Mi", "gelu_loss", 1 << 26, {k: ("f32", (1 << 26,)) for k in "xab"}, ("x", "a", "b")),
    Workload(
        "row bias + relu, 16384 x 4096", "bias_relu_loss", 16384, rows("f32", 16384, 4096, "b", "t"), ("x", "b")
    ),
    Workload(
        "residual + layer norm, 16384 x 4096", "residual_norm_loss", 16384,
        rows("f32", 16384, 4096, "r", "g", "b", "t"), ("x", "r", "g", "b"),
    ),
    Workload(
        "the same, bf16", "residual_norm_loss_bf16", 16384, rows("bf16", 16384, 4096, "r", "g", "b", "t"),
        ("x", "r", "g", "b"),
    ),
    Workload(
        "cross entropy, 8192 x 50304", "vocabulary_loss", 8192,
        {"x": ("f32", (8192, 50304)), "labels": ("i32", (8192,))}, ("x",),
    ),
    Workload(
        "the same, bf16", "vocabulary_loss_bf16", 8192,
        {"x": ("bf16", (8192, 50304)), "labels": ("i32", (8192,))}, ("x",),
    ),
]  # fmt: skip


def torch_side(workload, compiled, seconds):
    import torch
    import torch.nn.functional as F

    kinds = {"f32": torch.float32, "bf16": torch.bfloat16}
    torch.manual_seed(0)
    args = {}
    for name, (kind, shape) in workload.shapes.items():
        if kind == "i32":
            args[name] = torch.randint(0, 4, shape, device="cuda")
        else:
            args[name] = torch.randn(shape, device="cuda", dtype=kinds[kind])
    wrt = [args[name].requires_grad_() for name in workload.wrt]
    functions = {
        "add_gelu_tanh_loss": lambda a, b, w: (w * F.gelu(a + b, approximate="tanh")).sum(),
        "gelu_loss": lambda x, a, b: F.gelu(a * x + b).sum(),
        "bias_relu_loss": lambda x, b, t: (t * F.relu(x + b)).sum(),
        "residual_norm_loss": lambda x, r, g, b, t: (t * F.layer_norm(x + r, x.shape[-1:], g, b)).float().sum(),
        "vocabulary_loss": lambda x, labels: F.cross_entropy(x.float(), labels, reduction="sum"),
    }
    function = functions[workload.program.removesuffix("_bf16")]
    if compiled:
        function = torch.compile(function)
    ones = None

    def step():
        nonlocal ones
        value = function(*args.values())
        if ones is None:
            ones = torch.ones_like(value)
        return value, torch.autograd.grad(value, wrt, ones)

    for _ in range(5):
        step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    taken, end = [], time.perf_counter() + seconds
    while len(taken) < 10 or time.perf_counter() < end:
        begin, done = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        step()
        done.record()
        torch.cuda.synchronize()
        taken.append(begin.elapsed_time(done))
    return statistics.median(taken), torch.cuda.max_memory_allocated(), torch.__version__


def jax_side(workload, seconds):
    import jax
    import jax.numpy as jnp

    kinds = {"f32": jnp.float32, "bf16": jnp.bfloat16}
    args = {}
    for k, (name, (kind, shape)) in enumerate(workload.shapes.items()):
        key = jax.random.key(k)
        if kind == "i32":
            args[name] = jax.random.randint(key, shape, 0, 4)
        else:
            args[name] = jax.random.normal(key, shape, kinds[kind])

    def layer_norm(x, g, b):
        c = x - x.mean(-1, keepdims=True)
        return c * jax.lax.rsqrt((c * c).mean(-1, keepdims=True) + 1e-5) * g + b

    def cross_entropy(x, labels):
        return -jnp.take_along_axis(jax.nn.log_softmax(x), labels[:, None], 1).sum()

    wide = lambda f: lambda *all_args: f(*(a.astype(jnp.float32) if a.dtype == jnp.bfloat16 else a for a in all_args))
    gelu = lambda x: jax.nn.gelu(x, approximate=False)
    functions = {
        "add_gelu_tanh_loss": lambda a, b, w: (w * jax.nn.gelu(a + b, approximate=True)).sum(),
        "gelu_loss": lambda x, a, b: gelu(a * x + b).sum(),
        "bias_relu_loss": lambda x, b, t: (t * jax.nn.relu(x + b)).sum(),
        "residual_norm_loss": wide(lambda x, r, g, b, t: (t * layer_norm(x + r, g, b)).sum()),
        "vocabulary_loss": wide(cross_entropy),
    }
    function = functions[workload.program.removesuffix("_bf16")]
    names = list(args)
    places = [names.index(name) for name in workload.wrt]

    @jax.jit
    def step(*given):
        def partial(*chosen):
            full = list(given)
            for place, value in zip(places, chosen):
                full[place] = value
            return function(*full)

        value, back = jax.vjp(partial, *(given[p] for p in places))
        return value, back(jnp.ones_like(value))

    given = tuple(args.values())
    for _ in range(3):
        jax.block_until_ready(step(*given))
    taken, end = [], time.perf_counter() + seconds
    while len(taken) < 5 or time.perf_counter() < end:
        began = time.perf_counter()
        for _ in range(20):
            last = step(*given)
        jax.block_until_ready(last)
        taken.append((time.perf_counter() - began) * 1e3 / 20)
    stats = jax.devices()[0].memory_stats() or {}
    return statistics.median(taken), stats.get("peak_bytes_in_use", 0), jax.__version__


def adfuse_side(workload, fp, options):
    command = [options.adfuse, "bench", PROGRAMS / f"{workload.program}.ir", "--engine", "gpu", "--grad"]
    command += ["--wrt", ",".join(workload.wrt), "--dim", f"n={workload.n}", "--fp", fp, "--json", "--kernels"]
    command += ["--min-seconds", str(options.seconds)]
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode != 0:
        raise RuntimeError(ran.stderr.strip())
    return json.loads(ran.stdout)


def answer(side, name, seconds):
    """What a side's process prints."""
    workload = next(w for w in WORKLOADS if w.program == name)
    if side == "jax":
        ms, peak, version = jax_side(workload, seconds)
    else:
        ms, peak, version = torch_side(workload, side == "torch compile", seconds)
    print(json.dumps({"ms": ms, "peak_bytes": peak, "version": version}))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--adfuse", help="the program")
    parser.add_argument("--fp", default="strict,reproducible,fast", help="modes of adfuse, with commas")
    parser.add_argument("--seconds", type=float, default=1.0, help="of samples, for each side and workload")
    parser.add_argument("--only", help="programs, with commas")
    parser.add_argument("--peers", default=",".join(SIDES), help="sides beside adfuse, with commas")
    parser.add_argument("--json", help="a file for all figures")
    parser.add_argument("--side", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        return answer(options.side, options.only, options.seconds)
    if not options.adfuse:
        parser.error("--adfuse is needed")
    chosen = options.only.split(",") if options.only else [w.program for w in WORKLOADS]
    peers = [p for p in options.peers.split(",") if p]
    modes = options.fp.split(",")
    if set(modes) - set(MODES):
        parser.error(f"modes are {', '.join(MODES)}")
    table = []
    for workload in (w for w in WORKLOADS if w.program in chosen):
        row = {"workload": workload.name, "program": workload.program}
        for fp in modes:
            try:
                row[f"adfuse {fp}"] = adfuse_side(workload, fp, options)
            except RuntimeError as e:
                print(f"{workload.name}: adfuse {fp}: {e}", file=sys.stderr, flush=True)
        for side in peers:
            command = [sys.executable, __file__, "--side", side, "--only", workload.program]
            ran = subprocess.run([*command, "--seconds", str(options.seconds)], capture_output=True, text=True)
            if ran.returncode == 0:
                row[side] = json.loads(ran.stdout.strip().splitlines()[-1])
            else:
                last = ran.stderr.strip().splitlines()[-1:] or ["ended without a word"]
                print(f"{workload.name}: {side}: {last[0]}", file=sys.stderr, flush=True)
        table.append(row)
        best = min((row[p]["ms"] for p in peers if p in row), default=None)
        cells = []
        for fp in modes:
            own = row.get(f"adfuse {fp}")
            if not own:
                cells += [f"{fp} -"]
                continue
            cells += [f"{fp} {own['median_ms']:.3f} ms {own['copy_share']:.0%} of the copy"]
            cells += [f"{best / own['median_ms']:.2f} x the best peer"] if best else []
        cells += [f"{p} {row[p]['ms']:.3f}" if p in row else f"{p} -" for p in peers]
        peaks = [(fp, row[f"adfuse {fp}"]) for fp in modes if f"adfuse {fp}" in row][-1:]
        peaks += [(p, row[p]) for p in peers if p in row]
        cells += [f"{name} {figures['peak_bytes'] / 2**20:.0f} MiB" for name, figures in peaks]
        print(f"{workload.name}: " + ", ".join(cells), flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps(table, indent=1))


if __name__ == "__main__":
    main()
