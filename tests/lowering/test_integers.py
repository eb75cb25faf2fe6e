"""8-bit integers: lax's convolutions of them, by `jaxconv.lax` and under `install`, exactly."""

import jax
import numpy as np
import pytest
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxconv
from jaxconv._lowering.plan import choose_plan
from tests.support.peers import bytes_of
from tests.support.problems import example

LAST, FIRST = ("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW")

# name: fine and coarse channels of a group, kernel, groups, layout, the outermost form
LAYERS = {
    "depthwise": (1, 2, (3, 2), 8, LAST, "in float32"),
    "grouped": (3, 2, (2, 3), 4, FIRST, "in float32"),
    "stem": (3, 6, (3, 3), 1, FIRST, "in float32"),
    "dense": (110, 5, (3, 2), 1, LAST, "convolution"),
    "head": (40, 3, (3, 2), 1, LAST, "in float32"),
    "large groups": (180, 3, (3, 2), 2, LAST, "convolution"),
    "one tap": (700, 5, (1, 1), 1, LAST, "convolution"),
    "one tap, channels first": (13, 3, (1, 1), 1, FIRST, "dot by image"),
}


def layer(name, dtype):
    """Both operands, and lax's function of them."""
    fine, coarse, kernel, groups, layout, _ = LAYERS[name]
    x, w = (3, 9, 8, fine * groups), (*kernel, fine, coarse * groups)
    if layout == FIRST:
        x, w = (x[0], x[3], *x[1:3]), (w[3], w[2], *w[:2])

    def run(module, x, w):
        return module.conv_general_dilated(
            x, w, (2, 1), ((1, 0), (1, 2)), rhs_dilation=(1, 2), dimension_numbers=layout,
            feature_group_count=groups, preferred_element_type=np.int32,
        )  # fmt: skip

    rng = np.random.default_rng(1)
    return bytes_of(rng, x, dtype), bytes_of(rng, w, dtype), run


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_sums_are_those_of_lax(name, dtype):
    x, w, run = layer(name, dtype)
    expected = jax.jit(lambda x, w: run(lax, x, w))(x, w)
    with jaxconv.installed():
        found = jax.jit(lambda x, w: run(lax, x, w))(x, w)
        (row,) = jaxconv.explain(lambda x, w: run(lax, x, w), x, w).rows
    assert row.how.startswith(LAYERS[name][-1])
    for sums in (found, run(jaxconv.lax, x, w)):
        assert sums.dtype == np.int32
        np.testing.assert_array_equal(sums, expected)


@pytest.mark.parametrize(
    ("dtype", "largest", "firsts", "most"),
    [(np.int8, -128, (-127, -127), 1024), (np.uint8, 255, (254, 255), 258)],
)
def test_the_largest_sums_in_float32(dtype, largest, firsts, most):
    """Of products as large as can be but the first, so that they are odd; and of one more."""
    for products, form in ((most, "in float32"), (most + 1, "convolution")):
        asked = example("coarse", (3,), (products, 1), 1, groups=2, pad=0, dtype=dtype)
        assert choose_plan(asked, "cpu").form.name == form
        x = np.full((1, 3, 2 * products), largest, dtype)
        w = np.full((1, products, 2), largest, dtype)
        x[0, :, ::products], w[0, 0] = firsts
        found = jaxconv.lax.conv_general_dilated(
            x, w, (1,), "VALID", dimension_numbers=("NHC", "HIO", "NHC"), feature_group_count=2,
            preferred_element_type=np.int32,
        )  # fmt: skip
        groups = x.astype(np.int64).reshape(3, 2, products)
        np.testing.assert_array_equal(found[0], np.einsum("xgi,ig->xg", groups, w[0].astype(int)))
        assert products > most or (np.asarray(found) % 2 == 1).all()


@pytest.mark.parametrize("name", ["depthwise", "dense", "one tap, channels first"])
def test_vmap_and_devices(name):
    x, w, run = layer(name, np.int8)
    xs, ws = np.stack([x, x[:, ::-1]]), np.stack([w, -w])
    expected = np.stack([run(lax, *each) for each in zip(xs, ws, strict=True)])
    over_devices = NamedSharding(Mesh(np.array(jax.devices()[:3]), "n"), P("n"))
    with jaxconv.installed():
        found = jax.jit(jax.vmap(lambda x, w: run(lax, x, w)))(xs, ws)
        split = jax.jit(lambda x, w: run(lax, x, w))(jax.device_put(x, over_devices), w)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(split, expected[0])


@pytest.mark.parametrize("platform", ["gpu", "tpu"])
def test_elsewhere_lax_computes_them(platform):
    x, w, run = layer("depthwise", np.int8)
    jaxconv.install(platform)
    try:
        (row,) = jaxconv.explain(lambda x, w: run(lax, x, w), x, w).rows
    finally:
        jaxconv.uninstall()
    assert row.to is None
