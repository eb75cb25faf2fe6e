"""Questions about operations and programs.

inspect.py         `resolve`: the sizes and pads, without computing
explain.py         `explain`: which forms compute an operation or a program, why, at what cost
flops.py           multiplications and additions, for `explain` and `profile`
profile.py         `profile`: the convolutions that JAX compiles in a block
profile_row.py     a row of that report
compare.py         each convolution of that report, timed and checked against lax's
clock.py           calls that take turns, for all that is timed
measure.py         `measure`: which form is fastest on this machine
log.py             a line for each convolution, and the line of Python that wrote it
notebook.py        `%load_ext jaxconv`
checkpoint.py      a policy for `jax.checkpoint`
"""
