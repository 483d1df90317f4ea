"""Two times convolution, batch norm, relu and pool, then a dense layer; a batch of 64 of 1 x 8 x 8, Adam."""

import jax
import jax.numpy as jnp
from layers import adam, adam_state, apply, cross_entropy, dense, stepper


def conv(w, x):
    return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME")


def batch_norm(p, running, x):
    mean, var = x.mean((0, 2, 3)), x.var((0, 2, 3))
    y = (x - mean[:, None, None]) * jax.lax.rsqrt(var + 1e-5)[:, None, None]
    running = {"mean": 0.9 * running["mean"] + 0.1 * mean, "var": 0.9 * running["var"] + 0.1 * var}
    return y * p["g"][:, None, None] + p["b"][:, None, None], running


def pool(x):
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")


def norm(channels):
    return {"g": jnp.ones(channels), "b": jnp.zeros(channels)}


def training():
    keys = jax.random.split(jax.random.key(0), 5)
    x = jax.random.uniform(keys[3], (64, 1, 8, 8), minval=-1.0)
    y = jax.random.randint(keys[4], (64,), 0, 10)
    params = {
        "c1": jax.random.uniform(keys[0], (16, 1, 3, 3), minval=-1 / 3, maxval=1 / 3),
        "bn1": norm(16),
        "c2": jax.random.uniform(keys[1], (32, 16, 3, 3), minval=-1 / 12, maxval=1 / 12),
        "bn2": norm(32),
        "out": dense(keys[2], 128, 10),
    }
    running = [{"mean": jnp.zeros(c), "var": jnp.ones(c)} for c in (16, 32)]

    def loss_of(params, running):
        h, first = batch_norm(params["bn1"], running[0], conv(params["c1"], x))
        h, second = batch_norm(params["bn2"], running[1], conv(params["c2"], pool(jax.nn.relu(h))))
        logits = apply(params["out"], pool(jax.nn.relu(h)).reshape(64, 128))
        return cross_entropy(logits, y), [first, second]

    def update(params, state, running):
        (loss, running), grads = jax.value_and_grad(loss_of, has_aux=True)(params, running)
        params, state = adam(params, grads, state)
        return loss, params, state, running

    return stepper(update, params, adam_state(params), running)
