"""Whole models in adfuse, burn, candle and JAX: time to the first step, least and median step, memory, lines.

`python benches/peers/models.py --threads 1` runs all and prints a table; `README.md` says what is measured. The peers in
Rust are built by `--build`; a side that is not there is named on standard error and left out.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MODELS = ("mlp", "cnn", "gpt", "lstm", "bundle")
# What a side does not have, and why.
ABSENT = {
    ("burn", "bundle"): "no Jacobians",
    ("candle", "bundle"): "no Jacobians",
}
# What is to be known of a number.
REMARKS = {("candle", "cnn"): "the gradient of its max pool is a quarter of the true one"}


def sides(args):
    """The command of each side, and the file of a model for its lines."""
    peers = ROOT / "target" / "peers" / "release"
    own = pathlib.Path(args.adfuse or ROOT / "target" / "release" / "models")
    python = [args.python, str(HERE / "jax_models" / "measure.py")]
    return {
        "adfuse": ([str(own)], ROOT / "benches" / "models", ".rs"),
        "burn": ([str(peers / "peer-burn")], HERE / "rust" / "burn" / "src", ".rs"),
        "candle": ([str(peers / "peer-candle")], HERE / "rust" / "candle" / "src", ".rs"),
        "jax": (python, HERE / "jax_models", ".py"),
    }


def lines_of(path):
    """Lines that are neither empty nor comments; of layers that JAX leaves to its users, what they add is not counted."""
    if not path.exists():
        return None
    texts = (line.strip() for line in path.read_text().splitlines())
    marks = ("//", "#!", '"""') if path.suffix == ".rs" else ("#", '"""')
    return sum(1 for line in texts if line and not line.startswith(marks))


def environment(threads):
    cores = sorted(os.sched_getaffinity(0))[:threads]
    names = ("RAYON_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NPROC", "ADFUSE_THREADS")
    variables = {**os.environ, **{name: str(threads) for name in names}, "JAX_PLATFORMS": "cpu"}
    if threads == 1:
        variables["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    return cores, variables


def run(command, model, seconds, threads):
    cores, variables = environment(threads)
    made = subprocess.run(
        [*command, model, str(seconds), str(time.time_ns())],
        env=variables,
        capture_output=True,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )
    if made.returncode:
        last = (made.stderr.strip().splitlines() or ["it failed"])[-1]
        raise RuntimeError(last)
    return json.loads(made.stdout.strip().splitlines()[-1])


def build():
    subprocess.run(
        ["cargo", "build", "--release", "--locked"], cwd=HERE / "rust", check=True
    )


def measure(args, commands):
    """Rounds of all sides in turns, each a process: the least of all, the median of medians."""
    found, missing = {}, set()
    wanted = args.only.split(",") if args.only else MODELS
    for model in wanted:
        for _ in range(args.rounds):
            for side, (command, _, _) in commands.items():
                if (side, model) in ABSENT or side in missing:
                    continue
                if not pathlib.Path(command[0]).exists():
                    print(f"{side} is left out: there is no {command[0]}", file=sys.stderr)
                    missing.add(side)
                    continue
                try:
                    line = run(command, model, args.seconds, args.threads)
                    found.setdefault((model, side), []).append(line)
                except RuntimeError as reason:
                    print(f"{side} is left out of {model}: {reason}", file=sys.stderr)
    return found


def summary(rounds):
    return {
        "first_ms": min(r["first_ms"] for r in rounds),
        "least_ms": min(r["least_ms"] for r in rounds),
        "median_ms": statistics.median(r["median_ms"] for r in rounds),
        "peak_mib": max(r["peak_mib"] for r in rounds),
        "loss": rounds[0]["loss"],
    }


def digits(ms):
    return f"{ms:.0f}" if ms >= 100 else f"{ms:.1f}" if ms >= 10 else f"{ms:.2f}"


def table(found, commands):
    print("| model | side | first step ms | least ms | median ms | peak MiB | lines | |")
    print("|---|---|---|---|---|---|---|---|")
    for (model, side), rounds in found.items():
        of, (_, folder, ending) = summary(rounds), commands[side]
        lines = lines_of(folder / f"{model}{ending}") or "-"
        print(
            f"| {model} | {side} | {of['first_ms']:.0f} | {digits(of['least_ms'])} | {digits(of['median_ms'])} "
            f"| {of['peak_mib']:.0f} | {lines} | {REMARKS.get((side, model), '')} |"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.0, help="of samples, in each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", help="models, such as mlp,cnn")
    parser.add_argument("--python", default=sys.executable, help="one that has JAX")
    parser.add_argument("--adfuse", help="the program `models` of adfuse")
    parser.add_argument("--build", action="store_true", help="build the peers in Rust first")
    parser.add_argument("--json", help="a file for all rounds")
    args = parser.parse_args()
    if args.build:
        build()
    commands = sides(args)
    found = measure(args, commands)
    table(found, commands)
    if args.json:
        rounds = [{"model": m, "side": s, "rounds": r} for (m, s), r in found.items()]
        pathlib.Path(args.json).write_text(json.dumps(rounds, indent=1))


if __name__ == "__main__":
    main()
