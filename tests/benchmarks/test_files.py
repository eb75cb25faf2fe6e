"""What is written as CSV is read back, and is small."""

import pytest

from benchmarks import files, regret
from benchmarks.pool import ROOT
from tests.support.results import entry, results, row


@pytest.fixture
def again(tmp_path):
    """The results, written and read back."""

    def through(found):
        files.write(str(tmp_path / "deep" / "x.csv"), found)
        assert [path.name for path in (tmp_path / "deep").iterdir()] == ["x.csv"]
        return files.read(tmp_path / "deep" / "x.csv")

    return through


def test_entries_come_back(again):
    jaxconv = entry(
        12.3461, 12.3412, 12.39, error=1.5e-7, compile_s=0.25, temp_bytes=4096, loss=0.5
    )
    torch = entry(0.5, 0.5, 0.5, variant="channels_last", inexact=True)
    capped = {"status": "capped", "reason": 'took "long",\nover 3 s'}
    found = again(results(row("a, b", jaxconv=jaxconv, lax=capped, torch=torch), row("bare")))
    assert found["date"] == "2026-01-02T03:04:05+00:00"
    assert found["machine"]["memory_bytes"] == 2**33
    assert found["engines"]["torch"] is None
    first, second = found["rows"]
    assert first["layer"] == "a, b"
    assert second["engines"] == {}
    got = first["engines"]["jaxconv"]
    assert got["rounds_ms"] == [12.35, 12.34, 12.39]
    assert (got["median_ms"], got["min_ms"]) == (12.35, 12.34)
    assert (got["error"], got["compile_s"], got["temp_bytes"]) == (1.5e-7, 0.25, 4096)
    assert got["loss"] == 0.5
    assert first["engines"]["lax"] == {"status": "capped", "reason": 'took "long", over 3 s'}
    assert first["engines"]["torch"]["variant"] == "channels_last"
    assert first["engines"]["torch"]["inexact"] is True


RESULTS = sorted((ROOT / "benchmarks" / "results").glob("*.csv"))


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_committed_results_are_small_and_read(path):
    assert path.stat().st_size <= 100_000
    found = files.read(path, files.SCHEMA, files.COMPILED, regret.SCHEMA)
    assert found["rows"]
    statuses = {e["status"] for row in found["rows"] for e in row.get("engines", {}).values()}
    assert "ok" in statuses or found["schema"] == regret.SCHEMA
    assert "wrong" not in statuses


def test_of_a_folder_the_layers_are_read(tmp_path):
    """The notebook reads all that lies there; a file of another kind is none of its business."""
    files.write(str(tmp_path / "mine.csv"), results(row("bare")))
    files.write(str(tmp_path / "worth.csv"), {"schema": regret.SCHEMA, "rows": [{"line": "a"}]})
    (tmp_path / "other.csv").write_text("name\na\n")
    assert [*files.read_folder(tmp_path)] == ["mine.csv"]
