"""Runs JAX functions, and their gradients, with adfuse.

    import adfuse
    loss_and_gradient = adfuse.value_and_grad(loss, mem_budget="2GB")
    value, gradient = loss_and_gradient(params, batch)

JAX traces the function; the program `adfuse` imports it, differentiates it, plans it and runs it. That program is the
one that the environment variable ADFUSE names, or the one on PATH. Docs: docs/import.md, "From Python"."""

import atexit
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["Error", "grad", "jit", "value_and_grad"]

# Element types that the program keeps in another one (docs/import.md), and bfloat16, which files of NumPy lack.
STORED = {"bfloat16": "float32", "int2": "int8", "int4": "int8", "int16": "int32", "uint2": "uint8", "uint4": "uint8",
          "uint16": "uint32", "uint64": "int64"}


class Error(RuntimeError):
    """What the program `adfuse` says is wrong."""


def value_and_grad(f, argnums=0, *, mem_budget=None, engine=None, fp=None):
    """A function that gives what `f` gives, a float scalar, and its gradient as `jax.value_and_grad` does.

    `argnums` is the position, or the positions, to differentiate with respect to. `mem_budget` is the most memory that
    all arrays together may take, such as "2GB": what does not fit is computed again. `engine` is "cpu" or "gpu". `fp`
    is "strict", "reproducible" or "fast"."""
    options = {"mem-budget": mem_budget, "engine": engine, "fp": fp}
    return _Program(f, (argnums,) if isinstance(argnums, int) else tuple(argnums), isinstance(argnums, int), options)


def grad(f, argnums=0, **options):
    """The gradient alone; options are those of `value_and_grad`."""
    both = value_and_grad(f, argnums, **options)
    return lambda *args: both(*args)[1]


def jit(f, *, mem_budget=None, engine=None, fp=None):
    """A function that gives what `f` gives; options are those of `value_and_grad`."""
    return _Program(f, (), False, {"mem-budget": mem_budget, "engine": engine, "fp": fp})


class _Program:
    """A function, and a running `adfuse` for each structure, shape and type of arguments that it was called with."""

    def __init__(self, f, argnums, single, options):
        self.f, self.argnums, self.single = f, argnums, single
        self.options = [f"--{name}={value}" for name, value in options.items() if value is not None]
        self.servers = {}

    def __call__(self, *args):
        args, server = self._server(args)
        results = server.call(jax.tree.leaves(args))
        count = server.tree.num_leaves
        value = jax.tree.unflatten(server.tree, [_typed(r, t) for r, t in zip(results, server.types)])
        if not self.argnums:
            return value
        wrt = tuple(args[k] for k in self.argnums)
        flat, structure = jax.tree.flatten(wrt)
        gradients = jax.tree.unflatten(structure, [_typed(r, x) for r, x in zip(results[count:], flat)])
        return value, gradients[0] if self.single else gradients

    def peak(self, *args):
        """The bytes that the plan for these arguments takes at its peak: inputs, results and all between."""
        return self._server(args)[1].plan()["peak_bytes"]

    def report(self, path, *args):
        """Writes a page about the plan for these arguments: memory over time, the kernels with lines of Python, and what
        other plans would cost. Nothing runs."""
        args = jax.tree.map(jnp.asarray, args)
        traced = self._trace(args)
        with tempfile.TemporaryDirectory(prefix="adfuse-") as folder:
            file = Path(folder) / f"{getattr(self.f, '__name__', 'f').strip('<>')}.mlir"
            file.write_text(traced.lower().as_text(debug_info=True))
            given = list(self.options)
            if self.argnums:
                self._check(args, jax.tree.leaves(traced.out_info))
                # Parameters have the names of the arguments' trees.
                header = _printed([_program(), "import", file]).split(") -> ", 1)[0]
                names = re.findall(r"%([^\s:]+): ", header)
                given += ["--grad", "--wrt=" + ",".join(names[n] for n in self._wrt(args))]
            _printed([_program(), "report", file, *given, "-o", Path(path).absolute()])

    def _server(self, args):
        """The arguments as arrays, and the program for their structure, shapes and types."""
        args = jax.tree.map(jnp.asarray, args)
        leaves, tree = jax.tree.flatten(args)
        key = tree, tuple((leaf.shape, leaf.dtype) for leaf in leaves)
        if key not in self.servers or not self.servers[key].is_alive():
            self.servers[key] = self._start(args)
        return args, self.servers[key]

    def _start(self, args):
        """Traces the function at these arguments and starts the program."""
        traced = self._trace(args)
        types, tree = jax.tree.flatten(traced.out_info)
        given = list(self.options)
        if self.argnums:
            self._check(args, types)
            given += ["--grad", "--wrt=" + ",".join(f"arg{n}" for n in self._wrt(args))]
        return _Server(traced.lower().as_text(), given, types, tree)

    def _trace(self, args):
        return jax.jit(self.f, keep_unused=True).trace(*args)

    def _wrt(self, args):
        """The positions of the parameters to differentiate with respect to: the leaves of an argument are side by side."""
        ends = np.cumsum([len(jax.tree.leaves(arg)) for arg in args])
        return [n for k in self.argnums for n in range(ends[k] - len(jax.tree.leaves(args[k])), ends[k])]

    def _check(self, args, types):
        if len(types) != 1 or types[0].shape != () or not jnp.issubdtype(types[0].dtype, jnp.floating):
            raise TypeError(f"the function to differentiate gives {types}, not one float scalar")
        for leaf in jax.tree.leaves([args[k] for k in self.argnums]):
            if not jnp.issubdtype(leaf.dtype, jnp.floating):
                raise TypeError(f"there is no gradient with respect to elements of type {leaf.dtype}")


class _Server:
    """A process that has imported, planned and compiled one function, and runs it at each request."""

    def __init__(self, text, options, types, tree):
        self.types, self.tree = types, tree
        self.folder = tempfile.TemporaryDirectory(prefix="adfuse-")
        self.at = Path(self.folder.name)
        (self.at / "f.mlir").write_text(text)
        self.program = _program()
        self.given = [self.at / "f.mlir", *options]
        self.errors = open(self.at / "stderr", "w+")
        command, pipe = [self.program, "run", "--serve", *self.given], subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=self.errors, text=True)
        atexit.register(self.close)

    def is_alive(self):
        return self.process.poll() is None

    def call(self, leaves):
        """The results, then the gradients."""
        given, made = self.at / "in.npz", self.at / "out.npz"
        np.savez(given, **{f"arg{k}": _stored(leaf) for k, leaf in enumerate(leaves)})
        try:
            self.process.stdin.write(f"{given}\t{made}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # It has ended, and says why.
        reply = self.process.stdout.readline().strip()
        if reply == "ok":
            with np.load(made) as arrays:
                return [arrays[name] for name in arrays.files]
        if reply.startswith("error "):
            raise Error(json.loads(reply.removeprefix("error ")).strip())
        self.process.wait()
        self.errors.seek(0)
        raise Error(self.errors.read().strip() or f"adfuse ended with status {self.process.returncode}")

    def plan(self):
        """What `adfuse plan` tells."""
        return json.loads(_printed([self.program, "plan", *self.given]))

    def close(self):
        """Ends the process, which ends with its input."""
        if self.is_alive():
            self.process.stdin.close()
            self.process.wait()
        self.errors.close()
        self.folder.cleanup()


def _program():
    """The program `adfuse`."""
    found = os.environ.get("ADFUSE") or shutil.which("adfuse")
    if found is None:
        raise Error("the program `adfuse` is not on PATH, and ADFUSE does not name it")
    return found


def _printed(command):
    """What a command of the program prints, as JSON where there are data."""
    ran = subprocess.run([*command, "--json"], capture_output=True, text=True)
    if ran.returncode != 0:
        raise Error(_messages(ran.stderr))
    return ran.stdout


def _messages(text):
    """The errors of a command that prints JSON, a line each. Notes may stand before them."""
    try:
        errors = json.loads(text[text.index("{\n"):])["errors"]
    except ValueError:
        return text.strip()
    hints = [f" ({e['hint']})" if e["hint"] else "" for e in errors]
    return "\n".join(e["message"] + hint for e, hint in zip(errors, hints))


def _stored(leaf):
    """An array as the program takes it."""
    array = np.asarray(leaf)
    stored = STORED.get(array.dtype.name, array.dtype.name)
    # 64 bits without sign keep their bits.
    return array.view(stored) if array.dtype.name == "uint64" else array.astype(stored)


def _typed(array, like):
    """An array of the program as JAX has it."""
    return jnp.asarray(array.view("uint64") if like.dtype == "uint64" else array.astype(like.dtype))
