"""The ground of the package: knows no operation, and imports no other room.

geometry.py    frozen ints: all that a contraction of any operation needs to know; its layouts
finish.py      what follows a sum: bias, residual, activation, the one rounding
dtypes.py      the accepted types, and the type of sums of each
typing.py      names for the types that annotations share
messages.py    how errors show values
meshes.py      explicit mesh axes and `shard_map`: the shardings of operands and results
reshape.py     axes split, merged and moved, shardings kept
environment.py what is around a lowering: contexts, target, variables; who hears of it
jax_names.py   all use of JAX without a promise, and what could replace it
"""
