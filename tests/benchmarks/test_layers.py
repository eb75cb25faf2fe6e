"""Is a result right? The sum that it is held against, the verdict, and all engines."""

import dataclasses
import importlib.util
import math

import jax
import numpy as np
import pytest

from benchmarks import arrays, engines, layers, table, verdicts
from benchmarks.engines import jaxconv as jaxconv_engine
from benchmarks.layer import OPS
from benchmarks.problem import parse

ROWS = table.layers("tiny")


def covering():
    """One row of each kind: class, strided, dilated, the number of axes with uneven ends."""
    kinds = {}
    for row in ROWS:
        uneven = sum(b != e for b, e in zip(row.pads_begin, row.pads_end, strict=True))
        kinds.setdefault((row.tags, uneven > 0), row)
    return list(kinds.values())


SMALL = [
    parse('mb2g3ic6ih5iw6oc9oh3ow2kh3kw2sh2sw3ph1pw0dh0dw1n"grouped"'),
    parse('mb2g2ic6ih3iw2oc4oh6ow5kh3kw2sh2sw3ph1pw0dh0dw1n"grouped transposed"', "deconv"),
    parse('mb2ic3iw6oc2ow3kw2sw2pw1n"unread end"'),
    parse('mb3ic2iw3oc3ow9kw2sw2pw0n"much output padding"', "deconv"),
]


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("layer", SMALL, ids=lambda layer: layer.name)
def test_results_are_held_against_the_defining_sum(layer, op, monkeypatch):
    """All of it, and a sample of it; the sum is that of the package, which has an oracle."""
    operands = arrays.operands(layer, op, "f64")
    run = jaxconv_engine.contraction(layer, op, "NXC")
    with jax.enable_x64(True):
        whole = np.asarray(run(*operands))
        terms = np.asarray(run(*(np.ones(shape) for shape in layer.op_shapes(op)[:2])))
    np.testing.assert_allclose(verdicts.contract(layer, op, *operands), whole, atol=1e-12)
    assert layer.flops == 2 * terms.sum()
    assert layer.terms(layer.slots(op)[2]) >= terms.max()
    monkeypatch.setattr(verdicts, "SAMPLE_FLOPS", 0.7 * layer.flops)
    expected = verdicts.sample(layer, op, *operands)
    got = whole[tuple(map(slice, expected.shape))]
    assert 0 < expected.size < whole.size
    np.testing.assert_allclose(expected, got, atol=1e-12)


#: As many terms as some row of some table has, to a power of two.
TERMS = sorted(
    {
        2 ** round(math.log2(row.terms(row.slots(op)[2])))
        for preset in ("cpu-small", "gpu", "tpu")
        for row in table.layers(preset)
        for op in OPS
    }
)
every_type = pytest.mark.parametrize("dtype", list(verdicts.EPS))


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
            "right": right, "zeros": np.zeros_like(right), "rolled": np.roll(right, 1, -1),
            "flipped": right[:, ::-1], "two swapped": swapped, "a row of zeros": part,
            "negative": -right, "a third less": right / 1.5,
        }  # fmt: skip
        notes = {
            name: verdicts.verdict(exact, result, terms, dtype, platform, of)
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
        note = verdicts.verdict(exact, right, terms, dtype, "cpu")
        assert (note["ok"], "inexact" in note) == (True, False), terms
        if dtype in ("bf16", "f16"):  # two digits of the type lost: not taken for right
            note = verdicts.verdict(
                exact, right * (1 + 2 * verdicts.EPS[dtype]), terms, dtype, "cpu"
            )
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
        note = verdicts.verdict(parts.sum(0), total, terms, dtype, "cpu")
        assert (note["ok"], "inexact" in note) == (True, True), (terms, note)


def job(row, op, dtype="f32", layout="NXC"):
    more = {"layer": row, "op": op, "dtype": dtype, "layout": layout}
    return {"kind": "layer"} | more


def judged(work, results):
    """The names of those results of a job that are judged right, and all notes."""
    operands = arrays.operands(work["layer"], work["op"], work["dtype"])
    listed = {name: [result] for name, result in results.items()}
    notes = layers.judge(work, operands, listed, dict.fromkeys(results, "cpu"))
    return [name for name, note in notes.items() if note["ok"]], notes


def expected(row):
    operands = arrays.operands(row, "forward", "f32")
    return verdicts.contract(row, "forward", *operands).astype(np.float32)


def test_each_result_is_held_against_the_others():
    whole = expected(SMALL[0])
    results = {
        "good/": whole, "rounded/": arrays.representable(whole, "bf16"), "flipped/": whole[:, ::-1],
        "nan/": np.where(whole == whole.max(), np.nan, whole), "short/": whole[1:],
    }  # fmt: skip
    names, notes = judged(job(SMALL[0], "forward"), results)
    assert names == ["good/"]
    assert "exact" in notes["flipped/"]["reason"]


def test_what_the_sample_misses_the_others_catch(monkeypatch):
    monkeypatch.setattr(verdicts, "SAMPLE_FLOPS", 0)
    whole = expected(SMALL[0])
    broken = whole.copy()
    broken[-1, -1, -1, -1] += 1
    whole[0, 0, 0, 0] *= 1 + 2**-22  # less exact on the sample, but right
    names, notes = judged(job(SMALL[0], "forward"), {"a/": whole, "b/": whole, "c/": broken})
    assert names == ["a/", "b/"]
    assert "differs" in notes["c/"]["reason"]


def results(engine, work):
    """The result of every variant of an engine."""
    operands = arrays.operands(work["layer"], work["op"], work["dtype"])
    prepared = engine.prepare(work, operands)
    return {f"{variant}/": timed.fetch(timed.call())[0] for variant, timed in prepared.items()}


def run(engine, *of):
    """Every variant of an engine gives the right result."""
    found = results(engine, job(*of))
    names, notes = judged(job(*of), found)
    assert found
    assert names == [*found], notes


@pytest.fixture
def engine(request):
    name = engines.name_of(request.param)
    package = {"lax": "jax"}.get(name, name)
    if not importlib.util.find_spec(package):
        pytest.skip(f"{package} is not installed")
    yield engines.load(request.param)
    if name == "torch":
        import torch

        torch.set_grad_enabled(True)


every_engine = pytest.mark.parametrize("engine", engines.DEFAULT, indirect=True)


@every_engine
@pytest.mark.parametrize("row", covering(), ids=lambda row: row.name)
def test_each_kind_of_row_runs_through_every_engine(engine, row):
    for op in OPS:
        run(engine, row, op)


@pytest.mark.parametrize("engine", layers.ENSEMBLES["engines"].split(","), indirect=True)
def test_each_member_of_an_ensemble_has_operands_of_its_own(engine):
    for row, op in zip(SMALL[:3], OPS, strict=True):
        row = dataclasses.replace(row, members=3)
        [result] = results(engine, job(row, op)).values()
        told = {"right": result, "exchanged": result[[0, 2, 1]]}
        assert judged(job(row, op), told)[0] == ["right"]


def test_more_unread_than_a_convolution_leaves_is_refused():
    with pytest.raises(engines.Unsupported, match="less than a stride of src unread"):
        jaxconv_engine.contraction(parse("ic3iw11oc2ow3kw2sw2pw1"), "forward", "NXC")


@every_engine
@pytest.mark.parametrize("dtype", ["bf16", "f16", "f64"])
def test_other_types_run_channels_first(engine, dtype):
    try:
        for row, op in zip(SMALL[:2], ("weights", "data"), strict=True):
            run(engine, row, op, dtype, "NCX")
    finally:
        jax.config.update("jax_enable_x64", False)
