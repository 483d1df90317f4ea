"""Programs with loops in JAX: `python benches/peers/loop_peers.py --record` writes the values and gradients that
`tests/engines/loops.rs` compares with.

The programs are those of `benches/loops`, in the form that users of JAX write. Reverse mode of `jax.lax.while_loop` is an
error in JAX, so gradients through a `while` are taken in forward mode.
"""

import argparse
import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
RECORD = HERE.parent.parent / "tests" / "recorded" / "loops.json"


def wave(dims, seed, scale=1.0, offset=0.0):
    """Numbers that are the same in every language: `wave` of `benches/loops/mod.rs`."""
    import numpy as np

    count = int(np.prod(dims, dtype=int))
    k = np.arange(count, dtype=np.float64)
    rounded = np.rint(np.sin(0.7 * k + seed) * 2**20) / 2**20
    return (offset + scale * rounded).reshape(dims)


def programs():
    """Each program with its inputs, what to differentiate by, and whether reverse mode can."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    def lstm(wx, wh, b, xs):
        units = wx.shape[0]

        def step(state, x):
            h, c = state
            i, f, g, o = jnp.split(x @ wx + h @ wh + b, 4, axis=1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

        zero = jnp.zeros((xs.shape[1], units), xs.dtype)
        (h, _), _ = lax.scan(step, (zero, zero), xs)
        return (h * h).sum()

    def tanh_steps(w, h, xs):
        return lax.scan(lambda h, x: (jnp.tanh(h @ w + x), None), h, xs)[0].sum()

    def fit(p, start, seen):
        def rates(s):
            met = s[0] * s[1]
            return jnp.stack([p[0] * s[0] - p[1] * met, p[2] * met - p[3] * s[1]])

        def step(s, seen):
            a = rates(s)
            b = rates(s + 0.05 * a)
            c = rates(s + 0.05 * b)
            d = rates(s + 0.1 * c)
            s = s + (a + 2 * b + 2 * c + d) * (0.1 / 6)
            return s, ((s - seen) ** 2).sum()

        return lax.scan(step, start, seen)[1].mean()

    stages = [
        [1 / 5],
        [3 / 40, 9 / 40],
        [44 / 45, -56 / 15, 32 / 9],
        [19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729],
        [9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656],
        [35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84],
    ]
    wrong = [71 / 57600, 0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40]

    def adaptive(mu, start):
        def slope(s):
            return jnp.stack([s[1], mu * (1 - s[0] ** 2) * s[1] - s[0]])

        def step(carried):
            t, wanted, s = carried
            h = jnp.minimum(wanted, 3.0 - t)
            ks = [slope(s)]
            for weights in stages:
                new = s + h * sum(w * k for w, k in zip(weights, ks))
                ks.append(slope(new))
            e = h * sum(w * k for w, k in zip(wrong, ks))
            e = e / (1e-7 * (1 + jnp.maximum(jnp.abs(s), jnp.abs(new))))
            error = jnp.sqrt(jnp.maximum((e**2).mean(), 1e-20))
            factor = jnp.clip(0.9 * error**-0.2, 0.2, 5.0)
            taken = error <= 1
            return jnp.where(taken, t + h, t), h * factor, jnp.where(taken, new, s)

        last = lax.while_loop(lambda c: 3.0 - c[0] > 1e-12, step, (0.0, 0.05, start))[2]
        return (last**2).sum()

    def repeated(layer, z):
        def more(c):
            return (c[0] < 400) & (c[1] > 1e-15)

        def step(c):
            new = layer(c[2])
            return c[0] + 1, jnp.abs(new - c[2]).max(), new

        return lax.while_loop(more, step, (0, 1.0, z))[2]

    def equilibrium_by_steps(w, x):
        return (repeated(lambda z: jnp.tanh(w @ z + x), jnp.zeros(4)) ** 3).sum()

    def equilibrium_by_root(w, x):
        def layer(z):
            return jnp.tanh(w @ z + x)

        def dense(g, y):
            return jnp.linalg.solve(jax.jacobian(g)(y), y)

        z = lax.custom_root(lambda z: z - layer(z), jnp.zeros(4), lambda _, z: repeated(layer, z), dense)
        return (z**3).sum()

    def training(theta, a, y, penalty):
        return ((a @ theta - y) ** 2).mean() + penalty * (theta**2).sum()

    def ridge(a, y, b, z, penalty, rate):
        def step(theta, _):
            return theta - rate * jax.grad(training)(theta, a, y, penalty), None

        theta = lax.scan(step, jnp.zeros(3), None, length=ridge.steps)[0]
        return ((b @ theta - z) ** 2).mean()

    def outer_descent(a, y, b, z, penalty, rate):
        def step(c, _):
            g = jax.grad(ridge, argnums=(4, 5))(a, y, b, z, *c)
            return (c[0] - 0.05 * g[0], c[1] - 0.05 * g[1]), None

        tuned = lax.scan(step, (penalty, rate), None, length=4)[0]
        return ridge(a, y, b, z, *tuned)

    def distance(p, radius, centre):
        return jnp.minimum(jnp.sqrt(((p - centre) ** 2).sum()) - radius, p[1] + 1.0)

    def pixel(radius, centre, at):
        ray = jnp.concatenate([at, jnp.array([1.5])])
        ray = ray / jnp.sqrt((ray**2).sum())
        origin = jnp.array([0.0, 0.0, -3.0])

        def near(far):
            return distance(origin + far * ray, radius, centre)

        def step(c):
            far = c[0] + c[1]
            return far, near(far)

        far, _ = lax.while_loop(lambda c: (c[1] > 1e-7) & (c[0] < 30.0), step, (0.0, near(0.0)))
        slope = jax.grad(distance)(origin + far * ray, radius, centre)
        shade = 0.5 + 0.5 * (slope * (0.4 - 0.4 * jnp.arange(3.0))).sum()
        return jnp.where(far < 30.0, shade * jnp.exp(-0.1 * far), 0.0)

    def image(radius, centre, wanted):
        right = jnp.broadcast_to(jnp.arange(6.0) * (2 / 6) - 0.9, (4, 6))
        up = jnp.broadcast_to((jnp.arange(4.0) * (-1.6 / 4) + 0.7)[:, None], (4, 6))
        at = jnp.stack([right, up], axis=2).reshape(24, 2)
        found = jax.vmap(pixel, in_axes=(None, None, 0))(radius, centre, at)
        return ((found - wanted) ** 2).mean()

    def short(steps, f):
        def g(*args):
            ridge.steps = steps
            return f(*args)

        return g

    equilibrium = [wave((4, 4), 1, 0.2), wave((4,), 2, 0.9, 0.1)]
    regression = [wave((8, 3), 1), wave((8,), 2), wave((6, 3), 3), wave((6,), 4), 0.05, 0.3]
    sequence = [wave((3, 12), 1, 0.6), wave((3, 12), 2, 0.6), wave((12,), 3, 0.5, 0.5), wave((1000, 2, 3), 4)]
    chain = [wave((5, 5), 1, 0.5), wave((5,), 2), wave((200, 5), 3)]
    rates = [jnp.array([1.4, 0.8, 0.5, 1.2]), jnp.array([1.0, 1.5]), wave((40, 2), 5, 0.3, 1.5)]
    return {
        "lstm": (lstm, sequence, (0, 1, 2), True),
        "tanh_steps": (tanh_steps, chain, (0, 1, 2), True),
        "fit": (fit, rates, (0, 1), True),
        "adaptive": (adaptive, [1.2, wave((2,), 1, 0.5, 1.0)], (0, 1), False),
        "equilibrium_by_steps": (equilibrium_by_steps, equilibrium, (0, 1), False),
        "equilibrium_by_root": (equilibrium_by_root, equilibrium, (0, 1), True),
        "ridge": (short(30, ridge), regression, (0, 1, 2, 4, 5), True),
        "outer_descent": (short(20, outer_descent), regression, (4, 5), True),
        "image": (image, [0.9, wave((3,), 1, 0.2, 0.1), wave((24,), 7, 0.3, 0.5)], (0, 1), False),
    }


def record():
    """Writes values and gradients in 64 bits."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    jax.config.update("jax_enable_x64", True)
    out = {}
    for name, (f, args, wrt, reverse) in programs().items():
        args = [jnp.asarray(a, jnp.float64) for a in args]
        mode = jax.grad if reverse else jax.jacfwd
        results = [f(*args), *mode(f, argnums=wrt)(*args)]
        out[name] = [np.ravel(np.asarray(r)).tolist() for r in results]
        if not reverse:
            try:
                jax.grad(f, argnums=wrt)(*args)
                raise SystemExit(f"{name}: reverse mode is there now")
            except ValueError as e:
                print(f"{name}: forward mode, since {str(e).splitlines()[0][:90]}", file=sys.stderr)
    RECORD.write_text(json.dumps(out, indent=0) + "\n")


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--record", action="store_true", help="write tests/recorded/loops.json")
    options = p.parse_args()
    if options.record:
        record()
