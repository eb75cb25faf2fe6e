"""The table of layers, the oracle they are verified against, and every engine on every row."""

import collections
import dataclasses
import importlib.util
import itertools
import math

import jax
import numpy as np
import pytest

import jaxconv
from benchmarks import arrays, engines, layers, oracle, table
from benchmarks.layer import OPS, layer_class
from benchmarks.problem import parse

ROWS = table.layers("tiny")


def covering():
    """One row of each kind: class, strided, dilated, the number of axes with uneven ends."""
    kinds = {}
    for row in ROWS:
        uneven = sum(b != e for b, e in zip(row.pads_begin, row.pads_end, strict=True))
        kinds.setdefault((row.tags, uneven > 0), row)
    return list(kinds.values())


def brute_force(layer, op, first, second):
    """The defining sum, one product at a time."""
    fine, kernel, coarse = (np.zeros(layer.shapes[s]) for s in ("fine", "kernel", "coarse"))
    if op == "weights":
        fine, coarse = (first, second) if layer.family == "conv" else (second, first)
    elif (op == "forward") == (layer.family == "conv"):
        fine, kernel = first, second
    else:
        coarse, kernel = first, second
    out = np.zeros(layer.result_shape(op))
    pairs = 0
    per_group = kernel.shape[-2], layer.channels[1] // layer.groups
    for n in range(layer.batch):
        for q in itertools.product(*map(range, layer.coarse)):
            for k in itertools.product(*map(range, layer.kernel)):
                at = tuple(
                    s * a + d * b - p
                    for s, a, d, b, p in zip(
                        layer.strides, q, layer.dilations, k, layer.pads_begin, strict=True
                    )
                )
                if any(not 0 <= x < f for x, f in zip(at, layer.fine, strict=True)):
                    continue
                for o in range(layer.channels[1]):
                    for i in range(per_group[0]):
                        c = o // per_group[1] * per_group[0] + i
                        pairs += 1
                        if op == "weights":
                            out[(*k, i, o)] += fine[(n, *at, c)] * coarse[(n, *q, o)]
                        elif out.shape == layer.shapes["coarse"] and coarse is not first:
                            out[(n, *q, o)] += fine[(n, *at, c)] * kernel[(*k, i, o)]
                        else:
                            out[(n, *at, c)] += coarse[(n, *q, o)] * kernel[(*k, i, o)]
    return out, pairs


SMALL = [
    parse('mb2g3ic6ih5iw6oc9oh3ow2kh3kw2sh2sw3ph1pw0dh0dw1n"grouped"'),
    parse('mb2g2ic6ih3iw2oc4oh6ow5kh3kw2sh2sw3ph1pw0dh0dw1n"grouped transposed"', "deconv"),
    parse('mb2ic3iw11oc2ow3kw2sw2pw1n"unread end"'),
    parse('mb3ic2iw3oc3ow9kw2sw2pw0n"much output padding"', "deconv"),
]


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("layer", SMALL, ids=lambda layer: layer.name)
def test_the_oracle_is_the_defining_sum(layer, op):
    operands = arrays.operands(layer, op, "f64")
    expected, pairs = brute_force(layer, op, *operands)
    np.testing.assert_allclose(oracle.contract(layer, op, *operands), expected, atol=1e-12)
    assert layer.flops == 2 * pairs


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("layer", SMALL[:3], ids=lambda layer: layer.name)
def test_a_sample_is_part_of_the_whole(layer, op, monkeypatch):
    operands = arrays.operands(layer, op, "f64")
    whole = oracle.contract(layer, op, *operands)
    monkeypatch.setattr(oracle, "SAMPLE_FLOPS", 0.7 * layer.flops)
    expected, got = oracle.sample(layer, op, *operands, whole)
    assert 0 < expected.size < whole.size
    np.testing.assert_allclose(expected, got, atol=1e-12)


def test_terms_are_the_longest_sum():
    layer = parse("mb2g2ic4ih5iw6oc6oh3ow2kh3kw2sh2sw3ph1pw0")
    assert layer.products("forward") == 3 * 2 * 2
    assert layer.products("data") == 2 * 1 * 3
    assert layer.products("weights") == 2 * 3 * 2


def test_the_table_names_each_kind_of_layer():
    rows = table.layers()
    assert len(rows) >= 40
    assert len({row.name for row in rows}) == len(rows)
    classes = collections.Counter(layer_class(row) for row in rows)
    for kind in ("dense", "depthwise"):
        for rank in (1, 2, 3):
            assert classes[f"{kind} {rank}-D"]
        assert classes[f"transposed {kind} 2-D"]
    assert classes["grouped 2-D"]
    assert classes["transposed grouped 2-D"]
    assert classes["pointwise 2-D"]
    assert {min(row.batch, 16) for row in rows} >= {1, 2, 4, 8, 16}
    assert max(row.batch for row in rows) == 16
    widths = {row.src_channels // row.groups for row in rows if "grouped 2-D" in row.tags}
    assert widths >= {4, 8, 16, 24, 32}
    assert {2, 6, 12} <= {row.dilations[0] for row in rows if row.network == "DeepLabv3"}
    assert any(row.dst_channels == 2 * row.groups for row in rows if "depthwise 2-D" in row.tags)


@pytest.mark.parametrize("preset", ["gpu", "tpu"])
def test_the_other_presets_only_have_larger_batches(preset):
    for small, large in zip(table.layers(), table.layers(preset), strict=True):
        assert large.batch > small.batch
        assert large.with_batch(small.batch) == small


@pytest.mark.parametrize("row", table.layers(), ids=lambda row: row.name)
def test_tiny_is_the_same_kind_of_layer(row):
    small = table.tiny(row)
    assert layer_class(small) == layer_class(row)
    assert (small.kernel, small.strides) == (row.kernel, row.strides)
    if small.dilations == row.dilations:
        assert (small.pads_begin, small.pads_end) == (row.pads_begin, row.pads_end)
    assert min(small.fine) >= 1
    assert small.flops < 1e6


#: As many terms as some row of some table has, to a power of two.
TERMS = sorted(
    {
        2 ** round(math.log2(row.products(op)))
        for preset in ("cpu-small", "gpu", "tpu")
        for row in table.layers(preset)
        for op in OPS
    }
)
every_type = pytest.mark.parametrize("dtype", list(oracle.EPS))


def sums(terms):
    """Sums of so many products of normal numbers, as a layer's results are distributed."""
    return math.sqrt(terms) * np.random.default_rng(terms).standard_normal((8, 6, 5, 64))


@every_type
@pytest.mark.parametrize("platform", ["cpu", "cuda", "tpu"])
@pytest.mark.parametrize("of", ["exact", "another engine"])
def test_what_is_not_the_result_is_refused_however_many_terms(dtype, platform, of):
    for terms in TERMS:
        exact = sums(terms)
        right = arrays.representable(exact, dtype)
        swapped = right.copy()
        swapped[..., [3, 4]] = swapped[..., [4, 3]]
        part = right.copy()
        part[-1, -1] = 0
        results = {
            "right": right,
            "zeros": np.zeros_like(right),
            "rolled": np.roll(right, 1, -1),
            "flipped": right[:, ::-1],
            "two swapped": swapped,
            "a row of zeros": part,
            "negative": -right,
            "a third less": right / 1.5,
        }
        notes = {
            name: oracle.verdict(exact, result, terms, dtype, platform, of)
            for name, result in results.items()
        }
        assert [name for name, note in notes.items() if note["ok"]] == ["right"], terms
        assert "inexact" not in notes["right"]


@every_type
def test_exact_sums_rounded_once_are_exact_however_large_the_element(dtype):
    """Most elements nothing, as in a strided data gradient: others are many times the rms."""
    for terms in TERMS:
        exact = sums(terms) * (np.random.default_rng(1).random((8, 6, 5, 64)) < 0.01)
        right = arrays.representable(exact, dtype)
        note = oracle.verdict(exact, right, terms, dtype, "cpu")
        assert (note["ok"], "inexact" in note) == (True, False), terms
        if dtype in ("bf16", "f16"):  # two digits of the type lost: not taken for right
            note = oracle.verdict(exact, right * (1 + 2 * oracle.EPS[dtype]), terms, dtype, "cpu")
            assert "inexact" in note or not note["ok"], terms


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("roundings", [8, 64, 512])
def test_rounding_partial_sums_is_inexact_but_not_wrong(dtype, roundings):
    for terms in (t for t in TERMS if t >= roundings):
        parts = np.random.default_rng(terms).standard_normal((roundings, 5, 64))
        parts *= math.sqrt(terms / roundings)
        total = np.zeros(parts.shape[1:], np.float32)
        for part in parts:
            total = arrays.representable(total + part, dtype)
        note = oracle.verdict(parts.sum(0), total, terms, dtype, "cpu")
        assert (note["ok"], "inexact" in note) == (True, True), (terms, note)


def test_each_result_is_held_against_the_others():
    layer = SMALL[0]
    operands = arrays.operands(layer, "forward", "f32")
    right = oracle.contract(layer, "forward", *operands).astype(np.float32)
    results = {
        "good/": right,
        "rounded/": arrays.representable(right, "bf16"),
        "flipped/": right[:, ::-1],
        "nan/": np.where(right == right.max(), np.nan, right),
        "short/": right[1:],
    }
    notes = layers.judge(layer, "forward", "f32", operands, results, dict.fromkeys(results, "cpu"))
    assert {k: n["ok"] for k, n in notes.items()} == {
        "good/": True,
        "rounded/": False,
        "flipped/": False,
        "nan/": False,
        "short/": False,
    }
    assert "exact" in notes["flipped/"]["reason"]


def test_what_the_sample_misses_the_others_catch(monkeypatch):
    layer = SMALL[0]
    monkeypatch.setattr(oracle, "SAMPLE_FLOPS", 0)
    operands = arrays.operands(layer, "forward", "f32")
    right = oracle.contract(layer, "forward", *operands).astype(np.float32)
    broken = right.copy()
    broken[-1, -1, -1, -1] += 1
    right[0, 0, 0, 0] *= 1 + 2**-22  # less exact on the sample, but right
    results = {"a/": right, "b/": right, "c/": broken}
    notes = layers.judge(layer, "forward", "f32", operands, results, dict.fromkeys(results, "cpu"))
    assert sum(n["ok"] for n in notes.values()) < 3
    assert any("differs" in n.get("reason", "") for n in notes.values())


def run(engine, row, op, dtype="f32", layout="NXC"):
    """Every variant of an engine gives the right result."""
    job = {
        "kind": "layer",
        "layer": dataclasses.asdict(row),
        "op": op,
        "dtype": dtype,
        "layout": layout,
        "threads": 2,
    }
    operands = arrays.operands(row, op, dtype)
    results = {}
    try:
        prepared = engine.prepare(job, operands)
    except engines.Unsupported as reason:
        pytest.skip(str(reason))
    for variant, timed in prepared.items():
        result = timed.call()
        timed.wait(result)
        (results[f"{variant}/"],) = timed.fetch(result)
    notes = layers.judge(row, op, dtype, operands, results, dict.fromkeys(results, "cpu"))
    assert all(note["ok"] for note in notes.values()), notes
    assert results


@pytest.fixture
def engine(request):
    package = {"lax": "jax"}.get(request.param, request.param)
    if not importlib.util.find_spec(package):
        pytest.skip(f"{package} is not installed")
    yield engines.load(request.param)
    if request.param == "torch":
        import torch

        torch.set_grad_enabled(True)


every_engine = pytest.mark.parametrize("engine", engines.DEFAULT, indirect=True)


@every_engine
@pytest.mark.parametrize("row", covering(), ids=lambda row: row.name)
def test_each_kind_of_row_runs_through_every_engine(engine, row):
    for op in OPS:
        run(engine, row, op)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("row", "layout"),
    list(zip(ROWS, itertools.cycle(["NXC", "NCX"]), strict=False)),
    ids=lambda value: getattr(value, "name", value),
)
def test_every_row_runs(row, layout):
    for op in OPS:
        run(engines.load("jaxconv"), row, op, layout=layout)


@every_engine
@pytest.mark.parametrize("dtype", ["bf16", "f16", "f64"])
def test_other_types_run_channels_first(engine, dtype):
    try:
        for row, op in zip(SMALL[:2], ("weights", "data"), strict=True):
            run(engine, row, op, dtype, "NCX")
    finally:
        jax.config.update("jax_enable_x64", False)


@every_engine
@pytest.mark.parametrize("layer", SMALL[1:], ids=lambda layer: layer.name)
def test_layers_unlike_the_tables_run_too(engine, layer):
    for op in OPS:
        run(engine, layer, op)


@pytest.mark.parametrize("op", ["forward", "data", "weights"])
def test_spellings_that_are_measured(op, monkeypatch):
    """Of the layer and operation at hand, before it is compiled."""
    found, measure = [], jaxconv.measure

    def note(function, *arrays):
        found.append(measure(function, *arrays))
        return found[-1]

    monkeypatch.setattr(jaxconv, "measure", note)
    [row] = (row for row in table.layers("tiny") if row.name == "dcgan-image")
    run(engines.load("jaxconv:measured"), row, op)
    [one] = found
    assert len(one.milliseconds) == 1
