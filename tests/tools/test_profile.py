"""What `profile` and the log say of the convolutions that JAX compiles."""

import csv
import inspect
import logging
import re
import sysconfig
import threading
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxconv
from jaxconv._base import environment
from jaxconv._base.environment import Listener
from jaxconv._lax import from_lax, install
from jaxconv._tools import log, profile_row
from jaxconv._tools import profile as module

LAST = ("NHWC", "HWIO", "NHWC")
X, W = jnp.ones((2, 9, 9, 4)), jnp.ones((3, 3, 4, 6))
IMAGE = jnp.ones((1, 1, 3, 3), int)


def strided(x, w):
    return lax.conv_general_dilated(x, w, (2, 2), "VALID", dimension_numbers=LAST)


def profiled(function, *args, installed=True):
    """The report of a function that is lowered, and neither compiled nor run."""
    with jaxconv.installed(installed), jaxconv.profile() as report:
        jax.jit(lambda *args: function(*args)).lower(*args)
    return report


def test_the_way_of_each_convolution():
    def step(x, w, image):
        slopes = jax.grad(lambda x, w: strided(x, w).sum(), (0, 1))(x, w)
        return slopes, lax.conv(image, image, (1, 1), "SAME")

    report = profiled(step, X, W, IMAGE)
    rows = {row.to: row for row in report.rows}
    assert set(rows) == {"kernel", "fine", None}  # the value itself is not needed
    each_gradient = 2 * 2 * 4 * 6 * 9 * 16
    assert [rows[to].flops for to in rows] == [each_gradient, each_gradient, 2 * 49]
    assert report.share == 2 * each_gradient / (2 * each_gradient + 98)
    assert rows[None].form == "lax"
    assert rows[None].why.startswith("operands of type int")
    assert rows["fine"].form.startswith("phases")
    assert "residues" in rows["fine"].why
    assert rows["fine"].window == "lhs_dilation 2"
    assert rows["kernel"].window == "rhs_dilation 2"
    assert {row.written_by for row in report.rows} == {"lax"}


def twice(conv):
    """A model that has a convolution in two scopes."""

    def model(x, w):
        with jax.named_scope("first"):
            y = conv(x, w)
        with jax.named_scope("second"):
            return y + conv(x, w)

    return model


def test_equal_convolutions_are_counted_by_name_and_line():
    (row,) = profiled(twice(strided), X, W).rows
    line = inspect.getsourcelines(strided)[1] + 1
    assert row.count == 2
    assert row.lines == (f"{__file__}:{line}",)
    assert [name.split("/")[-1] for name in row.names] == ["first", "second"]


def test_a_scope_has_the_names_that_a_user_gave():
    names = ["jit(step)/jvp(jit(f(2)))", "jit(step)/transpose(jvp(Net(2)))/vmap(block(1))/remat()"]
    assert profile_row._scope(names) == "Net(2)/block(1)"


def test_a_jitted_function_is_lowered_once_with_the_name_of_its_first_call():
    (row,) = profiled(twice(jax.jit(lambda x, w: strided(x, w))), X, W).rows
    assert row.count == 1
    assert row.names[0].endswith("/first")


def test_an_operation_has_the_line_of_its_caller():
    with jaxconv.profile() as report:
        line = inspect.currentframe().f_lineno + 1
        jax.jit(lambda x, w: jaxconv.convolution(x, w, strides=(2, 1))).lower(X, W)
    (row,) = report.rows
    assert (row.written_by, row.to, row.window) == ("jaxconv", "coarse", "stride 2x1")
    assert row.lines == (f"{__file__}:{line}",)


@pytest.mark.parametrize(
    ("path", "a_library"),
    [
        (f"{sysconfig.get_path('purelib')}/library.py", True),
        # folders whose names begin like those of a library
        (f"{Path(jaxconv.__file__).parent}_experiments/train.py", False),
        (f"{sysconfig.get_path('stdlib')}_experiments/train.py", False),
    ],
    ids=["library", "beside the package", "beside Python"],
)
def test_the_line_is_the_innermost_of_a_user_s_code(path, a_library):
    scope = {}
    exec(compile("def layer(x, w, conv): return conv(x, w)", path, "exec"), scope)

    def block(x, w):
        return scope["layer"](x, w, partial(lax.conv, window_strides=(1, 1), padding="SAME"))

    (row,) = profiled(block, IMAGE, IMAGE).rows
    own = f"{__file__}:{inspect.getsourcelines(block)[1] + 1}"
    assert row.lines == (own if a_library else f"{path}:1",)


@pytest.mark.parametrize(
    "params",
    [
        {"window_strides": (2, 1), "padding": [(1, 0), (3, 2)], "rhs_dilation": (1, 2)},
        {"window_strides": (1, 1), "padding": [(2, 1), (0, -1)], "lhs_dilation": (3, 2)},
        {"window_strides": (1, 2), "padding": "SAME", "feature_group_count": 2},
        {"window_strides": (1, 1), "padding": "VALID", "batch_group_count": 2},
    ],
)
def test_operations_are_those_of_a_sum_of_ones(params):
    """With all ones, each product adds 1 to the sum of all results."""
    groups, conv = params.get("feature_group_count", 1), partial(lax.conv_general_dilated, **params)
    x, w = np.ones((2, 4, 7, 5), np.float32), np.ones((6, 4 // groups, 3, 2), np.float32)
    flops = 2 * int(conv(x, w).sum())
    for installed in (True, False):
        report = profiled(conv, x, w, installed=installed)
        (row,) = report.rows
        assert (row.flops, row.to is not None, report.share) == (flops, installed, installed)
    assert (row.form, row.why) == ("lax", "jaxconv.install() does not hold")


@pytest.mark.parametrize("installed", [True, False])
def test_a_symbolic_batch_has_no_operations(installed):
    (batch,) = jax.export.symbolic_shape("b")
    x = jax.ShapeDtypeStruct((batch, 9, 9, 4), X.dtype)
    with jaxconv.installed(installed), jaxconv.profile() as report:
        jax.export.export(jax.jit(strided))(x, W)
    (row,) = report.rows
    assert (row.to is not None, row.flops, report.share) == (installed, None, installed)
    assert "?" in str(report)


def test_only_programs_with_convolutions_are_timed():
    def with_one(x, w):
        return strided(x, w) + 7

    with jaxconv.profile() as report:
        jax.jit(with_one)(X, W)
        lowering, compiling = report.lowering_seconds, report.compiling_seconds
        jax.jit(lambda x: x + 7)(X)
    jax.jit(lambda x, w: with_one(x, w) * 2)(X, W)
    assert report.programs == {"jit(with_one)"}
    assert len(report.rows) == 1
    assert (report.lowering_seconds, report.compiling_seconds) == (lowering, compiling)
    assert min(lowering, compiling) > 0


def test_what_other_threads_compile_is_reported():
    with jaxconv.profile() as outer, jaxconv.profile() as inner:
        thread = threading.Thread(target=lambda: jax.jit(lambda *a: strided(*a)).lower(X, W))
        thread.start()
        thread.join()
    assert len(outer.rows) == len(inner.rows) == 1


def test_a_listener_that_leaves_keeps_no_other_from_hearing(monkeypatch):
    """As where a profile of another thread ends."""
    heard = []
    leaves = Listener(lambda: True, lambda lowered: environment.LISTENERS.remove(leaves))
    stays = Listener(lambda: True, heard.append)
    monkeypatch.setattr(environment, "LISTENERS", [leaves, stays])
    jax.jit(lambda x, w: jaxconv.convolution(x, w)).lower(X, W)
    assert len(heard) == 1


def test_a_report_of_nothing_says_why():
    with jaxconv.profile() as report:  # and somebody clears JAX's listeners
        jax.monitoring.unregister_event_duration_listener(report._time)
    assert str(report) == report._repr_markdown_() == module.NOTHING
    assert str(report.compare()).startswith("Nothing to compare: ")
    report._pending.add(-1)  # another thread's
    report._time(module.LOWERING, 1.0, fun_name="a program without convolutions")
    assert (report.programs, environment.LISTENERS) == (set(), [log.LISTENER])


def test_a_report_changes_no_program():
    def model(x, w):
        return jax.grad(lambda x: (strided(x, w) + strided(x, w)).sum())(x)

    with jaxconv.installed():
        plain = jax.jit(model).lower(X, W).as_text()
        with jaxconv.profile():
            assert jax.jit(lambda x, w: model(x, w)).lower(X, W).as_text() == plain.replace(
                "jit_model", "jit__lambda"
            )


def test_it_reads_well(tmp_path):
    def large(extent):
        with jax.named_scope("a_layer_with_a_name_of_some_length_" * 3):
            lhs, rhs = jnp.ones((1, 8, extent, extent, 16000)), jnp.ones((3, 3, 3, 16000, 1))
            return lax.conv_transpose(lhs, rhs, (2, 1, 3), "SAME", (1, 2, 3))

    def model(x, w):
        return strided(x, w), [large(extent) for extent in range(3, 12)]

    report = profiled(model, X, W)
    text, table = str(report), report._repr_markdown_()
    lines = text.splitlines()
    assert max(map(len, lines)) <= module.WIDTH
    assert "and 4 more" in text
    assert re.search(r"\(100\.0 % of the .*\n.*\n   1     662  data    float32\[", text)
    assert re.search(r" 1    0\.01  forward .*\[2,9,9,4\] \[3,3,4,6\] .* test_profile\.py:", text)
    assert "lambda>): 10, of 10 kinds" in lines[0]
    assert len({line.count("|") for line in table.splitlines() if "|" in line}) == 1
    report.to_csv(tmp_path / "report.csv")
    with (tmp_path / "report.csv").open(newline="") as file:
        written = list(csv.DictReader(file))
    assert [row["flops"] for row in written] == [str(row.flops) for row in report.rows]
    assert written[0]["operands"] == report.rows[0].operands


def test_the_log_has_a_line_for_each(caplog):
    with caplog.at_level(logging.INFO, "jaxconv"), jaxconv.installed():
        jax.jit(lambda x, w: strided(x, w) + 1).lower(X, W)
        jax.jit(lambda x: lax.conv(x, x, (1, 1), "SAME")).lower(IMAGE)
    taken, kept = (record.getMessage() for record in caplog.records)
    types = "float32[2,9,9,4], float32[3,3,4,6]"
    assert taken.startswith(f"conv_general_dilated of {types}: ")
    assert f"({__file__}:" in taken
    assert "stays with lax" not in taken
    assert ": stays with lax: operands of type int" in kept
    caplog.clear()
    jax.jit(lambda x, w: strided(x, w) + 2).lower(X, W)
    assert not caplog.records


def test_the_environment_sets_up_the_log(monkeypatch, capsys):
    logger = logging.Logger("jaxconv")
    monkeypatch.setattr(log, "LOG", logger)
    monkeypatch.delenv("JAXCONV_LOG", raising=False)
    log.set_up()
    assert (logger.handlers, logger.level) == ([], logging.WARNING)
    monkeypatch.setenv("JAXCONV_LOG", "Info")
    log.set_up()
    log.set_up()
    logger.info("heard")
    logger.debug("not heard")
    assert capsys.readouterr().err == "jaxconv: heard\n"
    monkeypatch.setenv("JAXCONV_LOG", "loud")
    text = "^JAXCONV_LOG must be debug, info, warning, error or critical; got 'loud', which counts"
    environment._check.cache_clear()
    logger.setLevel(logging.NOTSET)
    with pytest.warns(UserWarning, match=text):
        log.set_up()
    assert logger.level == logging.WARNING


def test_lax_and_the_library_are_compared(patched, capsys):
    def model(x, w):
        slopes = jax.grad(lambda x, w: strided(x, w).sum(), (0, 1))(x, w)
        return slopes, jaxconv.convolution(x, w), lax.conv(IMAGE, IMAGE, (1, 1), "SAME")

    report = profiled(model, X, W)

    def fail(*args, **kwargs):
        raise AssertionError("lax's way was taken over")

    patched(install, "find_mapped", fail)
    jaxconv.install()
    try:
        with jaxconv.profile() as outer:
            found = report.compare()
    finally:
        jaxconv.uninstall()
    assert len(found.listed) == 3
    assert (found.left_out, outer.rows) == (0, ())
    assert [one.difference for one in found.listed] == [0, 0, 0]
    assert all(min(one.jaxconv, one.lax) > 0 for one in found.listed)
    assert capsys.readouterr().err == "compare: 3 kinds of convolution, about 4 s\n"
    assert max(map(len, str(found).splitlines())) <= module.WIDTH
    patched(install, "compute", lambda *a, **k: from_lax.compute(*a, **k).at[:].add(1.0))
    differences = {one.what.split()[2]: one.difference for one in report.compare().listed}
    assert differences["forward"] == 0  # the operation of the library
    assert min(differences["data"], differences["weights"]) > 0


def test_what_raises_is_a_row_beside_the_others(patched):
    def model(x, w):
        return strided(x, w), jaxconv.convolution(x, w)

    def fail(*args, **kwargs):
        raise ValueError("out of\nmemory")

    report = profiled(model, X, W)
    patched(install, "compute", fail)
    found = report.compare()
    assert len(found.listed) == 1
    [failed] = found.failed
    assert failed.endswith("stride 2\n  failed: ValueError: out of")
    assert failed in str(found)


def test_what_is_not_compared():
    mesh = jax.make_mesh((8,), ("i",), axis_types=(AxisType.Auto,))
    x = jax.device_put(jnp.ones((8, 9, 9, 4)), NamedSharding(mesh, P("i")))
    (batch,) = jax.export.symbolic_shape("b")
    symbolic, large = (jax.ShapeDtypeStruct((n, 9, 9, 4), x.dtype) for n in (batch, 2**20))
    with jaxconv.installed(), jaxconv.profile() as report:
        jax.jit(lambda x, w: strided(x, w)).lower(x, W)
        jax.export.export(jax.jit(strided))(symbolic, W)
        jax.jit(lambda x, w: strided(x, w)).lower(large, W)
    found = report.compare()
    assert (found.listed, found.left_out, "left out: 3" in str(found)) == ((), 3, True)
    assert "% of the convolutions' work, as far as it is known, " in " ".join(str(report).split())


def test_a_program_for_several_platforms():
    with jaxconv.installed(), jaxconv.profile() as report:
        exported = jax.export.export(jax.jit(strided), platforms=("cpu", "tpu"))(X, W)
    assert report.rows[0].count == 1
    assert report.compare().left_out == 1  # exported: not what is timed here
    assert np.array_equal(exported.call(X, W), strided(X, W))
