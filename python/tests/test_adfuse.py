"""Tests of the package, beside JAX: `python tests/test_adfuse.py` where ADFUSE names the program, or it is on PATH."""

import os
import pathlib
import sys
import tempfile
import unittest
import unittest.mock
import warnings

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "examples")]

import jax
import jax.numpy as jnp
import numpy as np

import adfuse
import gpt


def loss(params, x, y):
    hidden = jnp.tanh(x @ params["w"] + params["b"])
    return jnp.mean((hidden.sum(-1) - y) ** 2)


PARAMS = {"w": jnp.linspace(-1.0, 1.0, 12).reshape(3, 4), "b": jnp.arange(4.0)}
X, Y = jnp.sin(jnp.arange(15.0)).reshape(5, 3), jnp.arange(5.0)


class Adfuse(unittest.TestCase):
    def near(self, got, wanted, bound=2e-5):
        self.assertEqual(jax.tree.structure(got), jax.tree.structure(wanted))
        for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(wanted)):
            self.assertEqual((a.dtype, a.shape), (b.dtype, b.shape))
            size = max(1.0, np.abs(b).max(initial=0))
            kind = np.complex128 if a.dtype.kind == "c" else np.float64
            self.assertLessEqual(np.abs(np.subtract(a, b, dtype=kind)).max(initial=0), bound * size)

    def test_values_and_gradients_are_those_of_jax(self):
        for argnums in [0, 1, (0, 2), (2, 1)]:
            for fp in [None, "strict", "fast"]:
                got = adfuse.value_and_grad(loss, argnums, fp=fp)(PARAMS, X, Y)
                self.near(got, jax.value_and_grad(loss, argnums)(PARAMS, X, Y))
        self.near(adfuse.grad(loss)(PARAMS, X, Y), jax.grad(loss)(PARAMS, X, Y))

    def test_keywords_are_arguments(self):
        f = lambda x, a=1.0, *, b=2.0: (x * x * a).sum() * b
        for named in [{"a": 3.0}, {"b": 3.0}, {"b": 3.0, "a": 4}]:
            self.near(adfuse.jit(f)(X, **named), f(X, **named))
            self.near(adfuse.value_and_grad(f)(X, **named), jax.value_and_grad(f)(X, **named))
        self.near(adfuse.grad(f, (1, 0))(a=3.0, x=X), jax.grad(f, (1, 0))(X, 3.0))
        self.assertGreater(adfuse.jit(f).peak(X, b=3.0), X.nbytes)
        with self.assertRaisesRegex(TypeError, "'c'"):
            adfuse.jit(f)(X, c=3.0)

    def test_positions_are_those_of_arguments(self):
        self.near(adfuse.grad(loss, -1)(PARAMS, X, Y), jax.grad(loss, -1)(PARAMS, X, Y))
        for argnums in [3, -4, (0, 3)]:
            with self.assertRaisesRegex(ValueError, "argnums has .*: there are 3"):
                adfuse.grad(loss, argnums)(PARAMS, X, Y)
        with self.assertRaises(TypeError):
            adfuse.grad(loss, 0.5)

    def test_traced_values_are_a_type_error(self):
        f = adfuse.jit(lambda x: x * 2)
        for call in [jax.jit(f), jax.vmap(f), jax.jit(lambda x: adfuse.jit(lambda y: x * y)(X)), adfuse.jit(f)]:
            with self.assertRaisesRegex(TypeError, "cannot be called inside of `jax.jit`"):
                call(X)

    def test_arguments_may_be_of_every_type(self):
        def f(i, u, h, b, w):
            return {"i": i + 1, "u": [u * 2, jnp.sort(h)], "b": ~b, "w": w - 3}

        args = (jnp.arange(3, dtype=jnp.int16), jnp.arange(4, dtype=jnp.uint8), jnp.ones(2, jnp.bfloat16) / 3,
                jnp.array([True, False]), np.uint32(7))
        self.near(adfuse.jit(f)(*args), jax.jit(f)(*args))

    def test_a_report_has_the_names_and_lines_of_python(self):
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / "loss.html"
            adfuse.value_and_grad(loss, (0, 2)).report(page, PARAMS, X, Y)
            text = page.read_text()
            self.assertTrue(text.startswith("<!doctype html>"))
            for part in ["params.w", "params.b", "loss.mlir", "test_adfuse.py:"]:
                self.assertIn(part, text)
            adfuse.jit(lambda x: x * 2).report(page, X)
            self.assertNotIn("params.w", page.read_text())
            with self.assertRaises(adfuse.Error):
                adfuse.value_and_grad(loss, mem_budget=8).report(page, PARAMS, X, Y)

    def test_complex_numbers_are_arguments_and_results(self):
        z, x = X + 1j * jnp.cos(X), X[0]
        f = lambda z, x: {"f": jnp.fft.fft(z, axis=0), "x": x}
        self.near(adfuse.jit(f)(z, x), jax.jit(f)(z, x))
        g = lambda z, x: (jnp.abs(jnp.fft.fft(z, axis=0) * x) ** 2).sum()
        self.near(adfuse.value_and_grad(g, (0, 1))(z, x), jax.value_and_grad(g, (0, 1))(z, x))

    def test_keys_are_arguments_and_results(self):
        f = lambda x, key: (x * jax.random.normal(key, x.shape)).sum()
        key = jax.random.key(3)
        self.near(adfuse.value_and_grad(f)(X, key), jax.value_and_grad(f)(X, key))
        split = adfuse.jit(jax.random.split)(key)
        self.near(jax.random.key_data(split), jax.random.key_data(jax.random.split(key)))

    def test_solutions_have_the_derivatives_of_jax(self):
        def bisected(f, x):
            def half(_, s):
                low, high = s
                mid = (low + high) / 2
                return jax.lax.cond(f(mid) > 0, lambda: (low, mid), lambda: (mid, high))
            return jax.lax.fori_loop(0, 40, half, (x - 4.0, x + 4.0))[0]

        root = lambda a: jax.lax.custom_root(lambda x: x**3 - a, a, bisected, lambda g, y: y / g(1.0))
        for f, x in [(root, jnp.float32(2.0)), (lambda x: jax.scipy.special.expi(x).sum(), X * X + 0.5)]:
            with self.assertWarns(UserWarning):
                self.near(adfuse.value_and_grad(f)(x), jax.value_and_grad(f)(x))

    def test_what_is_beside_the_loss_comes_along(self):
        def f(w, x):
            h = jnp.tanh(x @ w)
            return (h * h).sum(), {"h": h, "half": h.astype(jnp.bfloat16), "n": jnp.argmax(h), "z": h + 1j}

        for both, of in [(adfuse.value_and_grad, jax.value_and_grad), (adfuse.grad, jax.grad)]:
            self.near(both(f, has_aux=True)(PARAMS["w"], X), of(f, has_aux=True)(PARAMS["w"], X))

    def test_gradients_stop_where_jax_stops_them(self):
        stop = jax.lax.stop_gradient
        rounded = lambda x: ((x + stop(jnp.round(x) - x)) * x).sum()
        scanned = lambda x: jax.lax.scan(lambda c, r: (jnp.tanh(stop(c) * r + c), None), X[0], x)[0].sum()
        for f in [rounded, scanned, jax.jit(scanned)]:
            self.near(adfuse.value_and_grad(f)(X), jax.value_and_grad(f)(X))
        self.assertNotIn("adfuse", jax.jit(rounded).lower(X).as_text())

    def test_jax_differentiates_what_has_a_rule_of_its_own(self):
        clipped, softly = jax.custom_vjp(lambda x: x * 2), jax.custom_jvp(lambda x: x * 3)
        clipped.defvjp(lambda x: (x * 2, None), lambda _, g: (jnp.clip(g, -0.1, 0.1),))
        softly.defjvp(lambda x, t: (x[0] * 3, t[0] * 7))
        sampled = lambda x: jax.random.gamma(jax.random.key(1), x * x + 1).sum()
        within = lambda x: jax.lax.fori_loop(0, 3, lambda _, c: clipped(c), x).sum()
        for f in [lambda x: (clipped(x) ** 2).sum(), lambda x: softly(x).sum(), sampled, jax.jit(within)]:
            with self.assertWarns(UserWarning):
                self.near(adfuse.value_and_grad(f)(X), jax.value_and_grad(f)(X))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            f = lambda x: (jax.nn.relu(x) * jax.nn.softmax(x) + jax.nn.silu(x)).sum()
            self.near(adfuse.value_and_grad(f)(X), jax.value_and_grad(f)(X))

    def test_loops_that_jax_does_not_differentiate_have_gradients(self):
        half = lambda s: (s[0] * s[1], s[1] / 2 + 0.25)
        f = lambda x: jax.lax.while_loop(lambda s: jnp.abs(s[1]) > 0.6, half, (x, jnp.float32(3.0)))[0].sum()
        value, gradient = adfuse.value_and_grad(f)(X)
        scale = jax.lax.while_loop(lambda s: jnp.abs(s[1]) > 0.6, half, (1.0, jnp.float32(3.0)))[0]
        self.near((value, gradient), (f(X), jnp.full_like(X, scale)))

    def test_arguments_that_are_not_used_are_kept(self):
        f = lambda x, unused, k: (x * x).sum() * k
        got = adfuse.value_and_grad(f, (0, 1))(X, Y, 2)
        self.near(got, jax.value_and_grad(f, (0, 1))(X, Y, 2))

    def test_a_program_is_kept_for_each_shape(self):
        f = adfuse.jit(lambda x: x * 2)
        for n in [3, 4, 3, 4, 3]:
            self.near(f(jnp.ones(n)), 2 * jnp.ones(n))
        self.assertEqual(len(f.servers), 2)
        for server in f.servers.values():
            server.process.kill()
            server.process.wait()
        self.near(f(jnp.ones(3)), 2 * jnp.ones(3))

    def test_errors_have_the_text_of_adfuse(self):
        for call, says in [
            (lambda: adfuse.value_and_grad(loss, mem_budget=100)(PARAMS, X, Y), "no plan within 100 bytes"),
            (lambda: adfuse.jit(lambda x: x, fp="sloppy")(X), "sloppy"),
            (lambda: adfuse.jit(lambda x: jax.pure_callback(lambda x: x, x, x))(X), "cannot be imported"),
        ]:
            with self.assertRaisesRegex(adfuse.Error, says):
                call()

    def test_errors_are_of_use_in_python(self):
        def printing(x):
            jax.debug.print("{}", x)
            return x * 2

        for call in [adfuse.jit(printing), adfuse.jit(printing).peak]:
            with self.assertRaisesRegex(adfuse.Error, "a callback of Python"):
                call(X)
        with self.assertRaises(adfuse.Error) as error:
            adfuse.jit(lambda x: x, fp="sloppy")(X)
        self.assertNotIn("--help", str(error.exception))
        with unittest.mock.patch.dict(os.environ, ADFUSE="/nope"):
            with self.assertRaisesRegex(adfuse.Error, "`/nope`, which ADFUSE names, .* `cargo install"):
                adfuse.jit(lambda x: x)(X)

    def test_what_has_no_gradient_is_a_type_error(self):
        for f, args in [(lambda x: x, (X,)), (lambda x: x.sum(), (jnp.arange(3),))]:
            with self.assertRaises(TypeError):
                adfuse.value_and_grad(f)(*args)

    def test_a_gpt_at_half_the_memory_has_the_gradients_of_jax(self):
        value, wanted, apart = gpt.main()
        self.near(value, wanted)
        self.assertLess(apart, 1e-4)


if __name__ == "__main__":
    unittest.main()
