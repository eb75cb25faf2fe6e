"""jaxconv.install, and taken back: in threads, by platform and direction, and where it fails.

Whether a program is lax's own is read from its text: a depthwise convolution is never lowered
as lax does it.
"""

import threading
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxconv
from jaxconv._base import environment
from jaxconv._base.jax_names import Primitive, find_lowering_rule, mlir, walk_equations
from jaxconv._base.messages import shown
from jaxconv._lax import install
from jaxconv._lowering import plan
from tests.support.forms import integers
from tests.support.lax_oracle import K, X, conv, depthwise, loss, same


@pytest.fixture(autouse=True)
def restored():
    yield
    jaxconv.uninstall()


PLATFORMS = {"cpu": ["cpu"], "gpu": ["cuda", "rocm"], "tpu": ["tpu"]}


@pytest.mark.parametrize("platform", PLATFORMS)
def test_one_platform_is_taken_over(platform):
    """By its own table: the others stay as they are, and come back."""
    weights = integers((3, 3, 3, 12), 2)

    def texts(function):
        return {
            name: jax.jit(function).trace(X, weights).lower(lowering_platforms=(name,)).as_text()
            for names in PLATFORMS.values()
            for name in names
        }

    def pooled(x, k):
        pooling = -np.inf, lax.max, (1, 2, 2, 1), (1, 1, 1, 1), "VALID"
        pool = jax.grad(lambda y: lax.reduce_window(y, *pooling).sum())
        return pool(conv(x, k, (2, 1), groups=2))

    before = texts(pooled)
    jaxconv.install(platform)
    after = texts(pooled)
    assert {name for name in after if after[name] != before[name]} == {*PLATFORMS[platform]}
    pools = {name for name in after if "select_and_scatter" in after[name]}
    assert pools == after.keys() - ({"cpu"} & {platform}), "pools, on CPU alone"
    jaxconv.uninstall()
    assert texts(pooled) == before


def lowered():
    return jax.jit(loss).lower(X, K).as_text()


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


def test_a_warning_that_is_an_error_is_no_failure_of_a_form(lenient, monkeypatch):
    monkeypatch.setenv("JAXCONV_ONEDNN", "off")
    environment._check.cache_clear()
    with jaxconv.installed(), pytest.raises(UserWarning, match="JAXCONV_ONEDNN must be 0, 1"):
        jax.jit(lambda x: loss(x, K)).lower(X)


def test_a_form_that_is_asked_for_computes_or_raises(lenient):
    with (
        jaxconv.installed(),
        jaxconv.forced("slide"),
        pytest.raises(ValueError, match="one that c"),
    ):
        jax.jit(depthwise).lower(X, K)


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
        ({"only": ("forward", "weights gradient"), "without": "weights gradient"},
         ["coarse", None, None]),
        ({"only": "forward"}, ["coarse", None, None]),
        ({"without": ("data gradient", "forward")}, [None, "kernel", None]),
    ],
)  # fmt: skip
def test_a_choice_by_direction(given, expected):
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
def test_a_context_takes_over_all_directions(undone):
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
    with pytest.raises(ValueError, match="`only` and `without` must leave a direction; got only="):
        jaxconv.install(only="forward", without=["forward", "data gradient"])
    assert text.startswith(f"install: `{argument}` must be ")
    assert listed in text
    assert text.endswith(f"; got {shown(given)}")
