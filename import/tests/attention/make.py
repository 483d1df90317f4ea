"""Writes the programs of this folder with JAX: attention as people write it, of 2 sequences of 128 places and 2 heads of 8
elements, in f32 and bf16.

Needs `pip install jax flax`."""

import math
import pathlib

import flax.linen
import jax
import jax.numpy as jnp

HERE = pathlib.Path(__file__).parent
B, T, H, D = 2, 128, 2, 8
HEADS, ROWS = (B, H, T, D), (B, T, H, D)


def causal():
    return jnp.tril(jnp.ones((T, T), bool))


def weighed(s, v):
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(s, axis=-1), v)


def scores(q, k):
    return jnp.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(D)


def transposed_keys(q, k, v):
    s = jnp.where(causal(), q @ k.transpose(0, 1, 3, 2) / math.sqrt(D), -jnp.inf)
    return jax.nn.softmax(s, -1) @ v


def mask_of_numbers(q, k, v):
    return weighed(jnp.where(jnp.tril(jnp.ones((T, T))) == 0, -1e9, scores(q, k)), v)


def added_mask(q, k, v):
    return weighed(scores(q, k) + jnp.where(jnp.tril(jnp.ones((T, T))) == 1, 0.0, -1e10), v)


def root_of_depth(q, k, v):
    i = jnp.arange(T)
    s = jnp.einsum("bhqd,bhkd->bhqk", q, k) / jnp.sqrt(jnp.array(D, q.dtype))
    return weighed(jnp.where(i[:, None] >= i[None, :], s, jnp.finfo(s.dtype).min), v)


def no_mask(q, k, v):
    return weighed(scores(q, k), v)


def heads_after_rows(q, k, v):
    s = jnp.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(D)
    s = jnp.where(causal()[None, None], s, -jnp.inf)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s, axis=-1), v)


def one_head(q, k, v):
    return jax.nn.softmax(jnp.where(causal(), q @ k.T / math.sqrt(D), -jnp.inf), -1) @ v


def batched(q, k, v):
    return jax.vmap(jax.vmap(one_head))(q, k, v)


def batched_inside(q, k, v):
    return jax.vmap(jax.vmap(one_head, in_axes=1, out_axes=1))(q, k, v)


def of_jax(q, k, v):
    return jax.nn.dot_product_attention(q, k, v)


def of_jax_causal(q, k, v):
    return jax.nn.dot_product_attention(q, k, v, is_causal=True)


def of_jax_window(q, k, v):
    return jax.nn.dot_product_attention(q, k, v, is_causal=True, local_window_size=(32, 0))


def of_jax_masked(q, k, v, m):
    return jax.nn.dot_product_attention(q, k, v, mask=m)


def of_flax(q, k, v):
    mask = flax.linen.make_causal_mask(jnp.ones((B, T)))
    return flax.linen.dot_product_attention(q, k, v, mask=mask)


PROGRAMS = {
    HEADS: [transposed_keys, mask_of_numbers, added_mask, root_of_depth, no_mask, batched],
    ROWS: [heads_after_rows, batched_inside, of_jax, of_jax_causal, of_jax_window, of_jax_masked, of_flax],
    (T, D): [one_head],
}

if __name__ == "__main__":
    for shape, programs in PROGRAMS.items():
        for f in programs:
            for name, dtype in (("f32", jnp.float32), ("bf16", jnp.bfloat16)):
                args = [jax.ShapeDtypeStruct(shape, dtype)] * 3
                if f is of_jax_masked:
                    args.append(jax.ShapeDtypeStruct((B, 1, T, T), bool))
                (HERE / f"{f.__name__}.{name}.mlir").write_text(jax.jit(f).lower(*args).as_text())
