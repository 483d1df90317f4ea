"""What JAX leaves to its users: initial values, Adam, losses."""

import jax
import jax.numpy as jnp


def dense(key, inputs, outputs):
    bound = inputs**-0.5
    w, b = jax.random.split(key)
    return {
        "w": jax.random.uniform(w, (inputs, outputs), minval=-bound, maxval=bound),
        "b": jax.random.uniform(b, (outputs,), minval=-bound, maxval=bound),
    }


def apply(layer, x):
    return x @ layer["w"] + layer["b"]


def cross_entropy(logits, labels):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1).mean()


def adam(params, grads, state, rate=1e-3):
    m, v, k = state
    k = k + 1
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
    v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, grads)
    m1, v1 = 1 - 0.9**k, 1 - 0.999**k

    def moved(p, m, v):
        return p - rate * (m / m1) / (jnp.sqrt(v / v1) + 1e-8)

    return jax.tree.map(moved, params, m, v), (m, v, k)


def adam_state(params):
    zeros = jax.tree.map(jnp.zeros_like, params)
    return zeros, jax.tree.map(jnp.zeros_like, params), jnp.float32(0)


def stepper(update, *state):
    """A call takes a step and waits for its loss."""
    step = jax.jit(update, donate_argnums=tuple(range(len(state))))

    def call():
        nonlocal state
        loss, *state = step(*state)
        return float(loss)

    return call
