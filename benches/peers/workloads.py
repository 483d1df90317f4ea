"""What is compared: each workload's sizes, its program, its inputs and what a peer computes.

A loss is written once, against the few operations that JAX and PyTorch name differently (`Ops`), so that
both peers compute the same thing; `cpu_peers.py --check` holds it against the program.
"""

from dataclasses import dataclass, field
from typing import Callable

import numpy as np

K, M = 1 << 10, 1 << 20
SIZES = {"4K": 4 * K, "64K": 64 * K, "1M": M, "16M": 16 * M}
ROW = 1024
RATE = 0.01
# What was asked for before anything was measured: half the time of the best peer where traffic or calls
# decide, and no more than the best peer where products of matrices do.
ROWS = {"4K": 2.5, "64K": 1.5, "1M": 1.5, "16M": 3}
HEAVY = {"4K": 5, "64K": 2, "1M": 2, "16M": 4}


@dataclass(frozen=True)
class Ops:
    """What the peers name differently, each in the form that its users write."""

    tanh: Callable
    sigmoid: Callable
    relu: Callable
    # x sigmoid(x).
    silu: Callable
    rsqrt: Callable
    gelu: Callable
    softmax: Callable
    log_softmax: Callable
    # Scores of rows and labels to the sum of what the rows lose.
    cross_entropy: Callable
    # Rows, gain and offset; with 1e-5 beside the variance.
    layer_norm: Callable
    einsum: Callable
    # Images by channel, kernels and offsets, without padding.
    conv: Callable
    # The greatest of each two by two.
    max_pool: Callable
    # q, k, v by batch, place, head and feature, and a factor of q: attention to places up to one's own.
    attend: Callable


@dataclass(frozen=True)
class Workload:
    """One row of the table, at several sizes."""

    name: str
    program: str
    # Label and elements; None where the program has no symbolic extent.
    sizes: tuple
    # Elements to shapes by parameter, in order; a pair has an element type beside the shape.
    shapes: Callable
    # Parameters to differentiate with respect to.
    wrt: tuple
    # (ops, arguments in order) to the loss.
    loss: Callable
    # The extent of `n` for so many elements.
    extent: Callable = lambda elements: elements
    # How many times as fast as the best peer it is to be, by size; two numbers are for one thread and for more.
    wanted: dict = field(default_factory=lambda: dict(ROWS))
    # The step also updates what it differentiates with respect to; the program says so itself.
    updates: bool = False
    # Largest distance of each result in the check, against its norm.
    tolerance: float = 2e-5
    # Factors that keep random parameters in a sensible range.
    scale: dict = field(default_factory=dict)

    def inputs(self, elements, seed):
        """Random inputs by name, in the order of the parameters."""
        rng = np.random.default_rng(seed)
        made = {}
        for name, shape in self.shapes(elements).items():
            if shape and isinstance(shape[0], str):
                kind, shape = shape
                made[name] = rng.integers(0, 4, shape).astype(kind)
                continue
            x = rng.standard_normal(shape, dtype=np.float32)
            made[name] = np.asarray(x * np.float32(self.scale.get(name, 1.0)))
        return made


def gelu_loss(o, x, a, b):
    return o.gelu(a * x + b).sum()


def stack_loss(o, x, s):
    for _ in range(8):
        x = o.relu(x * s + 0.1) * o.sigmoid(x) + o.tanh(x)
    return x.sum()


def softmax_loss(o, x, w):
    return (w * o.softmax(x)).sum()


def layer_norm_loss(o, x, g, b, t):
    return (t * o.layer_norm(x, g, b)).sum()


def l2_norm_loss(o, x, t):
    return (t * (x * o.rsqrt((x * x).sum(-1))[:, None])).sum()


def cross_entropy_loss(o, x, labels):
    return o.cross_entropy(x, labels)


def relu_loss(o, x, t):
    return (t * o.relu(x)).sum()


def mlp_loss(o, x, t, w1, b1, w2, b2, w3, b3):
    h = o.relu(o.relu(x @ w1 + b1) @ w2 + b2)
    return (t * o.log_softmax(h @ w3 + b3)).sum() / -x.shape[0]


def lenet_loss(o, x, t, k1, c1, k2, c2, w1, b1, w2, b2, w3, b3):
    h = o.max_pool(o.relu(o.conv(x, k1, c1)))
    h = o.max_pool(o.relu(o.conv(h, k2, c2)))
    return mlp_loss(o, h.reshape(h.shape[0], -1), t, w1, b1, w2, b2, w3, b3)


def transformer_loss(o, x, g1, be1, wqkv, bqkv, wo, g2, be2, w1, b1, w2, b2, w):
    qkv = o.einsum("bsd,dthe->bsthe", o.layer_norm(x, g1, be1), wqkv) + bqkv
    h = x + o.einsum("bqhe,hed->bqd", o.attend(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2], 0.07), wo)
    f = o.gelu(o.layer_norm(h, g2, be2) @ w1 + b1)
    return (w * (h + (f @ w2 + b2))).sum()


def rms_norm_swiglu_loss(o, x, g, wg, wu, wd, w):
    n = x * o.rsqrt((x * x).mean(-1) + 1e-5)[:, None] * g
    return (w * ((o.silu(n @ wg) * (n @ wu)) @ wd)).sum()


def flat(*names):
    return lambda n: {name: (n,) for name in names}


def rows(**others):
    """Rows of 1024: `x`, then others of these shapes; `rows` stands for the shape of `x`."""

    def shapes(n):
        all_rows = n // ROW
        own = {"rows": (all_rows, ROW), "row": (ROW,), "labels": ("int32", (all_rows,))}
        return {"x": own["rows"]} | {name: own[kind] for name, kind in others.items()}

    return shapes


def layers(batch, widths):
    def shapes(_):
        made = {"x": (batch, widths[0]), "t": (batch, widths[-1])}
        for k, (i, o) in enumerate(zip(widths, widths[1:]), 1):
            made |= {f"w{k}": (i, o), f"b{k}": (o,)}
        return made

    return shapes


def lenet_shapes(_):
    made = {"x": (64, 1, 28, 28), "t": (64, 10), "k1": (6, 1, 5, 5), "c1": (6,), "k2": (16, 6, 5, 5), "c2": (16,)}
    for name, shape in layers(64, (256, 120, 84, 10))(None).items():
        made.setdefault(name, shape)
    return made


def transformer_shapes(_):
    d, h, e, f = 256, 4, 64, 1024
    return {
        "x": (8, 128, d), "g1": (d,), "be1": (d,), "wqkv": (d, 3, h, e), "bqkv": (3, h, e), "wo": (h, e, d),
        "g2": (d,), "be2": (d,), "w1": (d, f), "b1": (f,), "w2": (f, d), "b2": (d,), "w": (8, 128, d),
    }  # fmt: skip


def swiglu_shapes(_):
    n, d, f = 512, 512, 1024
    return {"x": (n, d), "g": (d,), "wg": (d, f), "wu": (d, f), "wd": (f, d), "w": (n, d)}


ALL = ("4K", "64K", "1M", "16M")
LARGE = ("1M", "16M")
LAYERS = ("w1", "b1", "w2", "b2", "w3", "b3")
BLOCK = ("x", "g1", "be1", "wqkv", "bqkv", "wo", "g2", "be2", "w1", "b1", "w2", "b2")


def by_rows(n):
    return n // ROW


WORKLOADS = [
    Workload("gelu of a x + b", "gelu_loss", ALL, flat("x", "a", "b"), ("x", "a", "b"), gelu_loss, wanted=HEAVY),
    Workload(
        "8 x relu, sigmoid, tanh", "stack_loss", ALL, lambda n: {"x": (n,), "s": ()}, ("x", "s"), stack_loss,
        scale={"s": 0.5}, wanted=HEAVY,
    ),
    Workload("softmax", "softmax_loss", ALL, rows(w="rows"), ("x",), softmax_loss, by_rows),
    Workload(
        "layer norm", "layer_norm_loss", ALL, rows(g="row", b="row", t="rows"), ("x", "g", "b"),
        layer_norm_loss, by_rows,
    ),
    Workload("l2 norm", "l2_norm_loss", ALL, rows(t="rows"), ("x",), l2_norm_loss, by_rows),
    Workload(
        "cross entropy", "cross_entropy_loss", ALL, rows(labels="labels"), ("x",), cross_entropy_loss, by_rows
    ),
    Workload("relu and its mask", "relu_loss", LARGE, flat("x", "t"), ("x",), relu_loss, wanted={"1M": 1, "16M": 2.5}),
    Workload(
        "MLP 64 wide, batch 32", "mlp_small", (None,), layers(32, (64, 64, 64, 10)), LAYERS, mlp_loss,
        scale={"w1": 0.125, "w2": 0.125, "w3": 0.125}, wanted={None: 5},
    ),
    Workload(
        "MLP step 784-1024-1024-10, batch 128", "mlp_step", (None,), layers(128, (784, 1024, 1024, 10)), LAYERS,
        mlp_loss, wanted={None: (1.0, 1.15)}, updates=True, tolerance=5e-3,
        scale={"t": 100.0, "w1": 0.036, "w2": 0.031, "w3": 0.031, "b1": 0.01, "b2": 0.01, "b3": 0.01},
    ),
    Workload(
        "LeNet, batch 64", "lenet_loss", (None,), lenet_shapes, ("k1", "c1", "k2", "c2", *LAYERS), lenet_loss,
        wanted={None: 1.2}, tolerance=1e-4,
        scale={"k1": 0.2, "c1": 0.1, "k2": 0.1, "c2": 0.1, "w1": 0.06, "w2": 0.1, "w3": 0.1},
    ),
    Workload(
        "transformer block", "transformer_block", (None,), transformer_shapes, BLOCK, transformer_loss,
        wanted={None: 1.15}, tolerance=1e-4, scale={"wqkv": 0.06, "wo": 0.06, "w1": 0.06, "w2": 0.03},
    ),
    Workload(
        "rms norm and swiglu, 512 x 512 x 1024", "rms_norm_swiglu", (None,), swiglu_shapes,
        ("x", "g", "wg", "wu", "wd"), rms_norm_swiglu_loss, wanted={None: 1.2}, tolerance=1e-4,
        scale={"wg": 0.044, "wu": 0.044, "wd": 0.031},
    ),
]  # fmt: skip
