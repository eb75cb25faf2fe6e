"""Questions about operations and programs.

inspect.py         `resolve`: the sizes and pads, without computing; `contractions_saveable`
explain.py         `explain`: which forms compute an operation or a program, why, at what cost
flops.py           multiplications, additions and bytes, for `explain` and `profile`
profile.py         `profile`: the convolutions that JAX compiles in a block; `%load_ext jaxconv`
profile_row.py     a row of that report, and its words
compare.py         each convolution of that report, timed and checked against lax's
clock.py           calls that take turns, for all that is timed
measure.py         `measure`: which form is fastest on this machine
log.py             a line for each convolution, and the line of Python that wrote it
"""
