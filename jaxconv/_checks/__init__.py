"""Is the package right on this machine? `python -m jaxconv` compares it to sums in NumPy.

layer.py       the sizes of a convolution, for benchmarks and tests, too
reference.py   the defining sum in NumPy float64
selfcheck.py   a few cases of the six operations
selftest.py    named and random cases of the operations and their gradients
qualify.py     is oneDNN's call right and safe in this release of jaxlib?
terminal.py    a progress bar, a closed pipe
"""
