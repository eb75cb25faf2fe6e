"""The six public operations: signature and docstring, then one way for all.

convolution.py      convolution, and its Backward operations
conv_transpose.py   transposed convolution, and its Backward operations
operate.py          what all six do: check, resolve, contract, finish, round once
"""
