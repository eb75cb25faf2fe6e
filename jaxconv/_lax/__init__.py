"""The convolutions of `jax.lax`, computed by the contractions of this library.

from_lax.py   from the parameters of lax's convolution to a contraction, or why not
install.py    `install`: how lax's convolutions are lowered, whoever calls them
max_pool.py   the gradient of a max pool
lax_call.py   the steps of all functions of `jaxconv.lax`
"""
