"""Times the tool of GradBench at the sizes that it is held to: `python benches/gradbench/measure.py TOOL`.

TOOL is `target/release/examples/gradbench`, or another program that speaks the protocol. Prints a Markdown table.
"""

import argparse
import json
import random
import statistics
import subprocess

# What was asked for before anything was measured: one core, f64.
TARGETS = {
    "lse gradient, 1.28 M": 5,
    "llsq gradient, n = 16392, m = 128": 3,
    "gmm jacobian, d = 64, k = 100, n = 1000": 230,
    "kmeans dir, k = 1000, n = 10000, d = 16": 60,
}


def inputs():
    """Module, function and input for each target, in its order."""
    rng = random.Random(0)

    def normal(*extents):
        if not extents:
            return rng.gauss(0, 1)
        return [normal(*extents[1:]) for _ in range(extents[0])]

    yield "lse", "gradient", {"x": normal(1280000)}
    yield "llsq", "gradient", {"x": normal(128), "n": 16392}
    d, k, n = 64, 100, 1000
    mixture = {"d": d, "k": k, "n": n, "gamma": 1.0, "m": 0, "alpha": normal(k), "mu": normal(k, d)}
    mixture |= {"q": normal(k, d), "l": normal(k, d * (d - 1) // 2), "x": normal(n, d)}
    yield "gmm", "jacobian", mixture
    points = normal(10000, 16)
    # Each centroid has a point that is at hand.
    centroids = [[x + 1e-3 * normal() for x in p] for p in points[:1000]]
    yield "kmeans", "dir", {"points": points, "centroids": centroids}


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("tool")
    p.add_argument("--seconds", type=float, default=2.0, help="how long each function runs (2)")
    options = p.parse_args()
    if options.seconds < 0:
        p.error("--seconds takes 0 or more")
    print("| function | ms, median (least-most) | runs | compile ms | target |\n|---|---|---|---|---|")
    with subprocess.Popen([options.tool], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as tool:
        for (name, target), (module, function, given) in zip(TARGETS.items(), inputs(), strict=True):
            given |= {"min_runs": 5, "min_seconds": options.seconds}
            message = {"id": 0, "kind": "evaluate", "module": module, "function": function, "input": given}
            tool.stdin.write(json.dumps(message) + "\n")
            tool.stdin.flush()
            answer = json.loads(tool.stdout.readline())
            if not answer["success"]:
                raise SystemExit(f"{name}: {answer['error']}")
            took = {"evaluate": [], "compile": []}
            for timing in answer["timings"]:
                took[timing["name"]].append(timing["nanoseconds"] / 1e6)
            runs, compiled = took["evaluate"], took["compile"][0]
            middle = f"{statistics.median(runs):.3g} ({min(runs):.3g}-{max(runs):.3g})"
            print(f"| {name} | {middle} | {len(runs)} | {compiled:.0f} | {target} |")


if __name__ == "__main__":
    main()
