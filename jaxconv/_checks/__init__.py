"""Is the package right on this machine? `python -m jaxconv` compares it to sums in NumPy.

layer.py       the sizes of a convolution, for benchmarks and tests, too
cases.py       a case: its operands, what an operation makes of them, is that right?
selfcheck.py   fixed layers by the six operations; named and random layers with gradients
qualify.py     is oneDNN's call right and safe in this release of jaxlib?
"""
