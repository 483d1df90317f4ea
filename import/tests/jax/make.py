"""Writes the programs of this folder with JAX: NAME.mlir, bytecode/NAME.VERSION.mlirbc, and values.json with inputs, values
and gradients of each.

Needs `pip install jax`. A program gives a loss (the sum of its results times fixed weights), then its results. With names
for arguments it writes those programs alone."""

import json
import pathlib
import re
import sys

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import jaxlib.mlir.dialects.stablehlo as stablehlo
import jaxlib.mlir.ir as ir
from jax import lax
from jax._src.interpreters import mlir
from jax.sharding import Mesh, NamedSharding, PartitionSpec

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


def rope(x, g):
    x = g * x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)
    half = x.shape[-1] // 2
    angle = jnp.arange(x.shape[0])[:, None] * 10.0 ** -jnp.arange(half)
    a, b = x[:, :half], x[:, half:]
    return jnp.concatenate([a * jnp.cos(angle) - b * jnp.sin(angle), a * jnp.sin(angle) + b * jnp.cos(angle)], -1)


def group_norm(x, g, b):
    y = x.reshape(x.shape[0], 2, -1)
    y = (y - y.mean(-1, keepdims=True)) / jnp.sqrt(y.var(-1, keepdims=True) + 1e-5)
    return y.reshape(x.shape) * g[:, None] + b[:, None]


def gru(xs, w, u):
    def step(h, x):
        r, z, n = jnp.split(x @ w, 3)
        a, b, c = jnp.split(h @ u, 3)
        z = jax.nn.sigmoid(z + b)
        h = lax.cond(x[0] > 0.0, lambda h: (1 - z) * jnp.tanh(n + jax.nn.sigmoid(r + a) * c) + z * h, lambda h: h, h)
        return h, h

    return lax.scan(step, jnp.zeros(u.shape[0]), xs)[1]


def heads(x, w, o):
    q, k, v = jnp.einsum("td,sdhk->shtk", x, w)
    s = jnp.einsum("htk,huk->htu", q, k) / 2.0
    mask = jnp.arange(x.shape[0])[:, None] >= jnp.arange(x.shape[0])
    return jnp.einsum("htu,huk,hkd->td", jax.nn.softmax(jnp.where(mask, s, -1e9)), v, o)


def conv_transpose(x, w):
    return lax.conv_transpose(x, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def depthwise(x, w):
    return lax.conv_general_dilated(
        x, w, (1, 1), ((1, 1), (2, 2)), rhs_dilation=(1, 2), feature_group_count=4, dimension_numbers=("NHWC", "HWIO", "NHWC"))


def remat_scan(x, w):
    layer = jax.checkpoint(lambda x, w: (jnp.tanh(x @ w), None))
    return lax.scan(layer, x, w)[0]


def nested_scan(x):
    inner = lambda c, v: (c + jnp.sin(v), c * v)
    outer = lambda c, row: (lambda out: (out[0], out[1].sum()))(lax.scan(inner, c, row))
    return lax.scan(outer, 0.5, x)


def block(x, layer):
    q, k, v = jnp.split(norm(x, *layer["n1"]) @ layer["qkv"], 3, -1)
    x = x + attention(q, k, v) @ layer["o"]
    return x + jax.nn.gelu(norm(x, *layer["n2"]) @ layer["up"]) @ layer["down"], None


def gpt_layers(e, p, n, qkv, o, up, down):
    """A GPT of several layers, which a scan goes over, with a batch of sequences."""
    ids = jnp.array([[3, 1, 4, 1, 5], [2, 6, 5, 3, 5]])
    layers = {"n1": (n[:, 0], n[:, 1]), "n2": (n[:, 2], n[:, 3]), "qkv": qkv, "o": o, "up": up, "down": down}

    def loss(ids):
        x = lax.scan(block, e[ids] + p, layers)[0]
        logits = jax.nn.log_softmax(norm(x, 1.0, 0.0) @ e.T)
        return -jnp.take_along_axis(logits[:-1], ids[1:, None], 1).mean()

    return jax.vmap(loss)(ids).mean()


def sample_words(logits):
    """Which words the Gumbel trick samples, and how likely they are."""
    words = jax.random.categorical(jax.random.PRNGKey(5), logits)
    return jnp.take_along_axis(jax.nn.log_softmax(logits), words[:, None], 1)


def adamw_fori(p, x, y):
    """Three steps of training, the gradient of which goes through JAX's own."""
    loss = lambda p: ((jnp.tanh(x @ p) - y) ** 2).mean()
    return lax.fori_loop(0, 3, lambda i, p: p - 0.1 * (jax.grad(loss)(p) + 0.01 * p), p)


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


def svd(a):
    u, s, v = jnp.linalg.svd(a, full_matrices=False)
    return jnp.einsum("ik,kj->ij", u[:, :2], v[:2] / s[:2, None]), s, v * v


def symbolic_mlp(x, w, b):
    """Rows of an unknown number through a layer, a softmax and statistics of all rows."""
    h = jax.nn.gelu(x @ w + b)
    return jax.nn.softmax(h, -1).mean(0), (x - x.mean(0)).std(0) + 1.0, jnp.argmax(h, -1).astype(jnp.float32)


def symbolic_words(e, w, ids):
    """Words of an unknown number of sequences of an unknown length, with a causal mask."""
    x = e[ids]
    s = jnp.einsum("btd,bud->btu", x @ w, x)
    places = jnp.arange(ids.shape[1])
    s = jnp.where(places[:, None] >= places, s, -1e9)
    x = x + jnp.einsum("btu,bud->btd", jax.nn.softmax(s, -1), x)
    logits = jax.nn.log_softmax(x @ e.T)
    return -jnp.take_along_axis(logits, ids[..., None], -1).mean()


def symbolic_scan(x, h):
    return lax.scan(lambda c, r: (jnp.tanh(c + r), None), h, x.swapaxes(0, 1))[0] * x[:, 0]


def symbolic_images(x, w):
    """Images of an unknown number through a convolution, both kinds of pools and a random mask."""
    y = jax.nn.relu(lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")))
    y = lax.reduce_window(y, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    y = lax.reduce_window(y, 0.0, lax.add, (1, 2, 3, 1), (1, 1, 1, 1), "SAME")
    return jnp.where(jax.random.bernoulli(jax.random.PRNGKey(2), 0.7, y.shape), y, 0.0).sum((1, 2))


def symbolic_nearest(x, y):
    """The nearest of some points, for each of others."""
    apart = ((x[:, None] - y[None]) ** 2).sum(-1)
    return apart.min(1).mean(), apart.argmin(1).sum().astype(jnp.float32)


def singular_values(a):
    return jnp.linalg.svd(a, compute_uv=False), jnp.linalg.norm(a, 2)


IDS = np.array([0, 2, 2, 4], np.int32)
SHARDED = NamedSharding(Mesh(np.array(jax.devices()[:1]), ("x",)), PartitionSpec("x"))
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
    "sharded": (lambda x: lax.with_sharding_constraint(jnp.sin(x), SHARDED) @ x, f32(4, 4)),
    "softmax": (lambda x: jax.nn.softmax(x, -1), f32(3, 5)),
    "sort": (lambda x: jnp.sort(x, 0), f32(6, 2)),
    "sort_by_keys": (lambda x, y: lax.sort((jnp.round(x), y), num_keys=2)[1], f32(8), f32(8)),
    "top_k": (lambda x: lax.top_k(x, 3)[0], f32(2, 7)),
    "vmap_scan": (lambda x: jax.vmap(lambda r: lax.scan(lambda c, v: (c * v + 1.0, c), 1.0, r)[1])(x), f32(3, 5)),
    "adamw_fori": (adamw_fori, f32(4, 2), f32(6, 4), f32(6, 2)),
    "associative_scan": (lambda x: lax.associative_scan(lambda a, b: a * 0.5 + b, x), f32(6, 2)),
    "avg_pool": (lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 3, 3, 1), (1, 2, 2, 1), "SAME") / 9.0, f32(1, 5, 6, 2)),
    "conv_transpose": (conv_transpose, f32(1, 3, 4, 2), f32(3, 3, 2, 3)),
    "depthwise": (depthwise, f32(1, 4, 5, 4), f32(3, 3, 1, 4)),
    "gpt_layers": (gpt_layers, f32(7, 8), f32(5, 8), 1 + f32(3, 4, 8, scale=0.1), f32(3, 8, 24, scale=0.3), f32(3, 8, 8, scale=0.3), f32(3, 8, 16, scale=0.3), f32(3, 16, 8, scale=0.3)),
    "group_norm": (group_norm, f32(2, 4, 3), f32(4), f32(4)),
    "gru": (gru, f32(6, 3), f32(3, 6), f32(2, 6)),
    "heads": (heads, f32(5, 8), f32(3, 8, 2, 4), f32(2, 4, 8)),
    "interp": (lambda x, y: jnp.interp(jnp.linspace(-1.0, 5.0, 9), jnp.cumsum(jax.nn.softplus(x)), y), f32(6), f32(6)),
    "nested_scan": (nested_scan, f32(3, 4)),
    "quantile": (lambda x: jnp.quantile(x, jnp.array([0.25, 0.5]), axis=0), f32(7, 2)),
    "remat_scan": (remat_scan, f32(3, 4), f32(5, 4, 4, scale=0.5)),
    "rope": (rope, f32(4, 6), f32(6)),
    "sample_words": (sample_words, f32(4, 5)),
    "segment_sum": (lambda x: jax.ops.segment_sum(x * x, IDS, 5), f32(4, 3)),
    "while_loop": (lambda x: lax.while_loop(lambda c: c[0] < 10.0, lambda c: (c[0] * 2.0, c[1] + c[0]), (1.0, x))[1], f32(3)),
    "cholesky_solve": (cholesky_solve, f32(5, 5), f32(5, 2)),
    "eigh": (eigh, f32(5, 5)),
    "qr": (jnp.linalg.qr, f32(6, 4)),
    "solve": (jnp.linalg.solve, f32(2, 5, 5) + 4.0 * np.eye(5, dtype=np.float32), f32(2, 5, 3)),
    "filtered": (filtered, f32(2, 12), f32(2, 12)),
    "rotation": (rotation, f32(4), f32(4), f32(4)),
    "waves": (waves, f32(6), f32(6)),
    "random_bits": (random_bits, f32(3, 5)),
    "svd": (svd, f32(5, 3)),
    "wide_qr": (lambda a: jnp.linalg.qr(a)[1], f32(3, 5)),
    "symbolic_mlp": (symbolic_mlp, f32(5, 4), f32(4, 3), f32(3)),
    "symbolic_words": (symbolic_words, f32(7, 4), f32(4, 4), np.array([[3, 1, 4], [1, 5, 2]], np.int32)),
    "symbolic_scan": (symbolic_scan, f32(3, 4, 2), f32(3, 2)),
    "symbolic_images": (symbolic_images, f32(2, 6, 6, 2), f32(3, 3, 2, 3)),
    "symbolic_nearest": (symbolic_nearest, f32(5, 2), f32(3, 2)),
    "singular_values": (singular_values, f32(5, 3)),
    "rectified": (lambda x: (jax.nn.relu(x), jax.nn.relu6(6 * x) + jnp.maximum(x, 0.0)), np.array([0.0, -1.0, 1.0, 0.5], np.float32)),
    "magnitude": (lambda x, y: jnp.abs(x + 1j * y), np.array([0.0, 3.0, -1.0], np.float32), np.array([0.0, 4.0, 0.0], np.float32)),
}
# Shapes of the arguments of programs that are exported with symbols.
SYMBOLIC = {
    "symbolic_mlp": ("rows, 4", "4, 3", "3"),
    "symbolic_words": ("7, 4", "4, 4", "b, t"),
    "symbolic_scan": ("b, 4, 2", "b, 2"),
    "symbolic_images": ("b, 6, 6, 2", "3, 3, 2, 3"),
    "symbolic_nearest": ("n, 2", "k, 2"),
}
# Versions of VHLO in which programs are written as bytecode; the older ones in older versions of MLIR's container.
VERSIONS = ["1.17.0", "1.0.0", "0.17.0", "0.14.0", "0.9.0"]
EACH_VERSION = {"conv_norm", "gpt", "lstm", "sort_by_keys", "scatter_add"}
# Reverse mode has no rule for it, in JAX either.
FORWARD_ONLY = {"while_loop"}


def artifact(text, version):
    """The text as bytecode, as `jax.export` writes it: with shardings beside VHLO."""
    with mlir.make_ir_context():
        return stablehlo.serialize_portable_artifact(ir.Module.parse(text), version, "sdy." in text)


def symbolic(f, args, shapes):
    """The text of the function at symbols."""
    scope = jax.export.SymbolicScope()
    types = [jax.ShapeDtypeStruct(jax.export.symbolic_shape(s, scope=scope), a.dtype) for s, a in zip(shapes, args)]
    text = jax.export.export(jax.jit(f))(*types).mlir_module()
    with mlir.make_ir_context():
        text = ir.Module.parse(text).operation.get_asm(enable_debug_info=False)
    return re.sub(r'error_message = "[^"]*"', 'error_message = ""', text) + "\n"


def main(names):
    path = HERE / "values.json"
    values = json.loads(path.read_text()) if names else {}
    (HERE / "bytecode").mkdir(exist_ok=True)
    for name in names or PROGRAMS:
        f, *args = PROGRAMS[name]
        args = [jnp.asarray(a) for a in args]

        def loss(*args):
            results = [r for r in jax.tree.leaves(f(*args))]
            weigh = lambda r: jnp.sum(r * jnp.cos(jnp.arange(r.size).astype(r.dtype)).reshape(r.shape))
            if name in SYMBOLIC:
                weigh = lambda r: jnp.sum(r * jnp.cos(jnp.arange(r.shape[-1], dtype=r.dtype))) if r.ndim else r
            return sum(weigh(r) for r in results), *results

        (HERE / f"{name}.mlir").write_text(symbolic(loss, args, SYMBOLIC[name]) if name in SYMBOLIC else jax.jit(loss).lower(*args).as_text())
        entry = {"inputs": args, "values": loss(*args)}
        if name not in FORWARD_ONLY:
            wrt = tuple(k for k, a in enumerate(args) if a.dtype == jnp.float32)
            entry["gradients"] = jax.grad(lambda *a: loss(*a)[0], wrt)(*args)
        plain = lambda a: [float(np.float64(x)) for x in np.asarray(a).ravel()]
        for version in VERSIONS if name in EACH_VERSION else VERSIONS[:1]:
            to = HERE / "bytecode" / f"{name}.{version}.mlirbc"
            try:
                to.write_bytes(artifact((HERE / f"{name}.mlir").read_text(), version))
            except ValueError:
                # Portable artifacts have no ops of CHLO.
                assert "chlo." in (HERE / f"{name}.mlir").read_text(), name
        if name in SYMBOLIC:
            entry["extents"] = [jnp.array(a.shape, jnp.int32) for a in args]
        values[name] = {k: [plain(a) for a in v] for k, v in entry.items()}
    values = {name: values[name] for name in PROGRAMS}
    path.write_text(json.dumps(values, indent=0).replace(",\n", ","))


if __name__ == "__main__":
    main(sys.argv[1:])
