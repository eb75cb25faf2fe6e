"""oneDNN is given no bfloat16 in sizes where its code for AMX or for AVX-512 fails.

The processor is faked, and so is the call, so that each case takes only the time to plan and to
trace it. What reaches the call is judged by its configuration alone.
"""

import json
import math
import random
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxconv
from jaxconv import _lowering
from jaxconv._base.environment import Target
from jaxconv._base.geometry import OPERANDS
from jaxconv._lowering import onednn_here
from tests.support.plugin import forget
from tests.support.small import SLOTS, draw, kind, problem

AVX512 = "fpu sse4_1 avx avx2 fma avx512f avx512bw avx512vl avx512dq avx512_bf16"
AMX = f"{AVX512} amx_bf16 amx_tile amx_int8"


@dataclass(frozen=True)
class Call:
    """What one call of oneDNN's was given."""

    dtype: str
    #: of the last axis
    pixels: int
    groups: int
    #: of one group
    channels: int
    results: tuple[int, ...]
    window: dict

    def reasons(self):
        """Why oneDNN's AMX code fails in bfloat16, if it does."""
        taps, strides = self.window["size"], self.window["strides"]
        assert self.results[-1] > 1 or strides[-1] == 1  # else code for AVX-512 fails, too
        if self.dtype == "bfloat16" and min(self.groups, self.channels) > 1:  # else it may hang
            pads = self.window["pad_left"][-1], self.window["pad_right"][-1]
            assert max(pads) <= min(6, self.results[-1])
        if any(stride > size for stride, size in zip(strides, taps, strict=True)):
            yield "stride above taps"
        steps = math.gcd(self.pixels, taps[-1], strides[-1])
        if self.groups == 1 and self.channels < 32 < self.channels * steps:
            yield "steps as channels"
        product = set(taps) == {1} or set(self.results) == {1}
        if product and self.channels * int(np.prod(taps)) % 32:
            yield "rows that do not fill tiles"


@pytest.fixture
def made(monkeypatch):
    """The calls that are made, of a function that stands for oneDNN's."""
    calls = []

    def ffi_call(target, result, custom_call_api_version, legacy_backend_config):
        config = json.loads(legacy_backend_config)["onednn_conv_config"]

        def call(data, kernel):
            pixels, channels = data.shape[-2:]
            groups, results = config["feature_groups"], result.shape[1:-1]
            of = data.dtype.name, pixels, groups, channels // groups, results
            calls.append(Call(*of, config["window"]))
            return jnp.zeros(result.shape, result.dtype)

        return call

    monkeypatch.setattr(jax.ffi, "ffi_call", ffi_call)
    monkeypatch.setattr(onednn_here, "why_unavailable", lambda: None)
    return calls


@pytest.fixture
def processor(tmp_path, monkeypatch):
    """A function that replaces the processor by one of these features."""

    def become(features):
        path = tmp_path / "cpuinfo"
        path.write_text(f"processor\t: 0\nflags\t\t: {features}\nbugs\t\t:\n")
        monkeypatch.setattr(onednn_here, "CPUINFO", path)
        forget()

    for name in ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"):
        monkeypatch.delenv(name, raising=False)
    yield become
    forget()


def problems(seed, count):
    """Random contractions; most have strides, and channels around those that fill tiles."""
    rng = random.Random(seed)
    for form in draw(seed, count):
        if rng.random() < 0.1:  # one result
            strides = tuple(rng.choice((k, 1, 2)) for k in form.kernel)
            none = (0,) * form.rank
            form = replace(form, fine=form.kernel, strides=strides, dilations=(1,) * form.rank,
                           pads_begin=none, pads_end=none)  # fmt: skip
        wide = tuple(form.groups * rng.choice((3, 24, 32, 40, 64)) for _ in "io")
        yield replace(form, channels=wide) if kind(form) in ("dense", "grouped") else form


def lower(form, slot, forced):
    """Trace what the library computes, in bfloat16, by oneDNN if it can and must."""
    of = problem(form, slot, jnp.bfloat16)
    try:
        _lowering.choose_plan(of, "cpu", forced)
    except ValueError:
        forced = None
    traced = partial(
        _lowering.lower, slot, target=Target("cpu"), geometry=of.geometry, dtype=of.dtype,
        forced=forced, precision=2 * (lax.Precision.DEFAULT,), early_rounding=False,
    )  # fmt: skip
    types = [jax.ShapeDtypeStruct(form.shapes[s], of.dtype) for s in OPERANDS[slot]]
    jax.eval_shape(traced, *types)


def sweep(made, seed, count):
    """Why oneDNN's AMX code would fail at the calls for so many contractions, by type."""
    for number, form in enumerate(problems(seed, count)):
        slot = SLOTS[number % 3 if number % 5 == 0 else number % 2]  # fewer weights gradients
        # Forced, what is too little work is tried, too.
        lower(form, slot, "onednn" if number % 4 else None)
    found = Counter()
    for call in made:
        for reason in [*call.reasons()] or ["safe"]:
            found[call.dtype, reason] += 1
    return found


CLASS = ("stride above taps", "rows that do not fill tiles")


def test_no_bfloat16_reaches_what_amx_code_fails_at(made, processor):
    processor(AMX)
    found = sweep(made, 1, 800)
    assert not [key for key in found if key[0] == "bfloat16" and key[1] != "safe"], found
    assert found["bfloat16", "safe"] > 130
    assert min(found["float32", reason] for reason in CLASS) > 12, found


def test_other_processors_keep_bfloat16_there(made, processor):
    """Where it is exact, and twice as fast: so the sweep does meet each reason."""
    processor(AVX512)
    found = sweep(made, 1, 300)
    assert min(found["bfloat16", reason] for reason in CLASS) > 3, found


@pytest.mark.parametrize(
    ("src", "weights", "attributes", "wide"),
    [
        ((2, 67, 4, 32), (1, 3, 32, 48), {"strides": (3, 1), "pads_begin": (0, 1)}, True),
        ((2, 30, 31, 32), (3, 3, 32, 48), {"strides": 4}, True),
        ((2, 30, 31, 32), (2, 2, 32, 48), {"strides": 3, "dilations": 3}, True),
        ((2, 120, 32), (2, 32, 48), {"strides": 3}, True),
        ((2, 9, 9, 120), (1, 1, 40, 120), {"groups": 3}, True),
        ((40, 6, 5, 20), (6, 5, 20, 48), {}, True),
        ((2, 9, 9, 96), (1, 1, 32, 120), {"groups": 3}, False),
        ((2, 30, 31, 32), (3, 3, 32, 48), {"strides": 3}, False),
        ((2, 30, 31, 40), (3, 3, 40, 48), {"strides": 2}, False),
        ((16, 8, 8, 16), (4, 4, 16, 48), {"strides": 4}, True),
        ((16, 8, 8, 32), (4, 4, 32, 48), {"strides": 4}, False),
        ((16, 8, 4, 32), (4, 4, 32, 48), {"strides": (4, 1)}, True),
    ],
)
def test_named_sizes(src, weights, attributes, wide, made, processor):
    operands = [jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in (src, weights)]
    for features, types in ((AMX, ["float32" if wide else "bfloat16"]), (AVX512, ["bfloat16"])):
        processor(features)
        jax.jit(partial(jaxconv.convolution, **attributes)).lower(*operands)
        assert [call.dtype for call in made] == types
        made.clear()


@pytest.mark.parametrize(
    ("src", "groups", "amx", "dtype"),
    [
        ((8, 12, 12, 64), 1, False, "bfloat16"),
        ((8, 12, 12, 64), 4, False, "bfloat16"),
        ((8, 12, 12, 64), 1, True, "float32"),
        ((7, 12, 12, 64), 1, False, "float32"),
        ((8, 38, 38, 64), 1, False, "bfloat16"),  # six rows, and at last two
        ((8, 14, 140, 64), 1, False, "float32"),  # one row of bfloat16, or seven
        ((8, 2, 300, 64), 1, False, "float32"),
    ],
)
def test_weights_gradients_of_pairs_of_images_stay_bfloat16(
    src, groups, amx, dtype, made, processor
):
    """An image without another is multiplied by zero times a neighbour, which may be infinite."""
    processor(AMX if amx else AVX512)
    operands = [jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in (src, (*src[:3], 32))]
    attributes = {"auto_pad": "SAME_UPPER", "groups": groups}
    gradient = partial(
        jaxconv.convolution_backward_weights, weights_shape=(3, 3, 64 // groups, 32), **attributes
    )
    with jaxconv.forced("onednn-weights"):
        jax.jit(gradient).lower(*operands)
    assert {call.dtype for call in made} == {dtype}
    for call in made:
        padded = any(call.window["pad_left"] + call.window["pad_right"])
        assert not (dtype == "bfloat16" and groups > 1 and padded)
        assert np.prod(call.window["size"]) <= (256 if dtype == "bfloat16" else 1024)
