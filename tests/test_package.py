"""The package's manners: what importing it does, what it exports, what it costs to call."""

import ast
import inspect
import pickle
import re
import timeit
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import jaxconv
from jaxconv import _lowering
from jaxconv._contract import contractions
from jaxconv._rules.op import OPS
from tests.support.plugin import python
from tests.support.timing import takes_at_most

ROOT = Path(jaxconv.__file__).parent
SOURCES = {str(path.relative_to(ROOT)): path.read_text() for path in sorted(ROOT.rglob("*.py"))}


def test_importing_starts_no_backend_prints_nothing_and_warns_of_nothing(monkeypatch):
    """No backend is of this name, so that starting one fails, as the last step shows."""
    code = """
import jaxconv, jaxconv.onednn, jax
try:
    jax.devices()
except RuntimeError as error:
    assert "nonesuch" in str(error), error
else:
    raise SystemExit("a backend was there already")
"""
    monkeypatch.setenv("JAX_PLATFORMS", "nonesuch")
    ran = python("-W", "error", "-c", code)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


@pytest.mark.timed
def test_importing_adds_little_to_importing_jax():
    """A part of JAX's own time, since processors differ: 0.08 to 0.10 where it was measured."""
    code = """
import time
start = time.process_time()
import jax
between = time.process_time()
import jaxconv
print(between - start, time.process_time() - between)
"""
    runs = [tuple(map(float, python("-c", code).stdout.split())) for _ in range(7)]
    of_jax, added = map(min, zip(*runs, strict=True))
    assert added < 0.12 * of_jax


LATER = {f"jaxconv.{module}" for module in jaxconv._MODULES.values()}


def test_importing_imports_nothing_that_is_imported_when_first_used():
    """And all exported names are there after a mere `import jaxconv`, and no others."""
    assert {"jaxconv.onednn", "jaxconv.lax", "jaxconv._lowering"} <= LATER
    code = """
import sys, jaxconv
print(*(name for name in dir(jaxconv) if not name.startswith("_")))
print(*(module for module in sys.modules if module.startswith("jaxconv.")))
"""
    names, loaded = (line.split() for line in python("-c", code).stdout.splitlines())
    assert "jaxconv._ops.convolution" in loaded
    assert LATER.isdisjoint(loaded)
    assert names == jaxconv.__all__ == sorted(jaxconv.__all__)
    with pytest.raises(AttributeError, match="module 'jaxconv' has no attribute 'convolve'"):
        jaxconv.convolve  # noqa: B018


def test_what_is_imported_when_first_used_is_what_type_checkers_see():
    body = ast.parse(SOURCES["__init__.py"]).body
    checking = next(node for node in body if isinstance(node, ast.If))
    seen = dict(reversed(name.rsplit(".", 1)) for name in imports(ast.unparse(checking)))
    expected = {
        name: "jaxconv" if module == name else f"jaxconv.{module}"
        for name, module in jaxconv._MODULES.items()
    }
    assert seen == expected


def test_importing_the_rest_recompiles_nothing():
    """The contexts that are part of the key of every jit are there from the beginning."""
    code = """
import jax, jaxconv
f = jax.jit(lambda x: print("traced") or x)
f(1.0)
from jaxconv import *
f(1.0)
print(*sorted(name for name in globals() if name in jaxconv.__all__))
"""
    ran = python("-c", code)
    assert ran.stdout.split() == ["traced", *jaxconv.__all__], ran.stderr


def test_each_platform_with_a_table_has_a_lowering():
    assert set(contractions.PLATFORMS) == set(_lowering.TABLES)


def test_what_is_imported_when_first_used_is_kept():
    """So that a second use costs nothing, and `monkeypatch` and `pickle` find one object."""
    for name in jaxconv._MODULES:
        value = getattr(jaxconv, name)
        assert vars(jaxconv)[name] is value
        if not inspect.ismodule(value):
            assert pickle.loads(pickle.dumps(value)) is value


COMMON = {
    "strides": 1, "pads_begin": 0, "pads_end": 0, "dilations": 1, "auto_pad": "none", "groups": 1,
    "data_format": "NXC",
}  # fmt: skip
NUMERICS = {"precision": None, "preferred_element_type": None, "out_sharding": None}
FINISH = {"residual": None, "activation": None, "alpha": None}
NO = inspect.Parameter.empty


@pytest.mark.parametrize(
    ("op", "tensors", "weights_format", "more"),
    [
        ("convolution", {"src": NO, "weights": NO, "bias": None}, "XIO", FINISH),
        ("convolution_backward_data", {"diff_dst": NO, "weights": NO, "dst_shape": None}, "XIO",
         {"output_padding": 0}),
        ("convolution_backward_weights", {"src": NO, "diff_dst": NO, "weights_shape": NO}, "XIO",
         {}),
        ("conv_transpose", {"src": NO, "weights": NO, "bias": None}, "XOI",
         {"output_padding": 0, "dst_shape": None, **FINISH}),
        ("conv_transpose_backward_data", {"diff_dst": NO, "weights": NO}, "XOI",
         {"output_padding": 0}),
        ("conv_transpose_backward_weights", {"src": NO, "diff_dst": NO, "weights_shape": NO},
         "XOI", {"output_padding": 0}),
    ],
)  # fmt: skip
def test_the_signatures(op, tensors, weights_format, more):
    """Tensors by position or name, all else by name only, in one order for all six."""
    parameters = inspect.signature(getattr(jaxconv, op)).parameters.values()
    given = [(p.name, p.default) for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert given == list(tensors.items())
    named = [(p.name, p.default) for p in parameters if p.kind is p.KEYWORD_ONLY]
    expected = COMMON | {"weights_format": weights_format} | more | NUMERICS
    assert named == list(expected.items())
    assert len(given) + len(named) == len(parameters)


def imports(source):
    """The modules that a source imports, and those it takes names from, with the names."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_no_private_part_of_jax_is_used():
    for name, source in SOURCES.items():
        assert "jax._src" not in source.replace("without `jax._src`", ""), name
        for module in imports(source):
            private = [part for part in module.split(".")[1:] if part.startswith("_")]
            assert module.startswith("jaxconv.") or not private, (name, module)


def private_attributes(source):
    """Attributes that begin with `_`, of what a source imports from JAX: `mlir._lowerings`."""
    tree = ast.parse(source)
    of_jax = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = getattr(node, "module", None)
            for alias in node.names:
                whole = f"{module}.{alias.name}" if module else alias.name
                if whole.split(".")[0] == "jax" or module == "jaxconv._base.jax_names":
                    of_jax.add(alias.asname or alias.name.split(".")[0])
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and re.match(r"_(?!_)", node.attr):
            root = node.value
            while isinstance(root, ast.Attribute | ast.Call | ast.Subscript):
                root = root.func if isinstance(root, ast.Call) else root.value
            if isinstance(root, ast.Name) and root.id in of_jax:
                yield ast.unparse(node)


def test_no_private_attribute_of_jax_is_used_but_in_one_file():
    found = {name: {*private_attributes(source)} for name, source in SOURCES.items()}
    used = {name: private for name, private in found.items() if private}
    assert used == {"_base/jax_names.py": {"mlir._platform_specific_lowerings", "mlir._lowerings"}}


@pytest.mark.parametrize("module", ["jax.interpreters", "jax.extend", "jax.experimental"])
def test_the_not_quite_public_parts_of_jax_stand_in_one_file(module):
    for name, source in SOURCES.items():
        found = [m for m in imports(source) if m == module or m.startswith(f"{module}.")]
        assert not found or name == "_base/jax_names.py", (name, found)
        used = re.search(rf"^[^#\n]*\b{re.escape(module)}\.", source, re.MULTILINE)
        assert not used or name == "_base/jax_names.py", (name, used)


@pytest.mark.parametrize(
    "attribute",
    ["manual_axis_type", "axis_data.", ".aval", "aval.update", "axis_context", "jax.config"],
)
def test_undocumented_attributes_stand_there_too(attribute):
    """Of what JAX hands to the rules of primitives."""
    assert [n for n, source in SOURCES.items() if attribute in source] == ["_base/jax_names.py"]


#: The rooms from the ground up: each imports from those before it alone, and from the package
#: itself, whose public names are looked up when they are used.
ROOMS = (
    "_base", "_rules", "_lowering", "_contract", "_ops", "_lax", "lax", "torch", "_tools",
    "_checks", "onednn", "onnx", "__main__", "__init__",
)  # fmt: skip
#: None of these imports from another.
DOORS = ("lax", "torch", "onednn", "onnx")


def test_imports_flow_one_way():
    rooms = {name: name.split("/")[0].removesuffix(".py") for name in SOURCES}
    assert set(rooms.values()) == set(ROOMS)
    for name, source in SOURCES.items():
        for module in imports(source):
            package, *inner = module.split(".")
            if package == "jaxconv" and inner and inner[0] in ROOMS:
                assert ROOMS.index(inner[0]) <= ROOMS.index(rooms[name]), (name, module)
                assert inner[0] == rooms[name] or not {inner[0], rooms[name]} <= {*DOORS}, module


@pytest.mark.slow
def test_the_types_are_those_that_are_taken(tmp_path):
    """Of calls as a type checker sees them, those that would raise are refused, and only those."""
    api = pytest.importorskip("mypy.api")
    calls = Path(__file__).with_name("typed_calls.py")
    told, _, _ = api.run(["--config-file", "", f"--cache-dir={tmp_path}", str(calls)])
    refused = {int(line) for line in re.findall(rf"{calls.name}:(\d+): error", told)}
    lines = enumerate(calls.read_text().splitlines(), 1)
    assert refused == {n for n, line in lines if "# pyright: ignore[" in line}, told
    assert len(refused) == 8


SHAPES = {"fine": (1, 4, 3, 2), "kernel": (2, 1, 2, 3), "coarse": (1, 3, 3, 3)}


@pytest.mark.timed
@pytest.mark.parametrize("op", OPS.values(), ids=OPS)
def test_an_eager_call_costs_little_more_than_one_of_lax(op):
    """Checks, sizes and dispatch of an op that was called before, on arrays of no size."""
    function, fine, kernel = getattr(jaxconv, op.name), SHAPES["fine"], SHAPES["kernel"]
    operands = (SHAPES[op.slot(name)] for name in op.inputs)
    rest = [SHAPES[op.slot(op.result)]] if op.shape_argument and op.result != "dst" else []
    first, second, src, weights = map(jnp.ones, (*operands, fine, kernel))
    numbers = jax.lax.conv_dimension_numbers(fine, kernel, ("NHWC", "HWIO", "NHWC"))

    def ours():
        function(first, second, *rest)

    def theirs():
        jax.lax.conv_general_dilated(src, weights, (1, 1), "VALID", dimension_numbers=numbers)

    assert takes_at_most(
        1.5, partial(timeit.timeit, ours, number=60), partial(timeit.timeit, theirs, number=60)
    )
