"""What `measure` times, and that `forced` spells by it: only there, and only what was faster."""

import json
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

import jaxconv
from jaxconv import _lowering
from jaxconv._base.environment import FORCED
from jaxconv._lowering import force
from jaxconv._tools import clock
from jaxconv._tools import measure as _measure
from jaxconv._tools.measure import contenders
from tests.support.forms import CHANNELS_FIRST, DENSE, EACH_SLOT, ROLES, operands
from tests.support.problems import example

DEPTHWISE = replace(DENSE, channels=(3, 6), groups=3)
convolve = DEPTHWISE.op("convolution")
FIRST, SECOND, _ = operands(DEPTHWISE, "convolution")
measure_dense = partial(
    jaxconv.measure, DENSE.op("convolution"), *operands(DENSE, "convolution")[:2]
)
#: A form that the table does not choose for it, and that shows in a program.
OTHER, SHOWS = "convolution", "stablehlo.convolution"


@pytest.fixture
def briefly(monkeypatch):
    monkeypatch.setattr(clock, "BUDGET_SECONDS", 0.0)
    monkeypatch.setattr(clock, "MIN_ROUNDS", 1)
    monkeypatch.setattr(_measure, "MAX_COMPILE_SECONDS", np.inf)


def names(function, *args):
    """Of the contractions that a function asks forms for."""
    asked = force.Recorder()
    with jaxconv.forced(asked):
        jax.jit(function).lower(*args)
    return list(asked.problems)


def faster(function, *args, ratio=0.5, form=OTHER):
    """As if another form had been measured to be faster, for all that a function contracts."""
    found = {name: {force.CHOSEN: 2.0, form: 2.0 * ratio} for name in names(function, *args)}
    return jaxconv.Measured(found)


def program(function, *args):
    return jax.jit(function).lower(*args).as_text()


def test_no_call_always_follows_the_same(monkeypatch):
    """Or it would always find the caches as that left them."""
    monkeypatch.setattr(clock, "BUDGET_SECONDS", 0.0)
    heard = []
    clock.race({name: partial(heard.append, name) for name in "abcd"})
    turns, again = heard[::2], heard[1::2]
    assert turns == again
    rounds = ["".join(turns[n : n + 4]) for n in range(0, len(turns), 4)]
    assert len(set(rounds)) == len(rounds) == clock.MIN_ROUNDS
    assert {"".join(sorted(each)) for each in rounds} == {"abcd"}


@pytest.mark.parametrize("op", EACH_SLOT)
@pytest.mark.parametrize("form", [DENSE, DEPTHWISE, replace(DEPTHWISE, formats=CHANNELS_FIRST)])
def test_one_contraction_of_the_shapes_at_hand(op, form, briefly):
    first, second, _ = operands(form, op)
    free = form.op(op)(first, second)
    found = jaxconv.measure(form.op(op), first, second)
    assert list(found.milliseconds) == names(form.op(op), first, second)
    [times] = found.milliseconds.values()
    assert force.CHOSEN in times
    assert all(0 < ms < 1e4 for ms in times.values())
    assert found.report().startswith(f"to {ROLES[op][-1]} float32 batch 3 ")
    with jaxconv.forced(found):
        np.testing.assert_array_equal(form.op(op)(first, second), free)


def test_what_follows_a_sum_is_timed_and_named(briefly):
    first, second, _ = operands(DENSE, "convolution")
    alone = jax.eval_shape(DENSE.op("convolution"), first, second)
    added = {"bias": np.ones(alone.shape[-1], np.float32), "residual": np.ones(alone.shape)}
    added["residual"] = added["residual"].astype(np.float32)
    finished = partial(DENSE.op("convolution"), activation="relu", **added)
    found = jaxconv.measure(finished, first, second)
    [name] = found.milliseconds
    assert name == f"{names(DENSE.op('convolution'), first, second)[0]} then bias, residual, relu"
    with jaxconv.forced(faster(finished, first, second)):
        assert SHOWS in program(finished, first, second)


def test_every_contraction_of_a_step_once(briefly):
    """In control flow, under vmap and in a gradient; what is there twice, once."""
    src, weights, _ = operands(DENSE, "convolution")

    def loss(weights, src):
        def step(total, x):
            return total + DENSE.op("convolution")(x, weights).sum(), None

        return jax.lax.scan(step, 0.0, jnp.stack([src, src]))[0]

    ran = jax.ShapeDtypeStruct(weights.shape, weights.dtype), src
    found = jaxconv.measure(jax.jit(jax.value_and_grad(loss)), *ran)
    results = [name.split()[1] for name in found.milliseconds]
    assert sorted(results) == ["coarse", "kernel"]
    batched = jaxconv.measure(jax.vmap(DENSE.op("convolution"), (0, None)), src[None], weights)
    assert list(batched.milliseconds) == names(DENSE.op("convolution"), src, weights)


@pytest.mark.parametrize("shape", [tuple, list, np.array])
def test_a_shape_is_no_array(shape, briefly):
    src, diff_dst = jnp.ones((2, 7, 7, 2)), jnp.ones((2, 3, 3, 4))
    function = jaxconv.convolution_backward_weights
    attributes = {"strides": np.array([2, 2]), "groups": np.int64(1)}
    for given in (
        jaxconv.measure(function, src, diff_dst, shape((3, 3, 2, 4)), **attributes),
        jaxconv.measure(function, src, diff_dst, weights_shape=shape((3, 3, 2, 4)), **attributes),
    ):
        [name] = given.milliseconds
        assert name.startswith("to kernel")


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float64])
def test_other_types(dtype, briefly, monkeypatch):
    compiled, types = _measure._compile, set()

    def note(problem, form, operands):
        types.update(x.dtype for x in operands)
        return compiled(problem, form, operands)

    monkeypatch.setattr(_measure, "_compile", note)
    with jax.enable_x64(dtype == jnp.float64):
        first, second, _ = operands(DENSE, "convolution", dtype)
        found = jaxconv.measure(DENSE.op("convolution"), first, second)
    [name] = found.milliseconds
    assert jnp.dtype(dtype).name in name
    assert types == {jnp.dtype(dtype)}


def test_a_slow_first_call_leaves_no_form_out(briefly, monkeypatch):
    known, seen = [], set()
    monkeypatch.setattr(_measure, "time_call", lambda f: 1e-5 if f in seen else seen.add(f) or 0.09)
    monkeypatch.setattr(_measure, "contenders", lambda p: known.append(p) or contenders(p))
    [(name, times)] = measure_dense().milliseconds.items()
    assert len(times) > 3
    assert _lowering.choose_plan(known[0], "cpu").form.name not in times  # again, by its name
    assert force.name_problem(replace(known[0], onednn=not known[0].onednn)) != name


def test_no_program_is_timed_twice():
    found = [contenders(example("coarse", (28, 28), (64, 64), dtype=t)) for t in ("f8", "f4")]
    assert ["portable" in names for names in found] == [False, True]  # float64: never oneDNN


def test_nothing_to_measure_is_told():
    with pytest.raises(ValueError, match="measure: `function` must contract something"):
        jaxconv.measure(jnp.sin, jnp.ones(3))
    with pytest.raises(TypeError, match=r"must be a function; got 'convolution' \(str\)"):
        jaxconv.measure("convolution", FIRST, SECOND)


def test_contexts_of_the_caller_do_not_reach_what_is_timed(briefly, monkeypatch):
    first, second, _ = operands(DENSE, "convolution")
    compiled, devices = _measure._compile, []

    def note(problem, form, operands):
        devices.append((jax.sharding.get_abstract_mesh().size, FORCED.value))
        return compiled(problem, form, operands)

    monkeypatch.setattr(_measure, "_compile", note)
    mesh = jax.make_mesh((8,), ("batch",), axis_types=(AxisType.Explicit,))
    shard = jax.shard_map(
        DENSE.op("convolution"), mesh=mesh, in_specs=(P(), P()), out_specs=P(), axis_names={"batch"}
    )
    with jax.set_mesh(mesh), jaxconv.forced("convolution"):
        found = jaxconv.measure(shard, first, second)
    assert list(found.milliseconds) == names(DENSE.op("convolution"), first, second)
    assert set(devices) == {(jax.sharding.get_abstract_mesh().size, None)}


def test_a_contender_that_fails_is_none(briefly, monkeypatch):
    compiled, failing = _measure._compile, set()

    def fail(problem, form, operands):
        if form in failing:
            raise jax.errors.JaxRuntimeError("no memory")
        return compiled(problem, form, operands)

    monkeypatch.setattr(_measure, "_compile", fail)
    monkeypatch.setattr(_measure, "MAX_TIME_RATIO", 1e9)
    [times] = measure_dense().milliseconds.values()
    failing.add("im2col")
    [others] = measure_dense().milliseconds.values()
    assert set(times) - set(others) == {"im2col"}
    failing.add(force.CHOSEN)
    with pytest.raises(jax.errors.JaxRuntimeError):
        measure_dense()


def test_what_was_faster_is_used_and_explained():
    free = convolve(FIRST, SECOND)
    assert SHOWS not in program(convolve, FIRST, SECOND)
    with jaxconv.forced(faster(convolve, FIRST, SECOND)):
        assert SHOWS in program(convolve, FIRST, SECOND)
        np.testing.assert_array_equal(convolve(FIRST, SECOND), free)
        found = jaxconv.explain(convolve.func, FIRST, SECOND, **convolve.keywords)
        assert found.steps[0] == (OTHER, "measured: 1 ms, by the table 2")
        half = program(convolve, FIRST[:1], SECOND)
        wide = program(convolve, FIRST.astype(jnp.bfloat16), SECOND.astype(jnp.bfloat16))
        assert SHOWS not in half + wide  # of which nothing is known
    assert SHOWS not in program(convolve, FIRST, SECOND)


@pytest.mark.parametrize(
    ("ratio", "form"),
    [(0.96, OTHER), (1.0, OTHER), (3.0, OTHER), (0.5, "of another version"), (0.5, "flip")],
)
def test_what_was_no_faster_or_is_no_form_now_is_not(ratio, form):
    """It was renamed, say, or cannot compute this any more."""
    free = program(convolve, FIRST, SECOND)
    with jaxconv.forced(faster(convolve, FIRST, SECOND, ratio=ratio, form=form)):
        assert program(convolve, FIRST, SECOND) == free


def test_programs_that_are_split_go_by_the_rules():
    mesh = jax.make_mesh((3,), ("batch",), axis_types=(AxisType.Auto,))
    split = jax.device_put(FIRST, jax.NamedSharding(mesh, P("batch")))
    assert names(convolve, split, SECOND) == []
    with jaxconv.forced(faster(convolve, FIRST, SECOND)):
        assert SHOWS in program(convolve, FIRST, SECOND)
        assert SHOWS not in program(convolve, split, SECOND)


def test_a_symbolic_batch_and_other_backends_go_by_the_rules():
    n = jax.ShapeDtypeStruct((*export.symbolic_shape("n"), *FIRST.shape[1:]), FIRST.dtype)
    assert names(convolve, n, SECOND) == []
    forced = faster(convolve, FIRST, SECOND)

    def lowered(platform):
        traced = jax.jit(convolve).trace(FIRST, SECOND)
        return traced.lower(lowering_platforms=(platform,)).as_text()

    for platform in ("cuda", "tpu"):
        free = lowered(platform)
        with jaxconv.forced(forced):
            assert lowered(platform) == free
    with jaxconv.forced(forced):
        assert SHOWS not in export.export(jax.jit(convolve))(n, SECOND).mlir_module()


def test_a_file_has_each_machine_and_version(tmp_path, monkeypatch):
    path = tmp_path / "forms.json"
    with pytest.raises(FileNotFoundError, match="forms"):
        jaxconv.Measured.load(path)
    jaxconv.Measured({"one": {"chosen": 2.0, "direct": 1.0}}).save(path)
    jaxconv.Measured({"two": {"chosen": 3.0}}).save(path)
    both = {"one": {"chosen": 2.0, "direct": 1.0}, "two": {"chosen": 3.0}}
    assert jaxconv.Measured.load(path).milliseconds == both
    monkeypatch.setattr(force, "_describe_machine", lambda: "elsewhere")
    assert jaxconv.Measured.load(path).milliseconds == {}
    jaxconv.Measured({"one": {"chosen": 4.0}}).save(str(path))
    assert jaxconv.Measured.load(path).milliseconds == {"one": {"chosen": 4.0}}
    monkeypatch.undo()
    assert jaxconv.Measured.load(path).milliseconds == both
    [here] = json.loads(path.read_text()).keys() - {"elsewhere"}
    assert jax.__version__ in here
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"one": ', '{"here": 3}', '{"here": {"one": [1]}}',
     '{"here": {"one": {"chosen": "2"}}}'],
)  # fmt: skip
def test_another_file_is_told(text, tmp_path):
    path = tmp_path / "other.json"
    path.write_text(text)
    for use in (jaxconv.Measured.load, jaxconv.Measured({}).save):
        with pytest.raises(ValueError, match=r"Measured: .*other.json must be a file that `save`"):
            use(path)
    assert path.read_text() == text


@pytest.mark.parametrize(
    ("limit", "value"),
    [("MAX_TIME_RATIO", 1e-9), ("MAX_COMPILE_SECONDS", 0.0), ("EXTRA_BYTES", -(1 << 40))],
)
def test_what_is_hopeless_compiles_long_or_takes_much_memory_is_left_out(
    limit, value, briefly, monkeypatch
):
    monkeypatch.setattr(_measure, "MAX_TIME_RATIO", 1e9)
    [times] = measure_dense().milliseconds.values()
    assert len(times) > 1
    monkeypatch.setattr(_measure, limit, value)
    [times] = measure_dense().milliseconds.values()
    assert list(times) == [force.CHOSEN]


def test_each_time_is_of_the_form_it_stands_for(briefly, monkeypatch):
    lower, lowered = _lowering.lower, []

    def note(*operands, forced, **params):
        lowered.append(forced)
        return lower(*operands, forced=forced, **params)

    monkeypatch.setattr(_lowering, "lower", note)
    monkeypatch.setattr(_measure, "MAX_TIME_RATIO", 1e9)
    [times] = measure_dense().milliseconds.values()
    timed = lowered[-len(times) :]  # before, what the function asks for is noted
    assert timed == [None, *list(times)[1:]]
    assert len(set(timed)) == len(times) > 1
