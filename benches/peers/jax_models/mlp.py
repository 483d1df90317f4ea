"""Three dense layers, 784 to 10, a batch of 128, SGD."""

import jax
from layers import apply, cross_entropy, dense, stepper


def training():
    keys = jax.random.split(jax.random.key(0), 5)
    x = jax.random.uniform(keys[3], (128, 784), minval=-1.0)
    y = jax.random.randint(keys[4], (128,), 0, 10)
    sizes = [784, 1024, 1024, 10]
    params = [dense(k, i, o) for k, i, o in zip(keys, sizes, sizes[1:])]

    def loss_of(params):
        h = jax.nn.relu(apply(params[0], x))
        h = jax.nn.relu(apply(params[1], h))
        return cross_entropy(apply(params[2], h), y)

    def update(params):
        loss, grads = jax.value_and_grad(loss_of)(params)
        return loss, jax.tree.map(lambda p, g: p - 0.01 * g, params, grads)

    return stepper(update, params)
