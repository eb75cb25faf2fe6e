"""At the limits of sizes and values: huge attributes, no memory, -0.0, denormals, the same bits."""

import threading
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest

import jaxconv
from jaxconv._base.geometry import OPERANDS
from tests.support import oracle
from tests.support.exact import called
from tests.support.plugin import prints
from tests.support.small import SLOTS, TO, draw

# Attributes far beyond the data. XLA counts padded extents in 31 bits, and is wrong beyond them.

HUGE = 2**30
FAR = {
    # Of the dilated kernel only the middle reads anything.
    "dilation": {"dilations": HUGE, "pads_begin": HUGE, "pads_end": (HUGE, 0)},
    "dilation of one axis": {
        "dilations": (HUGE, 1),
        "pads_begin": (HUGE, 1),
        "pads_end": (HUGE, 0),
    },
    "stride": {"strides": HUGE, "pads_begin": 1, "pads_end": HUGE},
    # Every window reads something, by one tap of several.
    "both": {"strides": HUGE // 2, "dilations": HUGE, "pads_begin": HUGE, "pads_end": HUGE + 3},
    "coprime": {"strides": HUGE // 2, "dilations": HUGE - 1, "pads_begin": HUGE, "pads_end": HUGE},
    "some": {"strides": 2**20, "dilations": 2**23, "pads_begin": 2**23, "pads_end": 2**23},
}


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("form", [None, "portable"])
def test_far_beyond_the_data(form, groups):
    """Exact, for all three slots, and soon; all as one program."""
    draw = partial(np.random.default_rng(0).integers, -3, 3, endpoint=True)
    fine, kernel = draw(size=(2, 5, 4, 4)), draw(size=(3, 2, 4 // groups, 2 * groups))
    calls, given, expected = {}, [], []
    for name, of in FAR.items():
        attributes = of | {"groups": groups}
        coarse = draw(size=oracle.convolution(fine, kernel, **attributes).shape)
        tensors = {"fine": fine, "kernel": kernel, "coarse": coarse}
        for slot, op in TO.items():
            argument = {"fine": "dst_shape", "kernel": "weights_shape"}.get(slot)
            more = attributes | ({argument: tensors[slot].shape} if argument else {})
            arrays = operands(slot, tensors)
            calls[name, op] = partial(getattr(jaxconv, op), **more)
            given.append([x.astype(np.float32) for x in arrays])
            expected.append(getattr(oracle, op)(*arrays, **more))
    with jaxconv.forced(form):
        found = jax.jit(partial(called, calls.values()))(given)
    for key, one, exact in zip(calls, found, expected, strict=True):
        np.testing.assert_array_equal(one, exact, err_msg=str(key))


def test_a_stride_of_a_million():
    src, weights = np.float32([[[2], [3]]]), np.float32([[[5]], [[7]], [[9]]])
    dst = np.asarray(jaxconv.conv_transpose(src, weights, strides=10**6)).ravel()
    assert dst.size == 10**6 + 3
    assert dst.nonzero()[0].tolist() == [0, 1, 2, 10**6, 10**6 + 1, 10**6 + 2]
    assert dst[dst != 0].tolist() == [10, 14, 18, 15, 21, 27]


@pytest.mark.parametrize(
    ("op", "shapes", "attributes"),
    [
        ("convolution", [(2**15, 4, 1), (3, 1, 1)], {"pads_begin": 2**31 - 1}),
        ("conv_transpose", [(1, 4, 1), (3, 1, 1)], {"dst_shape": (1, 2**46, 1)}),
        ("convolution_backward_weights", [(1, 4, 2**23), (1, 1, 2**23)],
         {"weights_shape": (4, 2**23, 2**23)}),
    ],
)  # fmt: skip
def test_what_no_memory_holds(op, shapes, attributes):
    """XLA says so: a result of 2**46 elements, or more."""
    arrays = [np.ones(shape, np.float32) for shape in shapes]
    with pytest.raises(jax.errors.JaxRuntimeError, match="RESOURCE_EXHAUSTED"):
        jax.block_until_ready(getattr(jaxconv, op)(*arrays, **attributes))


PROBLEMS = draw(seed=11, count=3, ranks=(1, 2), most_channels=6)


def floats(problem, seed=0):
    rng = np.random.default_rng(seed)
    return {s: rng.standard_normal(shape, np.float32) for s, shape in problem.shapes.items()}


def operands(slot, tensors):
    return [tensors[s] for s in OPERANDS[slot]]


@pytest.mark.parametrize("slot", SLOTS)
@pytest.mark.parametrize("form", [None, "portable"])
def test_the_same_bits(form, slot):
    """Run to run, across threads, eagerly and under jit."""
    for problem in PROBLEMS:
        given, function = operands(slot, floats(problem)), problem.op(TO[slot])
        with jaxconv.forced(form):
            first = np.asarray(function(*given)).tobytes()
            jitted = jax.jit(function)
            found = [np.asarray(f(*given)).tobytes() for f in (function, jitted, jitted)]

        def run(function=jitted, given=given, found=found):
            with jaxconv.forced(form):
                found += [np.asarray(function(*given)).tobytes() for _ in range(5)]

        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [first] * 23


@pytest.mark.parametrize("slot", SLOTS)
@pytest.mark.parametrize("form", [None, "portable"])
def test_negative_zeros_and_denormals(form, slot):
    """-0.0 is 0.0; a denormal may be flushed, and changes no result by more than itself."""
    tiny = np.finfo(np.float32).smallest_normal
    for problem in PROBLEMS:
        tensors = floats(problem)
        zeros, negative, denormal = ({s: x.copy() for s, x in tensors.items()} for _ in range(3))
        for s in tensors:
            at = np.abs(tensors[s]) < 0.5
            zeros[s][at], negative[s][at], denormal[s][at] = 0.0, -0.0, tiny / 4
        with jaxconv.forced(form):
            function = jax.jit(problem.op(TO[slot]))
            base, same, near = (function(*operands(slot, t)) for t in (zeros, negative, denormal))
        np.testing.assert_array_equal(same, base)
        sizes = operands(slot, {s: np.abs(x) + 1 for s, x in tensors.items()})
        most = tiny * np.asarray(function(*sizes))
        assert np.isfinite(near).all()
        rounding = 2 * np.finfo(np.float32).eps * np.asarray(function(*sizes))
        assert (np.abs(np.asarray(near) - np.asarray(base)) <= most + rounding).all()


LEFT_BEHIND = """
import gc
from pathlib import Path
import jax, jaxconv, numpy as np

kernel = np.ones((3, 1, 1), np.float32)
for n in range(60):
    long, short = (np.ones((1, n + k, 1), np.float32) for k in (3, 1))
    jaxconv.convolution(long, kernel)
    jaxconv.conv_transpose(long, kernel)
    jaxconv.convolution_backward_weights(long, short, (3, 1, 1))
    if n % 15 == 14:
        jax.clear_caches()
        gc.collect()
        resident_pages = int(Path("/proc/self/statm").read_text().split()[1])
        print(resident_pages * 4096 // 2**20, len(jax.live_arrays()))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_180_programs_leave_nothing_behind():
    """`jax.clear_caches` frees what was compiled: 45 programs each time, of 1.5 MiB each.

    In a process of its own: what other tests left in memory, new programs are scattered over.
    """
    out, _ = prints(LEFT_BEHIND)
    found = [tuple(map(int, line.split())) for line in out.splitlines()]
    (first_mib, _), *_, (last_mib, arrays) = found
    assert arrays == 0, found
    assert last_mib - first_mib < 100, found
