"""A GPT of two layers of width 64 with four heads, a batch of 16 sequences of 32 of 90 tokens, no dropout, Adam."""

import jax
import jax.numpy as jnp
from layers import adam, adam_state, apply, cross_entropy, dense, stepper

BATCH, LENGTH, WIDTH, HEADS, TOKENS = 16, 32, 64, 4, 90


def norm():
    return {"g": jnp.ones(WIDTH), "b": jnp.zeros(WIDTH)}


def layer_norm(p, x):
    c = x - x.mean(-1, keepdims=True)
    return c * jax.lax.rsqrt((c * c).mean(-1, keepdims=True) + 1e-5) * p["g"] + p["b"]


def layer(key):
    q, k, v, o, up, down = jax.random.split(key, 6)
    square = {n: dense(key, WIDTH, WIDTH) for n, key in zip("qkvo", (q, k, v, o))}
    mlp = {"up": dense(up, WIDTH, 4 * WIDTH), "down": dense(down, 4 * WIDTH, WIDTH)}
    return {"n1": norm(), "n2": norm(), **square, **mlp}


def attend(p, x):
    q, k, v = (apply(p[n], x).reshape(BATCH, LENGTH, HEADS, WIDTH // HEADS) for n in "qkv")
    scores = jnp.einsum("bqhe,bkhe->bhqk", q, k) * (WIDTH // HEADS) ** -0.5
    later = jnp.arange(LENGTH)[:, None] < jnp.arange(LENGTH)[None, :]
    weights = jax.nn.softmax(jnp.where(later, -jnp.inf, scores))
    heads = jnp.einsum("bhqk,bkhe->bqhe", weights, v)
    return apply(p["o"], heads.reshape(BATCH, LENGTH, WIDTH))


def forward(p, x):
    h = p["tokens"][x] + p["places"]
    for each in p["layers"]:
        h = h + attend(each, layer_norm(each["n1"], h))
        inner = jax.nn.gelu(apply(each["up"], layer_norm(each["n2"], h)), approximate=False)
        h = h + apply(each["down"], inner)
    return apply(p["head"], layer_norm(p["norm"], h))


def training():
    keys = jax.random.split(jax.random.key(0), 7)
    x = jax.random.randint(keys[5], (BATCH, LENGTH), 0, TOKENS)
    y = jax.random.randint(keys[6], (BATCH, LENGTH), 0, TOKENS)
    params = {
        "tokens": jax.random.normal(keys[0], (TOKENS, WIDTH)),
        "places": jax.random.normal(keys[1], (LENGTH, WIDTH)),
        "layers": [layer(keys[2]), layer(keys[3])],
        "norm": norm(),
        "head": dense(keys[4], WIDTH, TOKENS),
    }

    def update(params, state):
        loss, grads = jax.value_and_grad(lambda p: cross_entropy(forward(p, x), y))(params)
        return loss, *adam(params, grads, state)

    return stepper(update, params, adam_state(params))
