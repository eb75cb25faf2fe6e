"""The summary counts what its columns say."""

import pytest

from benchmarks.summary import summary
from tests.support.results import results, row, timed


@pytest.fixture
def rows():
    """Ratios over PyTorch: 2, 8, 0.5 and (wrong) none for jaxconv, 4 for each of lax."""
    kinds = {"kind": "grouped 2-D", "op": "data"}
    wrong = {"status": "wrong", "reason": "differs by 3"}
    return [
        row("r1-1 a", **timed(2, 4, 1)),
        row("r1-2 b", **timed(8, 4, 1)),
        row("r2-1 c", **kinds, **timed(1, 8, 2)),
        row("r2-2 d", **kinds, jaxconv=wrong, **timed(0.4, 0.1, labels=("lax", "torch"))),
    ]


def table(rows):
    """By the name of the line, the cells of each engine; and what follows the table."""
    head, columns, *lines = summary(results(*rows)).splitlines()
    cells = {
        a.strip(): [b.split() for b in rest]
        for a, *rest in (x.split("|") for x in lines if "|" in x)
    }
    assert [name.split() for name in head.split("|")[1:]] == [["jaxconv"], ["lax"]]
    assert columns.split("|")[1].split() == ["n", "mean", "most", ">4", ">lax", "<torch"]
    return cells, [line for line in lines if "|" not in line]


def test_groups_and_counts(rows):
    cells, _ = table(rows)
    assert cells["all"] == [["3", "2", "8", "1", "1", "1"], ["4", "4", "4", "0", "-", "0"]]
    assert cells["forward"] == [["2", "4", "8", "1", "1", "0"], ["2", "4", "4", "0", "-", "0"]]
    assert cells["grouped 2-D"][0] == ["1", "0.50", "0.50", "0", "0", "1"]
    assert cells["seed 1"] == cells["forward"]
    assert cells["median of seeds"][0] == ["1.50", "2.25", "4.25", "0.50", "0.50", "0.50"]
    assert "f32" not in cells


def test_a_wrong_row_is_named(rows):
    _, rest = table(rows)
    assert rest == ["jaxconv: 1 rows wrong", "  r2-2 d data: differs by 3"]


def test_fifteen_per_cent_over_lax_is_not_yet_slower(rows):
    rows[0]["engines"] |= timed(1.14 * 4)
    assert table(rows)[0]["all"][0][4] == "1"
    rows[0]["engines"] |= timed(1.16 * 4)
    assert table(rows)[0]["all"][0][4] == "2"


def test_rows_that_need_much_temporary_memory_are_counted(rows):
    """A limit of 32 MiB, and of two times the operands where these are larger."""
    rows[1]["problem"] = 'conv mb1ic1024iw100oc8kw1n"r1-2 b"'  # operands of 0.4 MiB
    rows[2]["problem"] = 'conv mb4ic256ih128iw128oc64kh1kw1n"r2-1 c"'  # of 64 MiB and a kernel
    rows[2]["op"] = "forward"
    entries = [row["engines"]["jaxconv"] for row in rows]
    for of, mebibytes in zip(entries, (1, 33, 128), strict=False):
        of["temp_bytes"] = mebibytes << 20
    words = "need more temporary memory than 32 MiB and twice their operands; the most,"
    told = f"jaxconv: 1 of 3 rows (33.3%) {words} 1.03 times that, 33.0 MiB: r1-2 b forward"
    assert told in table(rows)[1]
    entries[2]["temp_bytes"] += 1 << 20
    assert table(rows)[1][0].startswith("jaxconv: 2 of 3 rows (66.7%)")


def test_nothing_to_compare_with(rows):
    found = results(*rows)
    del found["engines"]["torch"]
    assert "needs torch" in summary(found)
