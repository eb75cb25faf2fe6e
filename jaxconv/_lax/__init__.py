"""The convolutions of `jax.lax`, computed by the contractions of this library.

from_lax.py   from the parameters of lax's convolution to a contraction, or why not
install.py    `install`: how lax's convolutions are lowered, whoever calls them
interior.py   convolutions of tensors between whose elements `lax.pad` has written zeros
probe.py      whether a lowering rule may depend on the steps around a step
lax_call.py   the steps of all functions of `jaxconv.lax`
"""
