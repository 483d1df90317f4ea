"""An LSTM of width 64 over 50 steps of 8 inputs, a batch of 32, mean squared error of one output, Adam."""

import jax
import jax.numpy as jnp
from layers import adam, adam_state, apply, dense, stepper


def cell(p, state, x):
    h, c = state
    i, f, g, o = jnp.split(x @ p["wx"] + h @ p["wh"] + p["b"], 4, axis=1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None


def training():
    keys = jax.random.split(jax.random.key(0), 5)
    x = jax.random.uniform(keys[3], (50, 32, 8), minval=-1.0)
    y = jax.random.uniform(keys[4], (32, 1), minval=-1.0)
    params = {
        "wx": jax.random.uniform(keys[0], (8, 256), minval=-0.125, maxval=0.125),
        "wh": jax.random.uniform(keys[1], (64, 256), minval=-0.125, maxval=0.125),
        "b": jnp.zeros(256),
        "out": dense(keys[2], 64, 1),
    }

    def loss_of(p):
        zeros = jnp.zeros((32, 64))
        (h, _), _ = jax.lax.scan(lambda s, x: cell(p, s, x), (zeros, zeros), x)
        return ((apply(p["out"], h) - y) ** 2).mean()

    def update(params, state):
        loss, grads = jax.value_and_grad(loss_of)(params)
        return loss, *adam(params, grads, state)

    return stepper(update, params, adam_state(params))
