"""The mathematics: three bilinear contractions, each the derivative of the other two.

    contractions.py   the three primitives, with all rules that JAX asks for
    batching.py       vmap: into batch, channels or groups
    finished.py       a contraction and what follows it, as one primitive

Of sizes, a contraction is told a geometry alone. `_lowering` says how it is computed.
"""
