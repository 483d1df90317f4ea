"""A GPT in JAX: its loss is imported, differentiated, planned at half the memory and run by adfuse.

    python examples/gpt.py"""

import jax
import jax.numpy as jnp

WORDS, LENGTH, WIDTH, HEADS, LAYERS = 96, 64, 48, 4, 4


def init(key):
    def weights(k, *shape):
        return jax.random.normal(jax.random.fold_in(key, k), shape) * shape[-2] ** -0.5

    layers = {
        "qkv": weights(1, LAYERS, WIDTH, 3 * WIDTH),
        "out": weights(2, LAYERS, WIDTH, WIDTH),
        "up": weights(3, LAYERS, WIDTH, 4 * WIDTH),
        "down": weights(4, LAYERS, 4 * WIDTH, WIDTH),
        "norms": jnp.ones((LAYERS, 2, WIDTH)),
    }
    return {"words": weights(5, WORDS, WIDTH), "places": weights(6, LENGTH, WIDTH), "layers": layers}


def norm(x, gain):
    return gain * (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def attention(x, layer):
    q, k, v = jnp.split((x @ layer["qkv"]).reshape(*x.shape[:-1], HEADS, -1), 3, -1)
    scores = jnp.einsum("bthc,buhc->bhtu", q, k) * q.shape[-1] ** -0.5
    causal = jnp.tril(jnp.ones((x.shape[1], x.shape[1]), bool))
    weights = jax.nn.softmax(jnp.where(causal, scores, -1e9))
    return jnp.einsum("bhtu,buhc->bthc", weights, v).reshape(x.shape) @ layer["out"]


def block(x, layer):
    x = x + attention(norm(x, layer["norms"][0]), layer)
    return x + jax.nn.gelu(norm(x, layer["norms"][1]) @ layer["up"]) @ layer["down"], None


def loss(params, tokens):
    """The mean cross entropy of each next word."""
    x = params["words"][tokens] + params["places"][: tokens.shape[1]]
    for k in range(LAYERS):
        x, _ = block(x, jax.tree.map(lambda w: w[k], params["layers"]))
    scores = jax.nn.log_softmax(norm(x, 1.0) @ params["words"].T)
    return -jnp.take_along_axis(scores[:, :-1], tokens[:, 1:, None], 2).mean()


def example():
    """Parameters, and a batch of sequences of words."""
    return init(jax.random.key(0)), jax.random.randint(jax.random.key(1), (4, LENGTH), 0, WORDS)


def main():
    import adfuse

    params, tokens = example()
    free = adfuse.value_and_grad(loss)
    half = free.peak(params, tokens) // 2
    value, gradient = adfuse.value_and_grad(loss, mem_budget=half)(params, tokens)
    jax_value, jax_gradient = jax.value_and_grad(loss)(params, tokens)
    size = max(jnp.abs(g).max() for g in jax.tree.leaves(jax_gradient))
    apart = max(jnp.abs(a - b).max() for a, b in zip(*map(jax.tree.leaves, (gradient, jax_gradient))))
    print(f"loss {value:.6f} (JAX {jax_value:.6f}) in {half} bytes; gradients differ by {apart / size:.1e} of the largest")
    return value, jax_value, float(apart / size)


if __name__ == "__main__":
    main()
