"""Tests of the package, beside JAX: `python tests/test_adfuse.py` where ADFUSE names the program, or it is on PATH."""

import pathlib
import sys
import tempfile
import unittest

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
            self.assertLessEqual(np.abs(np.subtract(a, b, dtype=np.float64)).max(initial=0), bound * size)

    def test_values_and_gradients_are_those_of_jax(self):
        for argnums in [0, 1, (0, 2), (2, 1)]:
            for fp in [None, "strict", "fast"]:
                got = adfuse.value_and_grad(loss, argnums, fp=fp)(PARAMS, X, Y)
                self.near(got, jax.value_and_grad(loss, argnums)(PARAMS, X, Y))
        self.near(adfuse.grad(loss)(PARAMS, X, Y), jax.grad(loss)(PARAMS, X, Y))

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
            for part in ["params.w", "params.b", "loss.mlir", "test_adfuse.py:"]:
                self.assertIn(part, text)
            adfuse.jit(lambda x: x * 2).report(page, X)
            self.assertNotIn("params.w", page.read_text())
            with self.assertRaises(adfuse.Error):
                adfuse.value_and_grad(loss, mem_budget=8).report(page, PARAMS, X, Y)

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
