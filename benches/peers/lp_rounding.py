#!/usr/bin/env python3
"""Checkmate's approximation (Jain et al., MLSys 2020) on cost graphs: a linear program whose solution is rounded.

    remat_table -- --write GRAPHS          # from benches: the networks as cost graphs
    lp_rounding.py GRAPHS/*.json           # with scipy, whose HiGHS solves the linear programs

In stage `t` operation `t` runs for the first time. `R[t][i]` says whether operation `i` runs in stage `t`, `S[t][i]` whether its
value is kept from the stage before, and `F[t][i][k]` whether the value of `i` is freed after `k` runs in stage `t`. The program is
Checkmate's with all three between 0 and 1. Values are kept where the solution keeps more than a threshold of them, and what
is then missing runs again. A schedule counts where it is within the budget by its own liveness: a value is there from a run to the last
read before its next run. Each budget is tried with linear programs for parts of it, with several thresholds and with random rounding;
Checkmate itself takes nine tenths of the budget and a threshold of one half. The best schedule is printed, in percent of running
everything once, beside `relaxed`, the optimum of the linear program for the whole budget, which is a bound for schedules in stages.
"""
import argparse, json, random, sys, time
from pathlib import Path

SHARES = [90, 80, 70, 60, 50, 40, 30, 25, 20, 15]
PARTS = [1.0, 0.95, 0.9, 0.8, 0.7]
THRESHOLDS = [0.5, 0.3, 0.7, 0.1, 0.9]
DRAWS = 20


class Graph:
    """Operations in order, with what is there all the time taken out."""

    def __init__(self, path):
        data = json.loads(Path(path).read_text())
        at, self.stay = {}, 0
        for source in data.get("inputs", []):
            if source.get("donated"):
                sys.exit(f"{path}: donated inputs are not part of this model")
            self.stay += source.get("bytes", 0)
        self.time, self.bytes, self.reads, self.last = [], [], [], []
        for op in data["operations"]:
            if "results" in op or "alias" in op or op.get("keep"):
                sys.exit(f"{path}: operations with several results, views and kept ones are not part of this model")
            at[op["name"]] = len(self.time)
            self.reads.append(sorted({at[i] for i in op.get("inputs", []) if i in at}))
            self.time.append(op["time"])
            self.bytes.append(op.get("bytes", 0))
            self.last.append(bool(op.get("output")))
        self.count = len(self.time)
        self.users = [[] for _ in range(self.count)]
        for k, reads in enumerate(self.reads):
            for i in reads:
                self.users[i].append(k)

    def peak(self, steps):
        """The most bytes at once, and the time, of operations in this order."""
        until, latest = [], {}
        for at, op in enumerate(steps):
            for i in self.reads[op]:
                until[latest[i]] = at
            latest[op] = at
            until.append(at)
        for op, at in latest.items():
            if self.last[op]:
                until[at] = len(steps)
        free = [0] * (len(steps) + 2)
        now = most = self.stay
        for at, op in enumerate(steps):
            now += self.bytes[op]
            most = max(most, now)
            free[until[at]] += self.bytes[op]
            now -= free[at]
        return most, sum(self.time[op] for op in steps)


def relaxation(g):
    """The linear program but for its budget: costs, rows and the rows that the budget bounds, for `linprog`."""
    import numpy as np
    from scipy.sparse import coo_matrix

    n, names = g.count, {}

    def var(*key):
        return names.setdefault(key, len(names))

    for t in range(n):
        for i in range(t + 1):
            var("R", t, i)
            if i < t:
                var("S", t, i)
    rows, columns, values, bounds = [], [], [], []

    def row(terms, most):
        k = len(bounds)
        for coefficient, name in terms:
            rows.append(k)
            columns.append(name)
            values.append(coefficient)
        bounds.append(most)
        return k

    unit = float(max(g.bytes))
    budget_rows = []
    for t in range(n):
        for k in range(t + 1):
            for i in g.reads[k]:
                row([(1, var("R", t, k)), (-1, var("R", t, i))] + ([(-1, var("S", t, i))] if i < t else []), 0)
            if t + 1 < n and k < t + 1:
                kept = [(-1, var("S", t, k))] if k < t else []
                row([(1, var("S", t + 1, k)), (-1, var("R", t, k))] + kept, 0)
        for k in range(t + 1):
            for i in g.reads[k] + [k]:
                if g.bytes[i] == 0:
                    continue
                free = var("F", t, i, k)
                later = [u for u in g.users[i] if k < u <= t]
                hazards = [(1, var("R", t, u)) for u in later]
                if t + 1 < n:
                    hazards.append((1, var("S", t + 1, i)))
                most = len(hazards) + 1
                # 1 - F <= (1 - R) + hazards, and the other way round times their number.
                row([(-1, free), (1, var("R", t, k))] + [(-c, h) for c, h in hazards], 0)
                row([(most, free), (-1, var("R", t, k))] + hazards, most - 1)
                if g.last[i] and t + 1 == n:
                    row([(1, free)], 0)
        # Bytes after each operation of the stage, as a variable: sums of all before would be dense.
        before = None
        for k in range(t + 1):
            use = var("U", t, k)
            terms = [(-1, use), (g.bytes[k] / unit, var("R", t, k))]
            if before is None:
                terms += [(g.bytes[i] / unit, var("S", t, i)) for i in range(t)]
            else:
                terms.append((1, before))
                freed = [i for i in g.reads[k - 1] + [k - 1] if g.bytes[i] > 0]
                terms += [(-g.bytes[i] / unit, var("F", t, i, k - 1)) for i in freed]
            row(terms, 0)
            before = use
    cost = np.zeros(len(names))
    whole = float(sum(g.time))
    for t in range(n):
        for i in range(t + 1):
            cost[names["R", t, i]] = g.time[i] / whole
    matrix = coo_matrix((values, (rows, columns)), shape=(len(bounds), len(names))).tocsr()
    return names, cost, matrix, np.array(bounds, dtype=float), unit


def solved(g, program, budget, limit):
    """The optimum for a budget, and `S` of it; `None` where there is none."""
    from scipy.optimize import linprog

    names, cost, matrix, most, unit = program
    room = (budget - g.stay) / unit
    bounds = []
    for key in names:
        if key[0] == "U":
            bounds.append((None, room))
        elif key[0] == "R" and key[1] == key[2]:
            bounds.append((1, 1))
        else:
            bounds.append((0, 1))
    if room <= 0:
        return None
    found = linprog(cost, A_ub=matrix, b_ub=most, bounds=bounds, method="highs-ipm", options={"time_limit": limit})
    if found.status == 1:
        return "limit"
    if found.status != 0:
        return None
    return found.fun, [[found.x[names["S", t, i]] for i in range(t)] for t in range(g.count)]


def rounded(g, keeps):
    """The steps where these values are kept from stage to stage."""
    n = g.count
    steps, there = [], set()
    for t in range(n):
        wanted = {i for i in keeps[t + 1] if i <= t} if t + 1 < n else {i for i in range(n) if g.last[i]}
        runs = {t} | {i for i in wanted if i not in there}
        for k in range(t, -1, -1):
            if k in runs:
                runs |= {i for i in g.reads[k] if i not in there}
        steps += sorted(runs)
        there = (there | runs) & wanted if t + 1 < n else there | runs
    return steps


def best(g, budget, programs, seed):
    """The time of the fastest schedule within the budget that rounding finds."""
    rng, least = random.Random(seed), None
    for kept in programs:
        choices = [[{i for i, x in enumerate(row) if x > c} for row in kept] for c in THRESHOLDS]
        choices += [[{i for i, x in enumerate(row) if rng.random() < x} for row in kept] for _ in range(DRAWS)]
        for keeps in choices:
            peak, took = g.peak(rounded(g, keeps))
            if peak <= budget and (least is None or took < least):
                least = took
    return least


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", nargs="+")
    parser.add_argument("--most", type=int, default=200, help="operations from which on a graph is left out: variables grow by their square")
    parser.add_argument("--limit", type=float, default=120, help="seconds for a linear program")
    parser.add_argument("--shares", help="parts of the peak in percent, with commas")
    args = parser.parse_args()
    shares = [int(s) for s in args.shares.split(",")] if args.shares else SHARES
    for path in args.graphs:
        g = Graph(path)
        top, once = g.peak(range(g.count))
        if g.count > args.most:
            print(f"\n{Path(path).stem}: {g.count} operations, more than {args.most}: left out")
            continue
        program = relaxation(g)
        print(f"\n{Path(path).stem}: {g.count} operations, {len(program[0])} variables, {top / 2**20:.0f} MiB\n", flush=True)
        print("| |" + "".join(f" {s} % |" for s in shares) + "\n|---|" + "---|" * len(shares))
        begun, found, relaxed, limits = time.time(), [], [], 0
        for share in shares:
            budget = top * share // 100
            programs = []
            for part in PARTS:
                one = solved(g, program, budget * part, args.limit)
                if one == "limit":
                    limits += 1
                elif one is not None:
                    programs.append(one[1])
                if part == 1.0:
                    relaxed.append(one[0] if isinstance(one, tuple) else None)
            found.append(best(g, budget, programs, share))
        cell = lambda x: " - |" if x is None else f" {(x - 1) * 100:.1f} |"
        print("| LP rounding |" + "".join(cell(None if x is None else x / once) for x in found))
        print("| relaxed |" + "".join(cell(x) for x in relaxed))
        print(f"\n{time.time() - begun:.0f} s" + (f", {limits} linear programs not solved in {args.limit:.0f} s" if limits else ""), flush=True)


if __name__ == "__main__":
    main()
