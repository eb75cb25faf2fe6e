"""jaxconv.install under the transformations of JAX, on meshes, in threads, and taken back.

Whether a program is lax's own is read from its text: a depthwise convolution is never lowered
as lax does it.
"""

import re
import threading
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxconv
from jaxconv._base.jax_names import Primitive, find_lowering_rule, mlir, walk_equations
from jaxconv._base.messages import shown
from jaxconv._lax import install
from jaxconv._lowering import plan
from tests.support.forms import integers
from tests.support.lax_oracle import same
from tests.support.programs import collectives

X, K = integers((4, 8, 7, 6), 1), integers((3, 3, 1, 12), 2)
LAST = ("NHWC", "HWIO", "NHWC")


def depthwise(x, k, **more):
    return lax.conv_general_dilated(
        x, k, (2, 1), "SAME", dimension_numbers=LAST, feature_group_count=x.shape[-1], **more
    )


def loss(x, k):
    return (depthwise(x, k) ** 2).sum()


def check(function, *args):
    """Compiled on both sides of `installed`, a function gives the same, by other programs."""
    function = jax.jit(function)
    theirs, text = function(*args), function.lower(*args).as_text()
    with jaxconv.installed():
        same(function(*args), theirs)
        assert function.lower(*args).as_text() != text
    return theirs


# What it is wrapped in.


def test_gradients():
    check(jax.grad(loss, (0, 1)), X, K)


def test_a_jaxpr_is_what_it_was():
    before = str(jax.make_jaxpr(jax.grad(loss, (0, 1)))(X, K))
    with jaxconv.installed():
        assert str(jax.make_jaxpr(jax.grad(loss, (0, 1)))(X, K)) == before


@pytest.mark.parametrize("nans", [False, True])
def test_eager(nans):
    expected = depthwise(X, K)
    with jaxconv.installed(), jax.disable_jit(), jax.debug_nans(nans):
        same(depthwise(X, K), expected)
        same(jaxconv.convolution(X, K, strides=(2, 1), auto_pad="same_upper", groups=6), expected)


# Meshes.


def test_automatic_sharding():
    mesh = jax.make_mesh((4,), ("d",), axis_types=(AxisType.Auto,))
    x, k = (jax.device_put(a, NamedSharding(mesh, s)) for a, s in ((X, P("d")), (K, P())))
    expected = jax.grad(loss, (0, 1))(X, K)
    with jaxconv.installed():
        compiled = jax.jit(jax.grad(loss, (0, 1))).lower(x, k).compile()
    for got, exact in zip(compiled(x, k), expected, strict=True):
        assert np.array_equal(got, exact)
    assert set(collectives(compiled.as_text())) == {"all-reduce"}


@pytest.mark.parametrize("shape", [(2,), (2, 2)])
def test_explicit_sharding(shape):
    """With two mesh axes, XLA's own weights gradient is wrong, by a factor of the unused one."""
    both = jax.grad(loss, (0, 1))
    exact = both(X, K)
    mesh = jax.make_mesh(
        shape, ("d", "e")[: len(shape)], axis_types=(AxisType.Explicit,) * len(shape)
    )
    with jax.set_mesh(mesh):
        x = jax.device_put(X, NamedSharding(mesh, P("d")))
        k = jax.device_put(K, NamedSharding(mesh, P()))
        types = [jax.typeof(a) for a in jax.jit(both)(x, k)]
        with jaxconv.installed():
            results = jax.jit(both)(x, k)
    for got, expected, of in zip(results, exact, types, strict=True):
        assert jax.typeof(got) == of
        assert np.array_equal(got, expected)


def test_an_explicit_sharding_of_groups_that_move():
    """Those of a transposed convolution's weights gradient; it has the kernel's sharding."""
    mesh = jax.make_mesh((2,), ("d",), axis_types=(AxisType.Explicit,))

    def up(x, k):
        return lax.conv_general_dilated(
            x, k, (1, 1), [(1, 1)] * 2, (2, 1), dimension_numbers=LAST, feature_group_count=6
        )

    gradient = jax.jit(jax.grad(lambda x, k: (up(x, k) ** 2).sum(), 1))
    exact = gradient(X, K)
    with jax.set_mesh(mesh), jaxconv.installed():
        x, k = (jax.device_put(a, NamedSharding(mesh, s)) for a, s in ((X, P("d")), (K, P())))
        got = gradient(x, k)
    assert jax.typeof(got) == jax.typeof(k)
    assert np.array_equal(got, exact)


@pytest.mark.parametrize("asked", [P("d", "e"), P(None, "e"), P("d", None, "e")])
def test_an_explicit_sharding_that_is_asked_for(asked):
    """Of the channels, in a layout other than that of the data."""
    mesh = jax.make_mesh((2, 2), ("d", "e"), axis_types=(AxisType.Explicit,) * 2)
    wide = integers((3, 3, 6, 4), 3)

    def dense(x, k, sharding=None):
        return lax.conv_general_dilated(
            x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NCHW"), out_sharding=sharding
        )

    exact = dense(X, wide)
    with jax.set_mesh(mesh), jaxconv.installed():
        x = jax.device_put(X, NamedSharding(mesh, P("d")))
        k = jax.device_put(wide, NamedSharding(mesh, P(None, None, None, "e")))
        got = jax.jit(dense, static_argnums=2)(x, k, asked)
    assert tuple(got.sharding.spec)[: len(asked)] == tuple(asked)
    assert np.array_equal(got, exact)


@pytest.mark.parametrize("check_vma", [False, True])
def test_shard_map(check_vma):
    mesh = jax.make_mesh((4,), ("d",), axis_types=(AxisType.Auto,))
    split = jax.shard_map(
        depthwise, mesh=mesh, in_specs=(P("d"), P()), out_specs=P("d"), check_vma=check_vma
    )
    check(jax.grad(lambda x, k: (split(x, k) ** 2).sum(), (0, 1)), X, K)


# Export.


def test_a_symbolic_batch():
    (batch,) = export.symbolic_shape("b")
    types = [jax.ShapeDtypeStruct(s, np.float32) for s in ((batch, *X.shape[1:]), K.shape)]
    with jaxconv.installed():
        exported = export.export(jax.jit(jax.grad(loss, (0, 1))))(*types)
        plain = export.export(jax.jit(jaxconv.convolution))(types[0], integers((1, 1, 6, 2), 3))
    assert (
        exported.mlir_module()
        != export.export(jax.jit(jax.grad(loss, (0, 1))))(*types).mlir_module()
    )
    same(exported.call(X, K), jax.grad(loss, (0, 1))(X, K))
    assert plain.call(X, integers((1, 1, 6, 2), 3)).shape == (*X.shape[:3], 2)


def test_several_platforms():
    """On CPU ours, on the others lax's, in one program."""
    platforms = ["cpu", "cuda", "tpu"]

    def both(x, k):
        first = jaxconv.convolution(x, k, strides=(2, 1), auto_pad="same_upper", groups=6)
        return first + depthwise(x, k)

    expected = both(X, K)
    with jaxconv.installed():
        exported = export.export(jax.jit(both), platforms=platforms)(X, K)
    same(exported.call(X, K), expected)
    assert exported.mlir_module().count("stablehlo.case") >= 1


@pytest.fixture
def restored():
    yield
    jaxconv.uninstall()


PLATFORMS = {"cpu": ["cpu"], "gpu": ["cuda", "rocm"], "tpu": ["tpu"]}


@pytest.mark.parametrize("platform", PLATFORMS)
def test_one_platform_is_taken_over(restored, platform):
    """By its own table: the others stay as they are, and come back."""
    weights = integers((3, 3, 3, 12), 2)

    def texts(function):
        return {
            name: jax.jit(function).trace(X, weights).lower(lowering_platforms=(name,)).as_text()
            for names in PLATFORMS.values()
            for name in names
        }

    def groups(x, k):
        return lax.conv_general_dilated(
            x, k, (2, 1), "SAME", dimension_numbers=LAST, feature_group_count=2
        )

    before = texts(groups)
    jaxconv.install(platform)
    after = texts(groups)
    assert {name for name in after if after[name] != before[name]} == {*PLATFORMS[platform]}
    jaxconv.uninstall()
    assert texts(groups) == before


# There and back.


def lowered():
    return jax.jit(loss).lower(X, K).as_text()


@pytest.mark.usefixtures("restored")
def test_install_and_uninstall():
    """What is compiled already is compiled again, and called as before after that."""
    compiled = jax.jit(lambda x, k: depthwise(x, k))  # its own cache
    expected, before = compiled(X, K), lowered()
    assert compiled._cache_size() == 1
    for _ in range(2):
        jaxconv.install()
        same(compiled(X, K), expected)
        assert lowered() != before
        assert compiled._cache_size() == 2
    for _ in range(2):
        jaxconv.uninstall()
        same(compiled(X, K), expected)
        assert lowered() == before
    jaxconv.install()
    same(compiled(X, K), expected)
    assert compiled._cache_size() == 2


@pytest.mark.usefixtures("restored")
def test_contexts_within_each_other():
    without = lowered()
    with jaxconv.installed():
        within = lowered()
        assert within != without
        with jaxconv.installed(False):
            assert lowered() == without
        assert lowered() == within
        jaxconv.install()
        jaxconv.uninstall()
        assert lowered() == within
    assert lowered() == without
    jaxconv.install()
    assert lowered() == within
    with jaxconv.installed(False):
        assert lowered() == without
    with jaxconv.installed():
        pass
    assert lowered() == within


@pytest.mark.usefixtures("restored")
def test_threads():
    """`install` holds in all of them, `installed` in its own."""
    without, entered, left = lowered(), threading.Event(), threading.Event()
    found = {}

    def inside():
        with jaxconv.installed():
            entered.set()
            found["inside"] = lowered()
            left.wait(60)

    def run(function, name):
        thread = threading.Thread(target=lambda: found.update({name: function()}))
        thread.start()
        return thread

    thread = run(inside, "none")
    assert entered.wait(60)
    run(lowered, "beside").join()
    left.set()
    thread.join()
    jaxconv.install()
    run(lowered, "all").join()
    assert found["inside"] != without
    assert found["beside"] == without
    assert found["all"] == found["inside"]


@pytest.mark.usefixtures("restored")
def test_while_programs_run_and_are_compiled():
    expected, done, wrong = depthwise(X, K), threading.Event(), []

    def run():
        while not done.is_set():
            for function in (compiled, jax.jit(lambda x, k: depthwise(x, k))):
                wrong.append(not np.array_equal(function(X, K), expected))

    # A program that is lowered while `install` is called may be either; so not for other tests.
    compiled = jax.jit(lambda x, k: depthwise(x, k))
    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        jaxconv.install()
        same(compiled(X, K), expected)
        jaxconv.uninstall()
        same(compiled(X, K), expected)
    done.set()
    for thread in threads:
        thread.join(60)
    assert len(wrong) > 1
    assert not any(wrong)


@pytest.mark.usefixtures("restored")
def test_within_a_function_that_is_traced():
    """It holds from there on, for the program that is being traced as well."""

    def switched(x, k):
        jaxconv.install()
        return depthwise(x, k)

    without = jax.jit(depthwise).lower(X, K).as_text()
    within = jax.jit(switched).lower(X, K).as_text()
    assert jaxconv.enabled()
    assert jax.jit(depthwise).lower(X, K).as_text() != without
    assert "feature_group_count = 6" in without
    assert "feature_group_count = 6" not in within
    same(jax.jit(switched)(X, K), depthwise(X, K))


# The library itself, and what it is told beside.


@pytest.mark.parametrize("forced", [None, "reference"])
def test_the_library_does_not_come_back_to_itself(forced):
    """Its own operations are lowered as they are without."""

    def text():
        return (
            jax.jit(jax.grad(lambda x, k: jaxconv.convolution(x, k, groups=6).sum(), (0, 1)))
            .lower(X, K)
            .as_text()
        )

    with jaxconv.forced(forced):
        before = text()
        with jaxconv.installed():
            assert text() == before


def test_forced():
    with jaxconv.installed():
        chosen = lowered()
        with jaxconv.forced("reference"):
            assert lowered() != chosen
            same(loss(X, K), jax.jit(loss)(X, K))


def test_measured():
    measure = partial(jaxconv.measure, depthwise, X, K)
    with pytest.raises(ValueError, match="must contract something"):
        measure()
    with jaxconv.installed():
        measured = measure()
        assert len(measured.milliseconds) == 1
        with jaxconv.forced(measured):
            same(jax.jit(depthwise)(X, K), depthwise(X, K))


@pytest.mark.parametrize(
    ("lhs_dilation", "k", "expected"),
    [((1,), 3, "HIGHEST, DEFAULT"), ((2,), 9, "DEFAULT, HIGHEST")],
)
def test_precision(lhs_dilation, k, expected):
    """Each operand's own; a transposed convolution's weights gradient exchanges the two."""
    x, k = integers((2, 2, 9), 1), integers((2, 2, k), 2)
    function = partial(
        lax.conv_general_dilated, window_strides=(1,), padding=[(0, 0)], lhs_dilation=lhs_dilation,
        dimension_numbers=("NCH", "OIH", "NCH") if k.shape[2] == 3 else ("CNH", "OIH", "NCH"),
        precision=("highest", "default"),
    )  # fmt: skip
    with jaxconv.installed(), jaxconv.forced("reference"):
        text = jax.jit(function).lower(x, k).as_text()
    assert re.findall(r"#stablehlo<precision (\w+)>", text) == expected.split(", ")


def test_a_stride_together_with_lhs_dilation_stays_with_lax():
    """As does what `jaxconv.lax` hands on, which test_functions.py asks about."""
    lhs, rhs = integers((2, 4, 6), 1), integers((6, 4, 3), 2)
    function = jax.jit(
        partial(lax.conv_general_dilated, window_strides=(2,), padding=[(0, 0)], lhs_dilation=(2,))
    )
    text = function.lower(lhs, rhs).as_text()
    assert [row.to for row in jaxconv.explain(function, lhs, rhs).rows] == [None]
    with jaxconv.installed():
        assert function.lower(lhs, rhs).as_text() == text


def test_complex_numbers_are_three_convolutions():
    x, k = (integers(s, 1) + 1j * integers(s, 2) for s in (X.shape, K.shape))
    check(depthwise, x.astype(np.complex64), k.astype(np.complex64))


# Who else calls lax.


def test_numpy_and_scipy_of_jax():
    x, k = integers((40,), 1), integers((7,), 2)

    def both(x, k):
        return jnp.convolve(x, k), jax.scipy.signal.convolve2d(x.reshape(5, 8), k.reshape(1, 7))

    theirs = both(x, k)
    with jaxconv.installed():
        same(both(x, k), theirs)
    assert [row.to for row in jaxconv.explain(both, x, k).rows] == ["coarse", "coarse"]

    def by_kernel(k):
        return jax.grad(lambda k: jnp.convolve(x, k).sum())(k)

    left = [row.why for row in jaxconv.explain(by_kernel, k).rows if not row.to]
    assert left == [install.FASTER]
    theirs = by_kernel(k)
    with jaxconv.installed():
        same(by_kernel(k), theirs)


# What it does not know, or cannot do.


def raise_at_once(first, second):
    raise RuntimeError("no such form")


UNKNOWN_P = Primitive("unknown")
UNKNOWN_P.def_abstract_eval(lambda x: x)


def raise_in_a_loop(first, second):
    """While JAX writes the body of a loop, which is then not ended."""
    return lax.fori_loop(0, 3, lambda _, x: UNKNOWN_P.bind(jnp.sin(x)), first)


def raise_in_a_function(first, second):
    return jax.jit(lambda x: UNKNOWN_P.bind(jnp.sin(x)))(first)


def fail_to_kernel(fail, patched):
    emit = plan._emit

    def emit_others(of, numerics, first, second, extras):
        if of.problem.result == "kernel":
            return fail(first, second)
        return emit(of, numerics, first, second, extras)

    patched(plan, "_emit", emit_others)


FAILURES = {
    raise_at_once: "RuntimeError: no such form",
    raise_in_a_loop: "NotImplementedError: MLIR translation rule for primitive 'unknown'",
    raise_in_a_function: "NotImplementedError: MLIR translation rule for primitive 'unknown'",
}


@pytest.fixture
def lenient(monkeypatch):
    monkeypatch.setenv("JAXCONV_STRICT", "0")
    monkeypatch.setattr(install, "_FAILURES", [])


@pytest.mark.parametrize("fail", FAILURES)
def test_a_form_that_fails_leaves_the_convolution_to_lax(patched, lenient, fail):
    """In a program with others of the library's, that compiles and is right; with one warning."""
    fail_to_kernel(fail, patched)
    both = jax.jit(jax.grad(lambda x, k: loss(depthwise(x, k[..., :6]), k), (0, 1)))
    expected = both(X, K)
    with jaxconv.installed(), jaxconv.profile() as report, pytest.warns(match="STRICT=1") as warned:
        same(both(X, K), expected)
    rows = [(str(row.to), row.count) for row in report.rows]
    assert sorted(rows) == [("None", 1)] * 2 + [("coarse", 1)] * 2 + [("fine", 1)] * 2
    (warning,) = warned
    for text in [str(warning.message), *(row.why for row in report.rows if not row.to)]:
        assert FAILURES[fail] in text


def test_a_form_that_fails_raises_where_it_is_asked_to(patched):
    fail_to_kernel(raise_at_once, patched)
    with jaxconv.installed(), pytest.raises(RuntimeError, match="no such form"):
        jax.jit(jax.grad(loss, 1)).lower(X, K)


def test_a_parameter_of_a_later_jax_stays_with_lax():
    """The primitive of lax with one more parameter, whose rule of JAX's own takes it."""
    later_p = Primitive("conv_general_dilated")
    of_lax = lax.conv_general_dilated_p
    later_p.def_abstract_eval(lambda *a, speed, **params: of_lax.abstract_eval(*a, **params)[0])

    def original(ctx, *operands, speed, **params):
        return find_lowering_rule(of_lax, "cpu").keywords["original"](ctx, *operands, **params)

    install.register()
    rule = partial(install._lower, original=original, platform="cpu", primitive=of_lax)
    mlir.register_lowering(later_p, rule, platform="cpu")
    (equation,) = walk_equations(jax.make_jaxpr(depthwise)(X, K))
    expected = depthwise(X, K)
    with jaxconv.installed(), jaxconv.profile() as report:
        out = jax.jit(lambda x, k: later_p.bind(x, k, speed=3, **equation.params))(X, K)
    same(out, expected)
    (row,) = report.rows
    assert row.how == "stays with lax: unknown parameter speed"


# The list of a program.


def test_the_convolutions_of_a_program_are_listed():
    def step(x, k, up):
        def again(x, _):
            return x + depthwise(x, k).sum(), None

        x, _ = lax.scan(again, jax.checkpoint(lambda x: jnp.sin(depthwise(x, k)))(x), length=3)
        x = lax.conv_transpose(x, up, (2, 2), "SAME") + jaxconv.convolution(x, up[:1, :1]).sum()
        return x.sum() + lax.conv(x.astype(int), x.astype(int), (1, 1), "VALID").sum().astype(
            np.float32
        )

    report = jaxconv.explain(step, X, integers((3, 3, 1, 6), 2), integers((3, 3, 6, 4), 3))
    listed = sorted((str(row.to), row.written_by, row.count) for row in report.rows)
    assert listed == [
        ("None", "lax", 1), ("coarse", "jaxconv", 1),
        ("coarse", "lax", 1), ("coarse", "lax", 1), ("fine", "lax", 1),
    ]  # fmt: skip
    assert ["int32" in row.why for row in report.rows if not row.to] == [True]
    for word in ("data", "stays with lax", "float32[4,4,7,6]", "jit(step)"):
        assert word in str(report)
    assert jaxconv.explain(jnp.sin, X).rows == ()


def test_equal_convolutions_are_counted():
    report = jaxconv.explain(lambda x, k: depthwise(x, k) + depthwise(x, 2 * k), X, K)
    assert [row.count for row in report.rows] == [2]


# What is left out.


def taken(x=X, k=K):
    """The contractions of a step, forward and both gradients, that are taken over."""
    return [row.to for row in jaxconv.explain(jax.value_and_grad(loss, (0, 1)), x, k).rows]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ["coarse", "kernel", "fine"]),
        ({"only": "data gradient"}, [None, None, "fine"]),
        ({"only": ["data gradient", "weights gradient"]}, [None, "kernel", "fine"]),
        ({"without": "weights gradient"}, ["coarse", None, "fine"]),
        (
            {"only": ("forward", "weights gradient"), "without": "weights gradient"},
            ["coarse", None, None],
        ),
        ({"only": "forward"}, ["coarse", None, None]),
        ({"without": ("data gradient", "forward")}, [None, "kernel", None]),
    ],
)
def test_a_choice_by_direction(restored, given, expected):
    plain = jax.jit(lambda *a: jax.value_and_grad(loss, (0, 1))(*a))
    theirs = plain(X, K)
    jaxconv.install(**given)
    assert taken() == expected
    with jaxconv.profile() as report:
        same(plain(X, K), theirs)
    assert sorted(str(row.to) for row in report.rows) == sorted(map(str, expected))
    left = {row.why for row in report.rows if not row.to}
    assert all(why.startswith("left out by install(") for why in left)
    jaxconv.install()
    assert taken() == ["coarse", "kernel", "fine"]


@pytest.mark.parametrize("undone", [False, True])
def test_a_context_takes_over_all_directions(restored, undone):
    jaxconv.install(without=["forward", "data gradient", "weights gradient"])
    assert taken() == [None, None, None]
    if undone:
        jaxconv.uninstall()
    with jaxconv.installed():
        assert taken() == ["coarse", "kernel", "fine"]


DIRECTIONS = "'data gradient', 'weights gradient' or 'max pool gradient'"


@pytest.mark.parametrize(
    ("argument", "given", "listed"),
    [
        *(
            (argument, given, DIRECTIONS)
            for argument in ("only", "without")
            for given in ("weights", "coarse", ["forward", "onednn"], 3, [], [[]])
        ),
        *(("platform", given, "'cpu', 'gpu' or 'tpu'") for given in ("cuda", None, ["cpu"])),
    ],
)
def test_names_that_are_none(argument, given, listed):
    with pytest.raises((TypeError, ValueError)) as caught:
        jaxconv.install(**{argument: given})
    text = str(caught.value)
    assert text.startswith(f"install: `{argument}` must be ")
    assert listed in text
    assert text.endswith(f"; got {shown(given)}")
