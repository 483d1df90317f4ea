"""The tables of reverse mode through long loops: `python benches/peers/loop_table.py chain|lstm --adfuse target/release/adfuse`.

`chain` goes back through 10^2 to 10^6 steps of `h = tanh(h w + x)`, `lstm` through 1,000 steps of an LSTM. adfuse runs
`benches/loops/*.ir` without a budget and within budgets; JAX's sides are a plain `scan`, a `scan` of `jax.checkpoint`, and
equinox's `while_loop` with checkpoints. Each side is a process for each round, on the first core, with one thread;
sides take turns. Bytes are what the side says that it takes: the planned peak of adfuse, arguments, results and temporaries
of XLA's executable.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE.parent / "loops"
LENGTHS = [10**k for k in range(2, 7)]
# Checkpoints of the smallest budget, and bytes of a state with its number.
CHECKPOINTS = 32
STATE = 72
# Bytes of adfuse with one checkpoint: inputs, results and what a step needs.
REST = 3340


def note(text):
    print(text, file=sys.stderr, flush=True)


def one_core():
    os.sched_setaffinity(0, {0})


def answer(command):
    """The JSON that a process on the first core prints."""
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=one_core)
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:]
        raise RuntimeError(f"{' '.join(map(str, command[:6]))}: {' '.join(last)}")
    return json.loads(done.stdout)


class Adfuse:
    """adfuse within a budget, or without one."""

    def __init__(self, options, name, program, budget):
        self.name, self.budget = name, budget
        self.bench = [options.adfuse, "bench", "--grad", program, "--threads", "1", "--json"]
        self.plan = [options.adfuse, "plan", "--grad", program, "--json"]
        if budget is not None:
            self.bench += ["--mem-budget", str(budget), "--no-cache"]
            self.plan += ["--mem-budget", str(budget), "--no-cache"]
        self.seconds = str(options.seconds)

    def forward(self):
        """Steps forward, on the first way and on the way back, and checkpoints."""
        loops = answer(self.plan)["loops"]
        first = sum(loop["trips"] for loop in loops if not loop["back"] and loop is loops[0])
        back = [loop["back"] for loop in loops if loop["back"]]
        return first + sum(b["forward_steps"] for b in back), sum(b["checkpoints"] for b in back)

    def sample(self):
        found = answer([*self.bench, "--min-seconds", self.seconds])
        return found["median_ms"], found["peak_bytes"]


class Peer:
    """A side of this file, in a process of its own."""

    def __init__(self, options, name, table, side, size):
        self.name = name
        self.command = [sys.executable, __file__, table, "--side", side, "--size", str(size)]
        self.command += ["--seconds", str(options.seconds)]

    def forward(self):
        return None, None

    def sample(self):
        found = answer(self.command)
        return found["ms"], found["bytes"]


def chain_peer(side, n):
    """The gradients of a chain of n steps in JAX, and its arguments."""
    import jax
    import jax.numpy as jnp

    k = jax.random.split(jax.random.PRNGKey(0), 3)
    args = [jax.random.normal(k[0], (14, 14)), jax.random.normal(k[1], (14,)), jax.random.normal(k[2], (14,))]

    def cell(w, x, h):
        return jnp.tanh(h @ w + x)

    def loss(w, h, x):
        if side == "equinox":
            import equinox.internal as eqxi

            def step(c):
                return c[0] + 1, cell(w, x, c[1])

            return eqxi.while_loop(
                lambda c: c[0] < n, step, (0, h), max_steps=n, kind="checkpointed", checkpoints=CHECKPOINTS
            )[1].sum()
        step = jax.checkpoint(cell) if side == "checkpoint" else cell
        return jax.lax.scan(lambda h, _: (step(w, x, h), None), h, None, length=n)[0].sum()

    return jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2))), args


def lstm_peer(side, n):
    import jax
    import jax.numpy as jnp

    batch, units = 16, 128
    k = jax.random.split(jax.random.PRNGKey(0), 4)
    shapes = [(units, 4 * units), (units, 4 * units), (4 * units,), (n, batch, units)]
    args = [jax.random.normal(key, shape) * 0.1 for key, shape in zip(k, shapes)]

    def loss(wx, wh, b, xs):
        def step(state, x):
            h, c = state
            i, f, g, o = jnp.split(x @ wx + h @ wh + b, 4, axis=1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

        step = jax.checkpoint(step) if side == "checkpoint" else step
        zero = jnp.zeros((batch, units))
        (h, _), _ = jax.lax.scan(step, (zero, zero), xs)
        return (h * h).sum()

    return jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2, 3))), args


def peer(options):
    """Measures one side of JAX, and prints its median and its bytes."""
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax

    f, args = {"chain": chain_peer, "lstm": lstm_peer}[options.table](options.side, options.size)
    made = f.lower(*args).compile()
    memory = made.memory_analysis()
    taken = memory.temp_size_in_bytes + memory.argument_size_in_bytes + memory.output_size_in_bytes
    jax.block_until_ready(made(*args))
    times, end = [], time.perf_counter() + options.seconds
    while not times or time.perf_counter() < end:
        begin = time.perf_counter()
        jax.block_until_ready(made(*args))
        times.append((time.perf_counter() - begin) * 1e3)
    print(json.dumps({"ms": statistics.median(times), "bytes": taken}))


def sides(options, size, program):
    """The sides of a row."""
    if options.table == "lstm":
        budgets = [None, "33MiB", "20MiB"]
        own = [Adfuse(options, f"adfuse {b or ''}".strip(), program, b) for b in budgets]
        peers = ["scan", "checkpoint"]
    else:
        tenth, few = REST + size * STATE // 10, REST + (CHECKPOINTS - 1) * STATE
        budgets = [("adfuse", None), ("a tenth", tenth), (f"{CHECKPOINTS} checkpoints", few)]
        own = [Adfuse(options, name, program, b) for name, b in budgets]
        peers = ["scan", "checkpoint", "equinox"]
    return own + [Peer(options, f"jax {p}", options.table, p, size) for p in peers]


def row(options, size):
    """Medians of the rounds of every side, what they lie between, and bytes."""
    name = "tanh_chain" if options.table == "chain" else "lstm"
    text = (PROGRAMS / f"{name}.ir").read_text()
    if options.table == "chain":
        text = text.replace("length = 1000}", f"length = {size}}}")
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, f"{name}.ir")
        program.write_text(text)
        ready = sides(options, size, program)
        found = {s.name: [] for s in ready}
        for k in range(options.rounds):
            for s in ready[k % len(ready) :] + ready[: k % len(ready)]:
                note(f"{size} {s.name}, round {k}, load {os.getloadavg()[0]:.1f}")
                found[s.name].append(s.sample())
        for s in ready:
            forward, checkpoints = s.forward()
            ms = [each[0] for each in found[s.name]]
            middle, taken = statistics.median(ms), found[s.name][0][1]
            steps = "" if forward is None else f"{forward / size:.2f}"
            cells = [f"{size:,}", s.name, f"{middle:.3g} ({min(ms):.3g}-{max(ms):.3g})", f"{taken:,}", steps, checkpoints or ""]
            print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("table", choices=("chain", "lstm"))
    p.add_argument("--adfuse", type=Path, help="the program that is measured, a release build")
    p.add_argument("--rounds", type=int, default=3, help="turns of each side (3)")
    p.add_argument("--seconds", type=float, default=0.5, help="how long a turn takes samples (.5)")
    p.add_argument("--sizes", default="", help="numbers of steps")
    p.add_argument("--side", help=argparse.SUPPRESS)
    p.add_argument("--size", type=int, help=argparse.SUPPRESS)
    options = p.parse_args()
    if options.side:
        return peer(options)
    if not options.adfuse:
        p.error("--adfuse is needed")
    print("| steps | side | ms | bytes | forward steps a step | checkpoints |\n|---|---|---|---|---|---|")
    lengths = LENGTHS if options.table == "chain" else [1000]
    for size in [int(n) for n in options.sizes.split(",") if n] or lengths:
        row(options, size)


if __name__ == "__main__":
    main()
