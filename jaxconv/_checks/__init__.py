"""Is the package right on this machine? `python -m jaxconv` compares it to sums in NumPy.

layer.py       the sizes of a convolution, for benchmarks and tests, too
reference.py   the defining sum in NumPy float64
cases.py       a case: its operands, what an operation makes of them, is that right?
selfcheck.py   a few layers by the six operations, and what is told of each operation
selftest.py    named and random cases of the operations and their gradients
qualify.py     is oneDNN's call right and safe in this release of jaxlib?
terminal.py    a progress bar, a closed pipe
"""
