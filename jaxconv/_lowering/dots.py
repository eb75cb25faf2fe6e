"""One dot for each tap: for groups of several channels, and where patches would not fit.

Groups are a batch axis of the dot. Dots partition on a sharded batch, where a grouped
convolution gathers it (openxla/xla#47945), and nothing crosses from group to group.
"""

from functools import reduce
from typing import Any

import jax.numpy as jnp
from jax import lax

from jaxconv._attributes import Precision
from jaxconv._dtypes import DType
from jaxconv._geometry import Geometry
from jaxconv._lowering import window
from jaxconv._reshape import merge_groups, split_groups


def to_coarse(
    fine: Any, kernel: Any, *, geometry: Geometry, precision: Precision, dtype: DType
) -> Any:
    """The sum over taps of what the tap reads times its weights."""
    fine = window.padded(fine, geometry)
    products = [
        rows_by_weights(
            window.read_by(tap, fine, geometry), window.at(tap, kernel), geometry, precision, dtype
        )
        for tap in window.taps(geometry)
    ]
    return reduce(lax.add, products)


def to_kernel(
    fine: Any, coarse: Any, *, geometry: Geometry, precision: Precision, dtype: DType
) -> Any:
    """For each tap, what it reads times the coarse tensor, over all rows."""
    fine = window.padded(fine, geometry)
    products = [
        rows_by_rows(window.read_by(tap, fine, geometry), coarse, geometry, precision, dtype)
        for tap in window.taps(geometry)
    ]
    return jnp.stack(products).reshape(*(a.kernel for a in geometry.axes), *products[0].shape)


def rows_by_weights(
    rows: Any, weights: Any, geometry: Geometry, precision: Precision, dtype: DType
) -> Any:
    """(N, X, (g, i)) by (i, (g, o)) to (N, X, (g, o))."""
    groups, last = geometry.groups, geometry.rank + 1
    if groups == 1:
        return lax.dot_general(
            rows,
            weights,
            (((last,), (0,)), ((), ())),
            precision=precision,
            preferred_element_type=dtype,
        )
    out = lax.dot_general(
        split_groups(rows, groups),
        split_groups(weights, groups),
        (((last + 1,), (0,)), ((last,), (1,))),
        precision=precision,
        preferred_element_type=dtype,
    )
    return merge_groups(jnp.moveaxis(out, 0, -2))  # g, N, X, o


def rows_by_rows(
    fine: Any, coarse: Any, geometry: Geometry, precision: Precision, dtype: DType
) -> Any:
    """(N, X, (g, i)) by (N, X, (g, o)) to (i, (g, o))."""
    groups, rows = geometry.groups, tuple(range(geometry.rank + 1))
    if groups == 1:
        return lax.dot_general(
            fine,
            coarse,
            ((rows, rows), ((), ())),
            precision=precision,
            preferred_element_type=dtype,
        )
    last = geometry.rank + 1
    out = lax.dot_general(
        split_groups(fine, groups),
        split_groups(coarse, groups),
        ((rows, rows), ((last,), (last,))),
        precision=precision,
        preferred_element_type=dtype,
    )
    return merge_groups(jnp.moveaxis(out, 0, 1))  # g, i, o
