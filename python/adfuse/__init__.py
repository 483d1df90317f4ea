"""Runs JAX functions, and their gradients, with adfuse: `adfuse.value_and_grad(loss, mem_budget="2GB")(params, batch)`.

JAX traces the function; the program `adfuse`, which the variable ADFUSE names or which is on PATH, imports it,
differentiates it, plans it and runs it. Docs: docs/import.md, "From Python"."""

import atexit, contextlib, functools, inspect, json, operator, os, re, shutil, subprocess, tempfile, warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from ._stop_gradient import marked

__all__ = ["Error", "grad", "jit", "value_and_grad"]

# Element types that the program keeps in another one (docs/import.md), and bfloat16, which files of NumPy lack.
STORED = {"bfloat16": "float32", "int2": "int8", "int4": "int8", "int16": "int32", "uint2": "uint8", "uint4": "uint8",
          "uint16": "uint32", "uint64": "int64"}


class Error(RuntimeError):
    """What the program `adfuse` says is wrong."""


def value_and_grad(f, argnums=0, *, has_aux=False, mem_budget=None, engine=None, fp=None):
    """A function that gives what `f` gives, a float scalar, and its gradient as `jax.value_and_grad` does.

    `argnums` is the position, or the positions, to differentiate with respect to; a keyword counts as a position where
    it can. With `has_aux`, `f` gives a pair of the scalar and anything else. `mem_budget` is the most memory that all
    arrays together may take, such as "2GB": what does not fit is computed again. `engine` is "cpu" or "gpu". `fp` is
    "strict", "reproducible" or "fast"."""
    return _Program(f, argnums, has_aux, {"mem-budget": mem_budget, "engine": engine, "fp": fp})


def grad(f, argnums=0, *, has_aux=False, **options):
    """The gradient alone, or a pair of it and what is beside the scalar; options are those of `value_and_grad`."""
    both = value_and_grad(f, argnums, has_aux=has_aux, **options)
    of = lambda value, gradient: (gradient, value[1]) if has_aux else gradient
    return lambda *args, **named: of(*both(*args, **named))


def jit(f, *, mem_budget=None, engine=None, fp=None):
    """A function that gives what `f` gives; options are those of `value_and_grad`."""
    return _Program(f, None, False, {"mem-budget": mem_budget, "engine": engine, "fp": fp})


class _Program:
    """A function, and a running `adfuse` for each structure, shape and type of arguments that it was called with."""

    def __init__(self, f, argnums, has_aux, options):
        self.f, self.argnums, self.has_aux = f, argnums, has_aux
        several = argnums if isinstance(argnums, (tuple, list)) else () if argnums is None else (argnums,)
        self.positions = [operator.index(k) for k in several]
        self.options = [f"--{name}={value}" for name, value in options.items() if value is not None]
        self.servers = {}

    def __call__(self, /, *args, **named):
        given, server = self._server(args, named)
        made = _joined(server.call(_parts(jax.tree.leaves(given))), server.types)
        # JAX's gradient of a complex number is the conjugate of that of its parts.
        return jax.tree.unflatten(server.tree, [jnp.conj(x) if k >= server.count else x for k, x in enumerate(made)])

    def peak(self, /, *args, **named):
        """The bytes that the plan for these arguments takes at its peak: inputs, results and all between."""
        return self._server(args, named)[1].plan()["peak_bytes"]

    def _arrays(self, args, named):
        """The arguments as arrays: those by position, with keywords that stand for positions, and those by name."""
        if named:
            bound = inspect.signature(self.f).bind(*args, **named)
            args, named = bound.args, bound.kwargs
        for k in self.positions:
            if not -len(args) <= k < len(args):
                raise ValueError(f"argnums has {k}, which is the position of no argument: there are {len(args)}")
        return _known(jax.tree.map(jnp.asarray, (args, named)))

    def _server(self, args, named):
        """The arguments as arrays, and the program for their structure, shapes and types."""
        given = self._arrays(args, named)
        leaves, tree = jax.tree.flatten(given)
        key = tree, tuple((leaf.shape, leaf.dtype) for leaf in leaves)
        if key not in self.servers or self.servers[key].process.poll() is not None:
            self.servers[key] = self._start(given)
        return given, self.servers[key]

    def report(self, path, /, *args, **named):
        """Writes a page about the plan for these arguments: memory over time, the kernels with lines of Python, and what
        other plans would cost. Nothing runs."""
        lowered, wrt, *_ = self._lowered(self._arrays(args, named))
        with tempfile.TemporaryDirectory(prefix="adfuse-") as folder:
            file = Path(folder) / f"{getattr(self.f, '__name__', 'f').strip('<>')}.mlir"
            file.write_text(lowered.as_text(debug_info=True))
            # Parameters have the names of the arguments' trees.
            text = json.loads(_run(_program(), "import", file))["text"]
            names = re.findall(r"%([^\s:]+): ", text.split(") -> ", 1)[0])
            _run(_program(), "report", file, *self._given(names, wrt), "--page", Path(path).absolute())

    def _given(self, names, wrt):
        return self.options + (["--grad", "--wrt=" + ",".join(names[n] for n in wrt)] if wrt else [])

    def _start(self, given):
        """Traces the function at these arguments and starts the program."""
        lowered, wrt, *results = self._lowered(given)
        names = [f"arg{n}" for n in range(2 * len(jax.tree.leaves(given)))]
        return _Server(lowered.as_text(), self._given(names, wrt), *results)

    def _lowered(self, given):
        """The function in StableHLO, the positions of the parameters by which adfuse differentiates, the types of the results,
        their tree, and how many of them are gradients."""
        leaves, structure = jax.tree.flatten(given)
        (args, named), wrt, gradients, own = given, [], 0, []
        program, shapes = jax.make_jaxpr(self.f, return_shape=True)(*args, **named)
        _known(program.consts)
        f = core.jaxpr_as_fun(program.replace(jaxpr=marked(program.jaxpr, own)))
        if self.argnums is not None:
            of, by = shapes[0] if self.has_aux else shapes, [args[k] for k in self.positions]
            inexact = all(jnp.issubdtype(leaf.dtype, jnp.inexact) for leaf in jax.tree.leaves(by))
            if getattr(of, "shape", 0) != () or not jnp.issubdtype(of.dtype, jnp.floating) or not inexact:
                raise TypeError("gradients are those of one float scalar, with respect to floats and complex numbers")
            shapes = shapes, by[0] if isinstance(self.argnums, int) else tuple(by)
            if own:
                warnings.warn(f"JAX differentiates, since StableHLO has no place for the derivative of {own[0]}")
                both = jax.value_and_grad(self.f, self.argnums, self.has_aux)
                call = lambda args, named: both(*args, **named)
                f = lambda *leaves: jax.tree.leaves(call(*jax.tree.unflatten(structure, leaves)))
            else:
                numbers, gradients = iter(range(2 * len(leaves))), len(jax.tree.leaves(by))
                each, _ = jax.tree.unflatten(structure, [[next(numbers) for _ in _parts([leaf])] for leaf in leaves])
                wrt = jax.tree.leaves([each[k] for k in self.positions])

        @functools.wraps(self.f)  # Parameters have the names of its arguments.
        def adfuse_program(*args, **named):
            made = _parts(f(*_joined(jax.tree.leaves((args, named)), leaves)))
            # Of what is beside the scalar bits alone are handed on.
            bits = lambda r: jax.lax.bitcast_convert_type(r, f"u{r.dtype.itemsize}")
            beside = lambda k, r: gradients and k > 0 and jnp.issubdtype(r.dtype, jnp.floating)
            return [bits(r) if beside(k, r) else r for k, r in enumerate(made)]

        def parameters(leaf):
            own = _parts([leaf])
            return own[0] if len(own) == 1 else own

        args, named = jax.tree.map(parameters, given)
        lowered = jax.jit(adfuse_program, keep_unused=True).lower(*args, **named)
        return lowered, wrt, *jax.tree.flatten(shapes), gradients


class _Server:
    """A process that has imported, planned and compiled one function, and runs it at each request."""

    def __init__(self, text, options, types, tree, gradients):
        program, self.types, self.tree, self.count = _program(), types, tree, len(types) - gradients
        self.folder = tempfile.TemporaryDirectory(prefix="adfuse-")
        self.at = Path(self.folder.name)
        (self.at / "f.mlir").write_text(text)
        self.given, self.errors = [self.at / "f.mlir", *options], open(self.at / "stderr", "w+")
        command, pipe = [program, "run", "--serve", *self.given], subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=self.errors, text=True)
        atexit.register(self.close)

    def call(self, parts):
        """The results, then the gradients."""
        given, made = self.at / "in.npz", self.at / "out.npz"
        np.savez(given, **{f"arg{k}": _stored(part) for k, part in enumerate(parts)})
        with contextlib.suppress(BrokenPipeError):  # It has ended, and says why.
            self.process.stdin.write(f"{given}\t{made}\n")
            self.process.stdin.flush()
        reply = self.process.stdout.readline().strip()
        if reply == "ok":
            with np.load(made) as arrays:
                return [arrays[name] for name in arrays.files]
        if reply.startswith("error "):
            raise _error(json.loads(reply.removeprefix("error ")))
        self.process.wait()
        self.errors.seek(0)
        raise _error(self.errors.read() or f"adfuse ended with status {self.process.returncode}")

    def plan(self):
        return json.loads(_run(_program(), "plan", *self.given))

    def close(self):
        self.process.communicate()  # It ends with its input.
        self.errors.close()
        self.folder.cleanup()


def _program():
    named = os.environ.get("ADFUSE")
    found = shutil.which(named or "adfuse")
    if found is None:
        absent = "`adfuse` is not on PATH, and ADFUSE does not name it"
        why = f"`{named}`, which ADFUSE names, cannot be run" if named else absent
        raise Error(f"the program {why}: `cargo install --path cli` makes it")
    return found


def _run(*command):
    """What a command prints, as JSON."""
    ran = subprocess.run([*command, "--json"], capture_output=True, text=True)
    if ran.returncode == 0:
        return ran.stdout
    with contextlib.suppress(ValueError, KeyError):  # A command that crashed says no JSON.
        errors = json.loads(ran.stderr)["errors"]
        raise _error("\n".join(e["message"] + (f" ({e['hint']})" if e["hint"] else "") for e in errors))
    raise _error(ran.stderr)


def _error(says):
    """The error of what the program says, without what is of use at a command line alone."""
    says = says.strip().removesuffix("For more information, try '--help'.").strip()
    if re.search(r"python_\w*callback", says):
        says = f"a callback of Python, as `jax.debug.print` makes, cannot be a part of the program\n{says}"
    return Error(says)


def _known(given):
    """The same, unless JAX is tracing and values in it are not known."""
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(given)):
        outside = "they cannot be called inside of `jax.jit`, `jax.vmap` or `jax.grad`"
        raise TypeError(f"adfuse's functions need known values: {outside}")
    return given


def _parts(leaves):
    """The leaves, with two in place of each that is complex, its real and its imaginary part, and the data of keys."""
    of = lambda x: (jax.random.key_data(x),) if _is_key(x) else (x.real, x.imag) if jnp.iscomplexobj(x) else (x,)
    return [part for x in leaves for part in of(x)]


def _is_key(leaf):
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _joined(parts, types):
    """The leaves of these types that have these parts."""
    rest = iter(parts)
    part = lambda t: _typed(next(rest), np.empty(0, f"f{t.dtype.itemsize // 2}"))
    key = lambda t: jax.random.wrap_key_data(_typed(next(rest), np.empty(0, "u4")), impl=t.dtype._impl)
    of = lambda t: key(t) if _is_key(t) else jax.lax.complex(part(t), part(t)) if t.dtype.kind == "c" else _typed(next(rest), t)
    return [of(t) for t in types]


def _stored(leaf):
    """An array as the program takes it. Integers of 64 bits without sign keep their bits."""
    stored = STORED.get(leaf.dtype.name, leaf.dtype.name)
    return np.asarray(leaf).view(stored) if leaf.dtype.name == "uint64" else np.asarray(leaf).astype(stored)


def _typed(array, like):
    """An array of the program as JAX has it."""
    if array.dtype.kind == "u" and jnp.issubdtype(like.dtype, jnp.floating):
        return jnp.asarray(array.astype(f"u{like.dtype.itemsize}").view(like.dtype))
    return jnp.asarray(array.view("uint64") if like.dtype == "uint64" else array.astype(like.dtype))
