"""Figures that are written into a page; docs/test_pages.py sees that all pages are current."""

import pytest

from benchmarks import figures, files, regret
from tests.support.plugin import python
from tests.support.results import entry, estimate, estimates, results, row, timed


@pytest.fixture
def document(tmp_path):
    """A document with one block, as the command writes it."""
    rows = [
        row("x", **timed(1.2, 1500, 0.3)),
        row("x", "data", **timed(2, 1, 1)),
        row("x", "weights", **timed(0.5, 1, labels=("jaxconv", "torch"))),
        row("z", kind="grouped 2-D", **timed(5, 10, 1)),
    ]
    files.write(str(tmp_path / "run.csv"), results(*rows))
    labels = ("lax", "lax+install", "torch")
    steps = [
        row("CNN", "step", **timed(6.1, 12.2, 10, labels=labels)),
        row("U-Net", "step", **timed(1234.5, 12.1, 10, labels=labels)),
    ]
    for step in steps:
        step["engines"]["lax"]["compile_s"] = 1.25
        step["engines"]["lax+install"]["compile_s"] = 0.5
    files.write(str(tmp_path / "steps.csv"), results(*steps) | {"engines": dict.fromkeys(labels)})
    labels = ("jaxconv", "torch", "torch+compile")
    times = ((2, 1, 4), (8, 8, 2), (1000, 1000, 1000))
    nets = [row(f"net {n}", "inference", **timed(*ms, labels=labels)) for n, ms in enumerate(times)]
    nets[2]["dtype"] = "bf16"
    files.write(str(tmp_path / "nets.csv"), results(*nets) | {"engines": dict.fromkeys(labels)})
    told = [
        row(kind, kind=kind, jaxconv=estimate(5), lax=estimate(cycles))
        for kind, cycles in (("grouped 2-D", 20), ("dense 2-D", 5))
    ]
    files.write(str(tmp_path / "tpu.csv"), estimates(*told))
    path = tmp_path / "DOC.md"

    def make(block):
        path.write_text(f"before\n<!-- figures:{block} -->\nstale\n<!-- /figures -->\nafter\n")
        text = figures.written(path.read_text(), tmp_path)
        assert figures.written(text, tmp_path) == text
        head, *table, tail = text.split("\n\n")
        assert head == f"before\n<!-- figures:{block} -->"
        assert tail == "<!-- /figures -->\nafter\n"
        return [[c.strip() for c in x.split("|")[1:-1]] for x in table[0].splitlines()]

    return make


BLOCKS = {
    # (4*2*.5*5)^1/4, (5000*10)^1/3
    "overall run.csv": """
        type, layout | jaxconv | lax
        float32, channels last (NXC) | 2.11 | 36.84""",
    "overall run.csv lax jaxconv": """
        type, layout | lax | jaxconv
        float32, channels last (NXC) | 36.84 | 2.11""",
    "counts run.csv jaxconv": """
         | jaxconv
        rows | 4
        faster than PyTorch | 1
        over 4 times PyTorch's time | 1
        slowest row, over PyTorch's time | 5.0
        slower than lax by over 15% | 1""",
    "classes run.csv jaxconv": """
        class | rows | jaxconv, forward | jaxconv, data gradient | jaxconv, weights gradient
        dense 2-D | 3 | 4.00 | 2.00 | 0.50
        grouped 2-D | 1 | 5.00 ||
        all | 4 | 4.47 | 2.00 | 0.50""",
    "networks steps.csv": """
        ms a step | lax | lax with jaxconv | PyTorch
        CNN | 6.1 | 12 | 10
        U-Net | 1,200 | 12 | 10
        geometric mean, in multiples of PyTorch's time | 8.68 | 1.21 |""",
    "networks steps.csv f32 lax+install torch": """
        ms a step | lax with jaxconv | PyTorch
        CNN | 12 | 10
        U-Net | 12 | 10
        geometric mean, in multiples of PyTorch's time | 1.21 |""",
    # each row has a faster PyTorch, and another type is left out: (2*4)^1/2, (1*4)^1/2, (4*1)^1/2
    "networks nets.csv f32": """
        ms a call | jaxconv | PyTorch | PyTorch, compiled
        net 0 | 2 | 1 | 4
        net 1 | 8 | 8 | 2
        geometric mean, in multiples of the faster PyTorch's time | 2.83 | 2.00 | 2.00""",
    "compiled steps.csv": """
        seconds to compile | lax | lax with jaxconv | PyTorch
        CNN | 1.2 | 0.5 | -
        U-Net | 1.2 | 0.5 | -""",
    "estimates tpu.csv": """
        v5e | rows | estimated cycles / lax's | worst | best
        dense 2-D | 1 | 1.000 | 1 | 1
        grouped 2-D | 1 | 0.250 | 0.25 | 0.25
        all | 2 | 0.500 | 1 | 0.25""",
    "compilers tpu.csv": """
        compiled for | by | types | layouts | rows
        v5e | jax 0.12, libtpu 0.1 | f32 | NXC | 2""",
}


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block(document, block):
    head, _, *lines = document(block)
    expected = [line.split("|") for line in BLOCKS[block].splitlines()[1:]]
    assert [head, *lines] == [[cell.strip() for cell in line] for line in expected]


def test_both_formats_of_pytorch(tmp_path):
    """The least times in both, of the rows that have both."""
    pytorch = [
        entry(2, variant="contiguous", variants={"contiguous": 2, "channels_last": 8}),
        entry(1, variant="channels_last", variants={"contiguous": 2, "channels_last": 1}),
        entry(1, variant="contiguous", variants={"contiguous": 1}),
    ]
    rows = [row(f"{n}", **timed(4), torch=torch) for n, torch in enumerate(pytorch)]
    files.write(str(tmp_path / "run.csv"), results(*rows))
    run = files.read(tmp_path / "run.csv")
    assert run["rows"][0]["engines"]["torch"]["variants"] == pytorch[0]["variants"]
    _, _, line = figures.formats([run], [])
    # (2 * 2)^1/2, (0.5 * 4)^1/2, (2 * 4)^1/2
    assert line == "| float32, channels last (NXC) | 2 | 2.00 | 1.41 | 2.83 |"


def test_what_each_line_is_worth(tmp_path):
    """The most worthy first, over all files."""
    for name, ms in (("x", {"chosen": 1, "without a": 2, "without b": 3, "f": 0.5}),
                     ("y", {"chosen": 2, "without a": 1})):  # fmt: skip
        cells = ([*[name] * len(regret.ROW), key, "any", n] for key, n in ms.items())
        rows = [dict(zip(regret.COLUMNS, x, strict=True)) for x in cells]
        found = results(*rows) | {"schema": regret.SCHEMA}
        files.write(str(tmp_path / f"{name}.csv"), found)
    runs = [files.read(tmp_path / f"{name}.csv") for name in "xy"]
    _, _, *lines, _, said = figures.worth(runs, [])
    assert lines == ["| b | 1 | 3.00 | 3.00 | 3.00 | 1 |", "| a | 2 | 1.00 | 2.00 | 0.50 | 1 |"]
    assert said.startswith("Of 2 rows, on 2 cores of Some & Sons with AVX2. The other lines are")


def test_the_machine_of_results():
    """Of all files that a table names: one sentence if it is the same machine."""
    first, second = results(), results()
    sentences = figures.machine([first, second], [])
    assert sentences == ["Measured on 2 cores of Some & Sons with AVX2."]
    second["machine"] |= {"cpu_family_model": "26/2", "isa": ["avx2", "avx512f"]}
    assert figures.machine([first, second], [])[1:] == [
        "Measured on 2 cores of Some & Sons (Zen 5, family 26, model 2) with AVX-512."
    ]


@pytest.mark.parametrize(
    ("block", "why"),
    [
        ("nonsense run.csv", "no figures:nonsense; known: machine, overall"),
        ("overall", "names no .csv file"),
        ("overall run.csv jaxcon", "no engine jaxcon"),
        ("networks run.csv jaxcon", "no engine jaxcon"),
    ],
)
def test_a_block_that_makes_no_sense(document, block, why):
    with pytest.raises(SystemExit, match=why):
        document(block)


def test_a_block_that_is_not_closed(tmp_path):
    with pytest.raises(SystemExit, match="is not closed"):
        figures.written("<!-- figures:overall x.csv -->\n", tmp_path)


def test_the_command_checks_and_writes(document, tmp_path):
    document("overall run.csv")
    path = tmp_path / "DOC.md"
    command = "-m", "benchmarks.figures", path
    ran = [python(*command, *flags) for flags in (["--check"], [], ["--check"])]
    assert [done.returncode for done in ran] == [1, 0, 0]
    assert "stale" not in path.read_text()
