"""Writes the programs of this folder with JAX: NAME.mlir, and values.json with inputs, values and gradients of each.

Needs `pip install jax`. A program gives a loss (the sum of its results times fixed weights), then its results. With names
for arguments it writes those programs alone."""

import json
import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

HERE = pathlib.Path(__file__).parent
rng = np.random.default_rng(7)


def f32(*shape, scale=1.0):
    return (rng.standard_normal(shape) * scale).astype(np.float32)


def norm(x, g, b):
    return g * (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) + b


def attention(q, k, v):
    s = q @ k.T / np.sqrt(q.shape[-1])
    s = jnp.where(jnp.tril(jnp.ones(s.shape, bool)), s, -jnp.inf)
    return jax.nn.softmax(s, -1) @ v


def conv_norm(x, w, g, b):
    y = lax.conv_general_dilated(x, w, (2, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    mean, var = y.mean((0, 1, 2)), y.var((0, 1, 2))
    return jax.nn.relu(g * (y - mean) * lax.rsqrt(var + 1e-5) + b)


def lstm(xs, w, u, b):
    def step(hc, x):
        h, c = hc
        i, f, g, o = jnp.split(x @ w + h @ u + b, 4)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    n = u.shape[0]
    (h, c), ys = lax.scan(step, (jnp.zeros(n), jnp.zeros(n)), xs)
    return ys, c


def backward_scan(xs, h):
    return lax.scan(lambda c, x: (jnp.tanh(c + x), c * x), h, xs, reverse=True)


def gpt(e, wq, wo, w1, w2):
    ids = jnp.array([3, 1, 4, 1, 5, 2])
    x = e[ids]
    q, k, v = jnp.split(norm(x, 1.0, 0.0) @ wq, 3, -1)
    x = x + attention(q, k, v) @ wo
    x = x + jax.nn.gelu(norm(x, 1.0, 0.0) @ w1) @ w2
    p = jax.nn.log_softmax(norm(x, 1.0, 0.0) @ e.T)
    return -jnp.take_along_axis(p[:-1], ids[1:, None], 1).mean()


def adam(p, g, m, v):
    m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
    return p - 0.01 * (m / 0.1) / (jnp.sqrt(v / 0.01) + 1e-8), m, v


def dropout(x):
    keep = jax.random.bernoulli(jax.random.PRNGKey(3), 0.7, x.shape)
    return jnp.where(keep, x / 0.7, 0.0)


def residual(x, w1, w2):
    conv = lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME")
    return jax.nn.relu(x + conv(jax.nn.relu(conv(x, w1)), w2))


def cholesky_solve(a, b):
    l = jnp.linalg.cholesky(a @ a.T + 3.0 * jnp.eye(a.shape[0]))
    return jax.scipy.linalg.cho_solve((l, True), b)


def eigh(a):
    w, v = jnp.linalg.eigh(a + a.T)
    return w, v * v


def filtered(x, y):
    return jnp.fft.irfft(jnp.fft.rfft(x) * jnp.fft.rfft(y), n=x.shape[-1])


def rotation(x, y, t):
    z = (x + 1j * y) * jnp.exp(1j * t) / (2.0 - 1j * x)
    z = jnp.concatenate([z, jnp.conj(z)])[::-1]
    return jnp.real(z), jnp.imag(z), jnp.abs(z), jnp.where(jnp.imag(z) == 0.0, 1.0, 2.0)


def waves(x, y):
    steps = lax.fori_loop(0, 3, lambda k, z: z * (0.5 + 0.5j) + jnp.sum(z), x + 1j * y)
    z = jnp.fft.fft2(jnp.outer(steps, steps) @ jnp.ones((x.shape[0], 3), jnp.complex64))
    return jnp.abs(jnp.fft.ifft(z, axis=0))


def random_bits(x):
    key = jnp.array([5, 7, 9, 11], jnp.uint32)
    out = []
    for algorithm in (lax.RandomAlgorithm.RNG_DEFAULT, lax.RandomAlgorithm.RNG_THREE_FRY):
        key, bits = lax.rng_bit_generator(key, (3, 5), jnp.uint32, algorithm)
        out.append((bits >> 8).astype(jnp.float32) / 2**24)
    return x * out[0], x + out[1], (key >> 8).astype(jnp.float32) / 2**24


IDS = np.array([0, 2, 2, 4], np.int32)
PROGRAMS = {
    "adam": (adam, f32(5), f32(5), f32(5), abs(f32(5)) + 0.1),
    "argmax_pick": (lambda x: jnp.take_along_axis(x, jnp.argmax(x, 1)[:, None], 1), f32(4, 5)),
    "attention": (attention, f32(6, 4), f32(6, 4), f32(6, 4)),
    "backward_scan": (backward_scan, f32(7, 3), f32(3)),
    "case": (lambda x: lax.switch(2, [jnp.sin, jnp.cos, jnp.tanh], x) + lax.cond(x[0] > 9.0, jnp.sin, jnp.exp, x), f32(4)),
    "conv_norm": (conv_norm, f32(2, 6, 5, 3), f32(3, 3, 3, 4), f32(4), f32(4)),
    "cumprod": (lambda x: jnp.cumprod(x, 1), f32(3, 5)),
    "cumsum": (lambda x: jnp.cumsum(x, 0), f32(6, 3)),
    "dropout": (dropout, f32(4, 6)),
    "einsum": (lambda a, b, c: jnp.einsum("bij,bjk,k->ib", a, b, c), f32(2, 3, 4), f32(2, 4, 5), f32(5)),
    "embedding": (lambda e: e[IDS] * 2.0, f32(5, 3)),
    "fori": (lambda x: lax.fori_loop(0, 5, lambda i, c: jnp.sin(c) * (i + 1), x), f32(4)),
    "gelu": (lambda x: (jax.nn.gelu(x), jax.nn.gelu(x, approximate=False)), f32(8)),
    "gpt": (gpt, f32(7, 8), f32(8, 24, scale=0.3), f32(8, 8, scale=0.3), f32(8, 16, scale=0.3), f32(16, 8, scale=0.3)),
    "layer_norm": (norm, f32(3, 6), f32(6), f32(6)),
    "logsumexp": (lambda x: jax.nn.logsumexp(x, 1), f32(3, 5)),
    "lstm": (lstm, f32(5, 3), f32(3, 8), f32(2, 8), f32(8)),
    "max_pool": (lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"), f32(1, 4, 6, 2)),
    "residual": (residual, f32(1, 2, 5, 5), f32(2, 2, 3, 3), f32(2, 2, 3, 3)),
    "sampling": (lambda x: x + jax.random.normal(jax.random.PRNGKey(1), x.shape), f32(6)),
    "scatter_add": (lambda x, u: x.at[IDS].add(u), f32(5, 2), f32(4, 2)),
    "scatter_mul": (lambda x, u: x.at[IDS[2:]].multiply(u, unique_indices=True), f32(5, 2), f32(2, 2)),
    "softmax": (lambda x: jax.nn.softmax(x, -1), f32(3, 5)),
    "sort": (lambda x: jnp.sort(x, 0), f32(6, 2)),
    "sort_by_keys": (lambda x, y: lax.sort((jnp.round(x), y), num_keys=2)[1], f32(8), f32(8)),
    "top_k": (lambda x: lax.top_k(x, 3)[0], f32(2, 7)),
    "vmap_scan": (lambda x: jax.vmap(lambda r: lax.scan(lambda c, v: (c * v + 1.0, c), 1.0, r)[1])(x), f32(3, 5)),
    "while_loop": (lambda x: lax.while_loop(lambda c: c[0] < 10.0, lambda c: (c[0] * 2.0, c[1] + c[0]), (1.0, x))[1], f32(3)),
    "cholesky_solve": (cholesky_solve, f32(5, 5), f32(5, 2)),
    "eigh": (eigh, f32(5, 5)),
    "qr": (jnp.linalg.qr, f32(6, 4)),
    "solve": (jnp.linalg.solve, f32(2, 5, 5) + 4.0 * np.eye(5, dtype=np.float32), f32(2, 5, 3)),
    "filtered": (filtered, f32(2, 12), f32(2, 12)),
    "rotation": (rotation, f32(4), f32(4), f32(4)),
    "waves": (waves, f32(6), f32(6)),
    "random_bits": (random_bits, f32(3, 5)),
}
# Reverse mode has no rule for it, in JAX either.
FORWARD_ONLY = {"while_loop"}


def main(names):
    path = HERE / "values.json"
    values = json.loads(path.read_text()) if names else {}
    for name in names or PROGRAMS:
        f, *args = PROGRAMS[name]
        args = [jnp.asarray(a) for a in args]

        def loss(*args):
            results = [r for r in jax.tree.leaves(f(*args))]
            weigh = lambda r: jnp.sum(r * jnp.cos(jnp.arange(r.size, dtype=r.dtype)).reshape(r.shape))
            return sum(weigh(r) for r in results), *results

        (HERE / f"{name}.mlir").write_text(jax.jit(loss).lower(*args).as_text())
        entry = {"inputs": args, "values": loss(*args)}
        if name not in FORWARD_ONLY:
            entry["gradients"] = jax.grad(lambda *a: loss(*a)[0], tuple(range(len(args))))(*args)
        plain = lambda a: [float(np.float64(x)) for x in np.asarray(a).ravel()]
        values[name] = {k: [plain(a) for a in v] for k, v in entry.items()}
    values = {name: values[name] for name in PROGRAMS}
    path.write_text(json.dumps(values, indent=0).replace(",\n", ","))


if __name__ == "__main__":
    main(sys.argv[1:])
