"""adfuse beside JAX and PyTorch on this machine's CPU: `python benches/peers/cpu_peers.py --adfuse target/release/adfuse`.

Every side computes a loss and its gradients at the same random inputs, in a process of its own, with the same threads on
the same cores. Sides take turns, and each round begins with another one, so that what else the machine does meets
all of them. The table goes to standard output, what is going on to standard error.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

try:
    import numpy as np
except ImportError:
    sys.exit("numpy is not installed (see benches/peers/README.md)")
from sides import limit, missing
from workloads import SIZES, WORKLOADS

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE.parent / "programs"
PEERS = ("jax", "torch eager", "torch compile")


def note(text):
    print(text, file=sys.stderr, flush=True)


class Failed(Exception):
    """A side that could not do what it was asked."""


class Peer:
    """A peer's process for one workload at one size."""

    def __init__(self, side, workload, elements, options):
        self.side = side
        self.errors = tempfile.TemporaryFile()
        command = [sys.executable, HERE / "sides.py", side, workload.program]
        command += [str(elements), str(options.threads), str(options.seed)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True, cwd=HERE
        )

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.errors.seek(0)
            last = self.errors.read().decode(errors="replace").strip().splitlines()[-1:]
            raise Failed(f"{self.side}: {' '.join(last) or 'ended without a word'}")
        return json.loads(line)

    def ask(self, **what):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(what) + "\n")
            self.process.stdin.flush()
        return self.answer()

    def sample(self, seconds):
        answer = self.ask(seconds=seconds)
        return statistics.median(answer["ms"]), answer["peak_mb"]

    def close(self):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.errors.close()


class Adfuse:
    """adfuse, a process for each round: a step needs no warming beyond what `bench` does."""

    side = "adfuse"

    def __init__(self, workload, elements, options):
        self.workload, self.options = workload, options
        self.program = PROGRAMS / f"{workload.program}.ir"
        derivative = [] if workload.updates else ["--grad", "--wrt", ",".join(workload.wrt)]
        self.common = [self.program, *derivative, "--threads", str(options.threads), "--fp", options.fp]
        self.dim = [] if elements is None else ["--dim", f"n={workload.extent(elements)}"]
        self.report, self.speeds = {}, []
        self.folder = tempfile.TemporaryDirectory()
        self.inputs = Path(self.folder.name, "inputs.npz")
        np.savez(self.inputs, **workload.inputs(elements or 0, options.seed))

    def run(self, *arguments):
        """Standard output, and the most memory that the process held, which is looked at while it runs."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
            command = [self.options.adfuse, *arguments]
            process = subprocess.Popen(
                command, stdout=out, stderr=errors, preexec_fn=lambda: limit(self.options.threads)
            )
            peak = 0.0
            while process.poll() is None:
                peak = max(peak, held_mb(process.pid))
                time.sleep(0.005)
            out.seek(0)
            errors.seek(0)
            if process.returncode != 0:
                raise Failed(f"adfuse: {errors.read().decode(errors='replace').strip()}")
            return out.read().decode(), peak

    def sample(self, seconds):
        at = [*self.dim, *self.given(self.inputs)]
        text, peak = self.run("bench", *self.common, *at, "--json", "--min-seconds", str(seconds))
        self.report = json.loads(text)
        self.speeds.append((self.report["gbs"], self.report["copy_gbs"]))
        return self.report["median_ms"], peak

    def given(self, archive):
        """Options that give every input as an archive has it."""
        names = self.workload.shapes(SIZES["4K"])
        return [part for name in names for part in ("--input", f"{name}={archive}")]

    def check(self, out):
        self.run("run", *self.common, "--engine", "cpu", *self.given(self.inputs), "--save", out)

    def close(self):
        self.folder.cleanup()


def held_mb(pid):
    try:
        with open(f"/proc/{pid}/status") as status:
            held = [line for line in status if line.startswith("VmHWM")]
        return int(held[0].split()[1]) / 1024 if held else 0.0
    except (FileNotFoundError, ProcessLookupError):
        return 0.0


def sides_of(workload, elements, options):
    """The sides that run here, each ready; what cannot run is noted and left out."""
    ready = [Adfuse(workload, elements, options)]
    for side in options.peers:
        peer = Peer(side, workload, elements or 0, options)
        try:
            said = peer.answer()
            options.versions[side] = said["version"]
            note(f"  {side} {said['version']}: loaded in {said['load_ms']:.0f} ms, first call {said['first_ms']:.0f} ms")
            ready.append(peer)
        except Failed as failed:
            note(f"  {failed}")
            peer.close()
    return ready


def measured(workload, size, options):
    """A row: the medians of the rounds by side, what they lie between, and memory."""
    ready = sides_of(workload, SIZES.get(size), options)
    rounds = {s.side: [] for s in ready}
    peaks = dict.fromkeys(rounds, 0.0)
    try:
        for k in range(options.rounds):
            for s in ready[k % len(ready) :] + ready[: k % len(ready)]:
                ms, peak = s.sample(options.seconds)
                rounds[s.side].append(ms)
                peaks[s.side] = max(peaks[s.side], peak)
    finally:
        for s in ready:
            s.close()
    row = {"workload": workload.name, "program": workload.program, "size": size, "threads": options.threads}
    wanted = workload.wanted[size]
    row["wanted"] = wanted[options.threads > 1] if isinstance(wanted, tuple) else wanted
    row["sides"] = {
        side: {"ms": statistics.median(all_ms), "least_ms": min(all_ms), "most_ms": max(all_ms), "peak_mb": peaks[side]}
        for side, all_ms in rounds.items()
    }
    row["sides"]["adfuse"]["engine_peak_mb"] = ready[0].report["peak_bytes"] / 2**20
    row["sides"]["adfuse"]["launches"] = ready[0].report["launches"]
    gbs, copy = (statistics.median(each) for each in zip(*ready[0].speeds))
    row["sides"]["adfuse"].update(gbs=gbs, copy_gbs=copy)
    best = min((v["ms"] for side, v in row["sides"].items() if side != "adfuse"), default=None)
    row["ratio"] = None if best is None else best / row["sides"]["adfuse"]["ms"]
    return row


def distance(a, b):
    """How far apart two results are, against the norm of the second."""
    a, b = (np.asarray(x, dtype=np.float64) for x in (a, b))
    if a.shape != b.shape or not np.all(np.isfinite(a)):
        return float("inf")
    return float(np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-30))


def checked(workload, size, options):
    """Whether every side gives the results of adfuse at the same inputs."""
    elements = SIZES.get(size)
    ready = sides_of(workload, elements, options)
    agree = len(ready) > 1
    if not agree:
        print(f"{workload.name} {size or ''}: nothing to compare with")
    with tempfile.TemporaryDirectory() as folder:
        own = Path(folder, "adfuse.npz")
        given = workload.inputs(elements or 0, options.seed)
        try:
            ready[0].check(own)
            with np.load(own) as results:
                mine = [results[name] for name in results.files]
            for peer in ready[1:]:
                out = Path(folder, "peer.npz")
                peer.ask(check=str(ready[0].inputs), out=str(out))
                with np.load(out) as results:
                    theirs = [results[name] for name in results.files]
                pairs = list(zip(mine, theirs, strict=True))
                if workload.updates:
                    # What is compared is how far parameters went, not where they were.
                    old = [given[name] for name in workload.wrt]
                    pairs[1:] = [(a - o, b - o) for (a, b), o in zip(pairs[1:], old, strict=True)]
                far = [distance(a, b) for a, b in pairs]
                fits = max(far) <= workload.tolerance
                agree &= fits
                word = "agrees with" if fits else "DIFFERS from"
                names = " ".join(f"{n} {d:.1e}" for n, d in zip(("value", *workload.wrt), far))
                print(f"{workload.name} {size or ''}: adfuse {word} {peer.side} within {workload.tolerance:g}: {names}")
        finally:
            for s in ready:
                s.close()
    return agree


SIDES = ("adfuse", *PEERS)
HEAD = ["workload", "size", "threads", *[f"{s} ms" for s in SIDES], "best peer / adfuse", "wanted", "GB/s of copy's", "peak MB"]


def line(cells):
    """A line of a table in Markdown."""
    return "| " + " | ".join(cells) + " |"


def cells(row):
    """What the table has of a row."""
    found = [row["sides"].get(side) for side in SIDES]
    times = [f"{ms(v['ms'])} ({ms(v['least_ms'])}-{ms(v['most_ms'])})" if v else "-" for v in found]
    ratio = "-" if row["ratio"] is None else f"{row['ratio']:.2f}"
    own = row["sides"]["adfuse"]
    speed = f"{ms(own['gbs'])} of {ms(own['copy_gbs'])}"
    memory = " / ".join(f"{v['peak_mb']:.0f}" if v else "-" for v in found)
    return [row["workload"], row["size"] or "", str(row["threads"]), *times, ratio, f"{row['wanted']:g}", speed, memory]


def summary(rows, options):
    """What the table says altogether."""
    met = sum(r["ratio"] is not None and r["ratio"] >= r["wanted"] for r in rows)
    known = ", ".join(f"{side} {version}" for side, version in options.versions.items()) or "no peers"
    return f"{met} of {len(rows)} as fast as wanted; {known}; medians of {options.rounds} rounds (least-most)."


def ms(x):
    return f"{x:.3g}" if x < 100 else f"{x:.0f}"


def written_whole(path, text):
    """Writes a file, or leaves what was there."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(text)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def options_of(arguments):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--adfuse", type=Path, required=True, help="the program that is measured, a release build")
    p.add_argument("--threads", type=int, default=1, help="threads of every side (1)")
    p.add_argument("--fp", default="reproducible", choices=("strict", "reproducible", "fast"), help="adfuse's mode")
    p.add_argument("--only", default="", help="programs, such as gelu_loss,mlp_step")
    p.add_argument("--sizes", default="", help=f"sizes, of {', '.join(SIZES)}")
    p.add_argument("--peers", default=",".join(PEERS), help="peers, of " + ", ".join(PEERS))
    p.add_argument("--rounds", type=int, default=5, help="turns of each side (5)")
    p.add_argument("--seconds", type=float, default=0.3, help="how long a turn takes samples (.3)")
    p.add_argument("--seed", type=int, default=0, help="of the inputs")
    p.add_argument("--check", action="store_true", help="compare values and gradients in place of times, at the least size")
    p.add_argument("--json", type=Path, help="also write what was measured to this file")
    o = p.parse_args(arguments)
    cores = len(os.sched_getaffinity(0))
    if not 1 <= o.threads <= cores:
        p.error(f"--threads takes 1 to {cores} here")
    if o.rounds < 1 or not 0 <= o.seconds <= 3600:
        p.error("--rounds takes 1 or more, --seconds 0 to 3600")
    if not o.adfuse.is_file():
        p.error(f"no program `{o.adfuse}`: cargo build --release")
    if o.check and o.json:
        p.error("--json is for times")
    if o.json and not o.json.resolve().parent.is_dir():
        p.error(f"no folder `{o.json.parent}`")

    def chosen(text, known, what):
        names = [name for name in text.split(",") if name]
        for name in names:
            if name not in known:
                p.error(f"no {what} `{name}`: there are {', '.join(known)}")
        return names or list(known)

    o.adfuse = o.adfuse.resolve()
    o.only = chosen(o.only, [w.program for w in WORKLOADS], "program")
    o.sizes = chosen(o.sizes, list(SIZES), "size")
    o.peers = chosen(o.peers, PEERS, "peer")
    o.versions = {}
    for side in list(o.peers):
        why = missing(side)
        if why:
            note(f"without {side}: {why} (see benches/peers/README.md)")
            o.peers.remove(side)
    return o


def main(arguments):
    options = options_of(arguments)
    rows, agree, tried = [], True, 0
    if not options.check:
        print(line(HEAD) + "\n" + line(["---"] * len(HEAD)), flush=True)
    for workload in WORKLOADS:
        sizes = [s for s in workload.sizes if s is None or s in options.sizes]
        for size in sizes[:1] if options.check else sizes:
            if workload.program not in options.only:
                continue
            tried += 1
            note(f"{workload.name} {size or ''}")
            try:
                if options.check:
                    agree &= checked(workload, size, options)
                else:
                    rows.append(measured(workload, size, options))
                    print(line(cells(rows[-1])), flush=True)
            except Failed as failed:
                # One workload that a side cannot do is no reason to lose the others.
                note(f"  {failed}")
                agree = False
    if not options.check:
        print("\n" + summary(rows, options))
        if options.json:
            text = json.dumps({"versions": options.versions, "rows": rows}, indent=1)
            written_whole(options.json, text + "\n")
    if tried == 0:
        note("none of these programs has one of these sizes")
    return 0 if agree and tried > 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
