"""Makes tests/plan/optimal/instances.jsonl: random cost graphs and what is proven about them.

    pip install ortools==9.15.6755
    python tests/plan/optimal/exact.py > tests/plan/optimal/instances.jsonl

Each line is a graph in the form that `adfuse plan --cost-graph` reads, with `least`, the least peak
that any schedule has, and `optima`, pairs of a budget and the least time of a schedule within it.
Only what the solver proved is written.

The model is Checkmate's (Jain et al., MLSys 2020): stage t ends with the first run of operation t,
and runs any earlier operation at most once before, in the order of the graph; `S[t][i]` says that
the value of i is there when stage t begins, `R[t][i]` that i runs in it. A last stage, in which
nothing runs first, may compute outputs again. Memory is counted as `evaluate` counts it: while an
operation runs, its result, what it reads and whatever is read later are resident; sources always are.
"""

import json
import random
import sys
from multiprocessing import Pool

from ortools.sat.python import cp_model

GRAPHS = 200
SECONDS = 60.0


def graph(rng, forward):
    """A random forward part, and for each of its operations one that takes cotangents back."""
    skewed = rng.random() < 0.4
    chain = rng.random() < 0.4

    def amount(most):
        return max(1, int(most ** rng.random())) if skewed else rng.randint(1, most)

    inputs = [{"name": f"x{i}", "bytes": amount(8)} for i in range(rng.randint(1, 2))]
    ops, size = [], {x["name"]: x["bytes"] for x in inputs}
    for i in range(forward):
        before = [f"f{j}" for j in range(i)]
        if not before or (not chain and rng.random() < 0.15):
            reads = [rng.choice(inputs)["name"]]
        else:
            reads = [before[-1]] if chain or rng.random() < 0.6 else [rng.choice(before)]
        if rng.random() < 0.35:
            reads.append(rng.choice(before + [x["name"] for x in inputs]))
        name = f"f{i}"
        ops.append({"name": name, "time": amount(40), "bytes": amount(30),
                    "inputs": sorted(set(reads)), "phase": 0})
        size[name] = ops[-1]["bytes"]
    readers = {o["name"]: [u["name"] for u in ops if o["name"] in u["inputs"]] for o in ops}
    for i in reversed(range(forward)):
        op = ops[i]
        cotangents = [f"b{u[1:]}" for u in readers[op["name"]]]
        residuals = [v for v in op["inputs"] + [op["name"]] if rng.random() < 0.55]
        grad = {"name": f"b{i}", "time": op["time"] * rng.choice([1, 2, 2]),
                "bytes": max(1, sum(size[v] for v in op["inputs"]) // rng.choice([1, 1, 2, 4])),
                "inputs": sorted(set(cotangents + residuals)), "phase": 1}
        if all(v.startswith("x") for v in op["inputs"]):
            grad["output"] = True
        ops.append(grad)
    if rng.random() < 0.5:
        ops[forward - 1]["output"] = True
    return {"operations": ops, "inputs": inputs}


class Program:
    """The integer program of a graph: least time within a budget, or least peak without one."""

    def __init__(self, g, budget=None):
        m = self.model = cp_model.CpModel()
        ops = g["operations"]
        n = len(ops)
        at = {o["name"]: i for i, o in enumerate(ops)}
        reads = [[at[v] for v in o["inputs"] if v in at] for o in ops]
        users = [[j for j in range(n) if i in reads[j]] for i in range(n)]
        constant = sum(x["bytes"] for x in g["inputs"])
        runs = [range(min(t + 1, n)) for t in range(n + 1)]
        run = [[m.new_bool_var(f"R{t},{i}") for i in runs[t]] for t in range(n + 1)]
        # After the last stage there is a moment at which outputs must be there.
        there = [range(min(t, n)) for t in range(n + 2)]
        kept = [[m.new_bool_var(f"S{t},{i}") for i in there[t]] for t in range(n + 2)]
        for i in range(n):
            m.add(kept[n + 1][i] == (1 if ops[i].get("output") else 0))
            m.add(run[i][i] == 1)
        for t in range(n + 1):
            for i in runs[t]:
                before = [kept[t][i]] if i in there[t] else []
                m.add_at_most_one(run[t][i], *before)
                m.add_bool_or(run[t][i], *before, kept[t + 1][i].negated())
                for j in reads[i]:
                    m.add_bool_or(run[t][j], kept[t][j], run[t][i].negated())
        total = sum(o["bytes"] for o in ops) + constant
        self.peak = m.new_int_var(0, total if budget is None else budget, "peak")
        for t in range(n + 1):
            for k in runs[t]:
                resident = []
                for i in runs[t]:
                    here = m.new_bool_var("")
                    resident.append(ops[i]["bytes"] * here)
                    earlier = [kept[t][i]] if i in there[t] else []
                    if i <= k:
                        earlier.append(run[t][i])
                    later = [kept[t + 1][i]] + [run[t][j] for j in users[i] if k <= j <= t]
                    for a in earlier:
                        for b in later:
                            m.add_bool_or(here, a.negated(), b.negated())
                    if i == k:
                        m.add_implication(run[t][k], here)
                m.add(sum(resident) + constant <= self.peak)
        self.time = sum(ops[i]["time"] * run[t][i] for t in range(n + 1) for i in runs[t])
        m.minimize(self.peak if budget is None else self.time)

    def optimum(self):
        """The proven optimum; none if the time ran out."""
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = 1
        solver.parameters.max_time_in_seconds = SECONDS
        if solver.solve(self.model) != cp_model.OPTIMAL:
            return None
        return int(solver.objective_value + 0.5)


def save_all_peak(g):
    """The peak of running everything once."""
    ops = g["operations"]
    at = {o["name"]: i for i, o in enumerate(ops)}
    last = [len(ops) if o.get("output") else i for i, o in enumerate(ops)]
    for i, o in enumerate(ops):
        for v in o["inputs"]:
            if v in at:
                last[at[v]] = max(last[at[v]], i)
    constant = sum(x["bytes"] for x in g["inputs"])
    return constant + max(
        sum(ops[i]["bytes"] for i in range(k + 1) if last[i] >= k) for k in range(len(ops)))


def instance(seed):
    """The line of a seed, if its graph leaves something to decide."""
    rng = random.Random(seed)
    g = graph(rng, 2 + seed % 11)
    least = Program(g).optimum()
    if least is None:
        return None
    low, high = (5 * least + 3) // 4, save_all_peak(g)
    budgets = sorted({low, low + (high - low) // 4, low + (high - low) // 2})
    optima = []
    for budget in budgets if low < high else []:
        time = Program(g, budget).optimum()
        if time is not None:
            optima.append([budget, time])
    return json.dumps(g | {"least": least, "optima": optima}, separators=(",", ":")) if optima else None


def main():
    found = 0
    with Pool(2) as pool:
        for line in pool.imap(instance, range(10 * GRAPHS)):
            if line is not None and found < GRAPHS:
                print(line, flush=True)
                found += 1
                print(found, file=sys.stderr, flush=True)
            if found == GRAPHS:
                pool.terminate()
                return


if __name__ == "__main__":
    main()
