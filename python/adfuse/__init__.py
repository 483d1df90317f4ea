"""Runs JAX functions, and their gradients, with adfuse.

    import adfuse
    loss_and_gradient = adfuse.value_and_grad(loss, mem_budget="2GB")
    value, gradient = loss_and_gradient(params, batch)

JAX traces the function; the program `adfuse` imports it, differentiates it, plans it and runs it. That program is the
one that the environment variable ADFUSE names, or the one on PATH. Docs: docs/import.md, "From Python"."""

import atexit, json, os, shutil, subprocess, tempfile, warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core
from jax.interpreters import mlir

__all__ = ["Error", "grad", "jit", "value_and_grad"]

# Element types that the program keeps in another one (docs/import.md), and bfloat16, which files of NumPy lack.
STORED = {"bfloat16": "float32", "int2": "int8", "int4": "int8", "int16": "int32", "uint2": "uint8", "uint4": "uint8",
          "uint16": "uint32", "uint64": "int64"}

# StableHLO has no stop_gradient. While a text for adfuse is written, a call of this name stands for it.
_writing = False
_MARK = mlir.lower_fun(lambda x: jax.ffi.ffi_call("adfuse.stop_gradient", jax.typeof(x))(x), multiple_results=False)
mlir.register_lowering(core.primitives.stop_gradient_p,
                       lambda cx, x: _MARK(cx, x) if _writing else [x])


class Error(RuntimeError):
    """What the program `adfuse` says is wrong."""


def value_and_grad(f, argnums=0, *, has_aux=False, mem_budget=None, engine=None, fp=None):
    """A function that gives what `f` gives, a float scalar, and its gradient as `jax.value_and_grad` does.

    `argnums` is the position, or the positions, to differentiate with respect to. With `has_aux`, `f` gives a pair of the
    scalar and anything else. `mem_budget` is the most memory that all arrays together may take, such as "2GB": what does
    not fit is computed again. `engine` is "cpu" or "gpu". `fp` is "strict", "reproducible" or "fast"."""
    return _Program(f, argnums, has_aux, {"mem-budget": mem_budget, "engine": engine, "fp": fp})


def grad(f, argnums=0, *, has_aux=False, **options):
    """The gradient alone, or a pair of it and what is beside the scalar; options are those of `value_and_grad`."""
    both = value_and_grad(f, argnums, has_aux=has_aux, **options)
    return lambda *args: (lambda value, gradient: (gradient, value[1]) if has_aux else gradient)(*both(*args))


def jit(f, *, mem_budget=None, engine=None, fp=None):
    """A function that gives what `f` gives; options are those of `value_and_grad`."""
    return _Program(f, None, False, {"mem-budget": mem_budget, "engine": engine, "fp": fp})


class _Program:
    """A function, and a running `adfuse` for each structure, shape and type of arguments that it was called with."""

    def __init__(self, f, argnums, has_aux, options):
        self.f, self.argnums, self.has_aux = f, argnums, has_aux
        self.options = [f"--{name}={value}" for name, value in options.items() if value is not None]
        self.servers = {}

    def __call__(self, *args):
        args, server = self._server(args)
        made = _joined(server.call(_parts(jax.tree.leaves(args))), server.types)
        # JAX's gradient of a complex number is the conjugate of that of its parts.
        return jax.tree.unflatten(server.tree, made[: server.count] + [jnp.conj(g) for g in made[server.count :]])

    def peak(self, *args):
        """The bytes that the plan for these arguments takes at its peak: inputs, results and all between."""
        return self._server(args)[1].plan()["peak_bytes"]

    def _server(self, args):
        """The arguments as arrays, and the program for their structure, shapes and types."""
        args = jax.tree.map(jnp.asarray, args)
        leaves, tree = jax.tree.flatten(args)
        key = tree, tuple((leaf.shape, leaf.dtype) for leaf in leaves)
        if key not in self.servers or self.servers[key].process.poll() is not None:
            self.servers[key] = self._start(args)
        return args, self.servers[key]

    def _start(self, args):
        """Traces the function at these arguments and starts the program."""
        leaves, structure = jax.tree.flatten(args)
        f, given = self.f, list(self.options)
        jaxpr, shapes = jax.make_jaxpr(f, return_shape=True)(*args)
        gradients = 0
        if self.argnums is not None:
            # JAX checks the arguments, and says what types gradients have.
            by_jax = jax.value_and_grad(f, self.argnums, self.has_aux)
            shapes = jax.eval_shape(by_jax, *args)
            if own := _own_derivative(jaxpr.jaxpr):
                warnings.warn(f"JAX differentiates, since StableHLO has no place for the derivative of {own}")
                f = by_jax
            else:
                numbers = iter(range(2 * len(leaves)))
                each = jax.tree.unflatten(structure, [[next(numbers) for _ in _parts([leaf])] for leaf in leaves])
                wrt = jax.tree.leaves([each[k] for k in np.atleast_1d(self.argnums)])
                given += ["--grad", "--wrt=" + ",".join(f"arg{n}" for n in wrt)]
                gradients = len(jax.tree.leaves(shapes[1]))

        def of_parts(*parts):
            made = _parts(jax.tree.leaves(f(*jax.tree.unflatten(structure, _joined(parts, leaves)))))
            # The scalar alone is differentiated: what is beside it is handed on as integers.
            return made[:1] + [_hidden(r) for r in made[1:]] if gradients else made

        traced = jax.jit(of_parts, keep_unused=True).trace(*_parts(leaves))
        global _writing
        _writing = True
        try:
            text = traced.lower().as_text()
        finally:
            _writing = False
        types, tree = jax.tree.flatten(shapes)
        return _Server(text, given, types, tree, len(types) - gradients)


class _Server:
    """A process that has imported, planned and compiled one function, and runs it at each request."""

    def __init__(self, text, options, types, tree, count):
        self.types, self.tree, self.count = types, tree, count
        self.folder = tempfile.TemporaryDirectory(prefix="adfuse-")
        self.at = Path(self.folder.name)
        (self.at / "f.mlir").write_text(text)
        self.program = os.environ.get("ADFUSE") or shutil.which("adfuse")
        if self.program is None:
            raise Error("the program `adfuse` is not on PATH, and ADFUSE does not name it")
        self.given = [self.at / "f.mlir", *options]
        self.errors = open(self.at / "stderr", "w+")
        command, pipe = [self.program, "run", "--serve", *self.given], subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=self.errors, text=True)
        atexit.register(self.close)

    def call(self, parts):
        """The results, then the gradients."""
        given, made = self.at / "in.npz", self.at / "out.npz"
        np.savez(given, **{f"arg{k}": _stored(part) for k, part in enumerate(parts)})
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
        ran = subprocess.run([self.program, "plan", "--json", *self.given], capture_output=True, text=True)
        if ran.returncode != 0:
            raise Error(_messages(ran.stderr))
        return json.loads(ran.stdout)

    def close(self):
        """Ends the process, which ends with its input."""
        self.process.communicate()
        self.errors.close()
        self.folder.cleanup()


def _messages(text):
    """The errors of a command that prints JSON, a line each. Notes may stand before them."""
    try:
        errors = json.loads(text[text.index("{\n"):])["errors"]
    except ValueError:
        return text.strip()
    return "\n".join(e["message"] + (f" ({e['hint']})" if e["hint"] else "") for e in errors)


def _own_derivative(jaxpr):
    """The name of a function whose derivative is not that of its operations. Rules that are JAX's own agree with these."""
    for eqn in jaxpr.eqns:
        name, inner = eqn.primitive.name, eqn.params.get("call_jaxpr")
        said = getattr(getattr(inner, "jaxpr", None), "debug_info", None)
        own = name == "custom_jvp_call" and str(Path(jax.__file__).parent) not in str(said)
        if own or name in ("custom_vjp_call", "random_gamma"):
            return getattr(said, "func_name", name)
        if found := next(filter(None, map(_own_derivative, core.jaxprs_in_params(eqn.params))), None):
            return found


def _parts(leaves):
    """The leaves, with two in place of each that is complex: its real and its imaginary part."""
    return [part for x in leaves for part in ((x.real, x.imag) if jnp.iscomplexobj(x) else (x,))]


def _joined(parts, types):
    """The leaves of these types that have these parts."""
    rest = iter(parts)
    return [jax.lax.complex(next(rest), next(rest)) if t.dtype.kind == "c" else _typed(next(rest), t) for t in types]


def _hidden(x):
    """The bits of floats, which nothing flows back from."""
    return jax.lax.bitcast_convert_type(x, _word(x.dtype)) if jnp.issubdtype(x.dtype, jnp.floating) else x


def _word(dtype):
    return f"uint{8 * dtype.itemsize}"


def _stored(leaf):
    """An array as the program takes it."""
    array = np.asarray(leaf)
    stored = STORED.get(array.dtype.name, array.dtype.name)
    # 64 bits without sign keep their bits.
    return array.view(stored) if array.dtype.name == "uint64" else array.astype(stored)


def _typed(array, like):
    """An array of the program as JAX has it."""
    if array.dtype.kind == "u" and jnp.issubdtype(like.dtype, jnp.floating):
        return jnp.asarray(array.astype(_word(like.dtype)).view(like.dtype))
    return jnp.asarray(array.view("uint64") if like.dtype == "uint64" else array.astype(like.dtype))
