"""Residuals of a bundle adjustment and their sparse Jacobian, a block of 2 x 12 an observation; 49 cameras, 7776 points,
31843 observations, 64 bits. Not trained: a step is the residuals and the Jacobian."""

import jax
import jax.numpy as jnp

CAMERAS, POINTS, OBSERVATIONS = 49, 7776, 31843


def rotate(r, x):
    """Rodrigues' formula, which is the identity at 0."""
    squared = r @ r
    small = squared < 1e-20
    angle = jnp.sqrt(jnp.where(small, 1.0, squared))
    axis = r / angle
    cross = jnp.cross(axis, x)
    turned = x * jnp.cos(angle) + cross * jnp.sin(angle) + axis * (axis @ x) * (1 - jnp.cos(angle))
    return jnp.where(small, x + jnp.cross(r, x), turned)


def residual(camera, point, seen):
    """`camera`: rotation, translation, focal length, two distortions."""
    p = rotate(camera[:3], point) + camera[3:6]
    p = -p[:2] / p[2]
    squared = p @ p
    return camera[6] * (1 + camera[7] * squared + camera[8] * squared * squared) * p - seen


def training():
    jax.config.update("jax_enable_x64", True)
    keys = jax.random.split(jax.random.key(0), 5)
    spread = jnp.array([0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 10.0, 1e-3, 1e-3])
    middle = jnp.array([0.0, 0, 0, 0, 0, -5.0, 500.0, 0, 0])
    cameras = middle + spread * jax.random.normal(keys[0], (CAMERAS, 9))
    points = jax.random.normal(keys[1], (POINTS, 3))
    of_camera = jax.random.randint(keys[2], (OBSERVATIONS,), 0, CAMERAS)
    of_point = jax.random.randint(keys[3], (OBSERVATIONS,), 0, POINTS)
    seen = jax.random.normal(keys[4], (OBSERVATIONS, 2))

    @jax.jit
    def step(cameras, points):
        given = cameras[of_camera], points[of_point], seen
        errors = jax.vmap(residual)(*given)
        blocks = jax.vmap(jax.jacfwd(residual, (0, 1)))(*given)
        return (errors * errors).mean(), errors, blocks

    def call():
        loss, errors, blocks = jax.block_until_ready(step(cameras, points))
        return float(loss)

    return call
