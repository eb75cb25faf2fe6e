"""What compilers make of a layer is read from their text, written, read back and summed up."""

import pytest

from benchmarks import compiled, compilers, files, program_text
from benchmarks.pool import ROOT
from benchmarks.summary import summary
from tests.support.results import estimate, estimates, row

TPU = """
HloModule jit_f, is_scheduled=true

%inner (p: bf16[8,4]) -> bf16[8,4] {
  %p = bf16[8,4]{1,0} parameter(0)
  ROOT %convolution.1 = bf16[8,4]{1,0} convolution(%p, %p), window={size=1}
}

%moved (p.1: bf16[8,4]) -> bf16[4,8] {
  %p.1 = bf16[8,4]{1,0} parameter(0)
  ROOT %transpose.1 = bf16[4,8]{1,0} transpose(%p.1), dimensions={1,0}
}

%body (t: (s32[], bf16[8,4])) -> (s32[], bf16[8,4]) {
  %t = (s32[], bf16[8,4]{1,0}) parameter(0)
  ROOT %fusion.1 = (s32[], bf16[8,4]{1,0}) fusion(%t), kind=kOutput, calls=%inner, backend_config={"estimated_cycles":"10"}
}

%until (t.1: (s32[], bf16[8,4])) -> pred[] {
  %c.1 = s32[]{:T(128)} constant(7)
  %t.1 = (s32[], bf16[8,4]{1,0}) parameter(0)
  %i.1 = s32[]{:T(128)} get-tuple-element(%t.1), index=0
  ROOT %lt.0 = pred[]{:T(512)} compare(%i.1, %c.1), direction=LT
}

%dear (p.2: bf16[8,4]) -> bf16[8,4] {
  ROOT %fusion.2 = bf16[8,4]{1,0} fusion(%p.2), kind=kOutput, calls=%inner, backend_config={"estimated_cycles":"900"}
}

%cheap (p.3: bf16[8,4]) -> bf16[8,4] {
  ROOT %fusion.3 = bf16[8,4]{1,0} fusion(%p.3), kind=kOutput, calls=%inner, backend_config={"estimated_cycles":"5"}
}

ENTRY %main (x: bf16[8,4]) -> bf16[8,4] {
  %x = bf16[8,4]{1,0} parameter(0)
  %fusion.4 = bf16[4,8]{1,0} fusion(%x), kind=kLoop, calls=%moved, backend_config={"estimated_cycles":"100"}
  %copy.1 = bf16[8,4]{0,1:T(8,128)} copy(%x), backend_config={"estimated_cycles":"200"}
  %while.1 = (s32[], bf16[8,4]{1,0}) while(%x), condition=%until, body=%body
  ROOT %conditional.1 = bf16[8,4]{1,0} conditional(%x, %x, %x), branch_computations={%dear, %cheap}
}
"""  # noqa: E501
GPU = """
ENTRY %main (x: f32[8,4]) -> f32[8,4] {
  %x = f32[8,4]{1,0} parameter(0)
  %cudnn-conv = (f32[8,4]{1,0}, u8[0]{0}) custom-call(%x, %x), custom_call_target="__cudnn$convForward"
  %gemm = (f32[8,4]{1,0}, s8[64]{0}) custom-call(%x, %x), custom_call_target="__cublas$gemm"
  ROOT %convolution.2 = f32[8,4]{1,0} convolution(%x, %x), window={size=1}
}
"""  # noqa: E501


def test_a_text_for_tpu():
    assert program_text.facts(TPU) == {
        "cycles": 100 + 200 + 7 * 10 + 5, "most_cycles": 100 + 200 + 7 * 10 + 900,
        "convolutions": 0, "dots": 0, "naive": 0, "loops": 1, "copies": 2, "copy_bytes": 2 * 64,
    }  # fmt: skip


def test_a_missing_estimate_of_much_data_leaves_no_cycles():
    cycles = 'copy(%x), backend_config={"estimated_cycles":"200"}'
    small = TPU.replace(cycles, "reverse(%x)")
    assert program_text.facts(small)["cycles"] == program_text.facts(TPU)["cycles"] - 200
    large = small.replace("%copy.1 = bf16[8,4]", "%copy.1 = bf16[8192,4]")
    assert program_text.facts(large)["cycles"] == program_text.facts(large)["most_cycles"] == 0
    moved = "%r = bf16[8192,4]{1,0} reverse(%p.2)\n  ROOT %fusion.2"
    in_a_branch = TPU.replace("ROOT %fusion.2", moved)
    assert program_text.facts(in_a_branch)["cycles"] == program_text.facts(TPU)["cycles"]


def test_a_text_for_gpu():
    found = program_text.facts(GPU)
    assert (found["convolutions"], found["dots"], found["naive"]) == (1, 1, 1)
    assert found["cycles"] == found["copies"] == 0


def test_loops_run_as_often_as_they_say():
    told = TPU.replace("body=%body", 'body=%body, backend_config={"known_trip_count":{"n":"9"}}')
    assert program_text.facts(told)["cycles"] == program_text.facts(TPU)["cycles"] + 2 * 10
    with pytest.raises(ValueError, match="does not say how often it runs"):
        program_text.facts(TPU.replace("direction=LT", "direction=NE"))


def test_text_that_is_not_understood_is_an_error():
    with pytest.raises(ValueError, match="unreadable"):
        program_text.facts(GPU.replace("ENTRY", "entry"))


SLOW = {"status": "capped", "reason": "compiled took over 3 s"}
ROWS = [
    row("a", jaxconv=estimate(50, temp_bytes=1 << 22), lax=estimate(100, temp_bytes=1 << 20)),
    row("b", "data", jaxconv=estimate(200, naive=1, dots=2), lax=estimate(100)),
    row("c", "data", jaxconv=estimate(100), lax=estimate(25, temp_bytes=1)),
    row("d", jaxconv=SLOW, lax=estimate(100)),
]


def test_rows_come_back(tmp_path):
    path = str(tmp_path / "x.csv")
    files.write(path, estimates(*ROWS))
    again = files.read(path, files.COMPILED)
    assert [r["engines"] for r in again["rows"]] == [r["engines"] for r in ROWS]
    assert again["target"] == "v5e"
    with pytest.raises(SystemExit, match="not results of schema 2, but of 'compiled 1'"):
        files.read(path, files.SCHEMA)


def test_the_summary():
    lines = summary(estimates(*ROWS)).splitlines()
    assert lines[0].split("|")[1].strip() == "jaxconv / lax, tpu v5e, estimates"
    cells = {name.strip(): x.split() for name, x in (x.split("|") for x in lines[2:-2])}
    assert cells["all"] == ["3", "1.587", "4", "0.5", "1.587", "4", "1.000", "1", "1"]
    assert cells["forward"] == ["1", "0.500", "0.5", "0.5", "4.000", "4", "1.000", "0", "0"]
    assert lines[-2:] == ["jaxconv: 1 rows capped", "  d forward: compiled took over 3 s"]


def test_the_summary_counts_programs_without_cycles():
    rows = (row("a", jaxconv=estimate(50), lax=estimate(0)), *ROWS[1:])
    told = summary(estimates(*rows)).splitlines()
    assert "lax: programs without cycles, which no ratio counts: 1" in told
    assert told[2].split()[2:4] == ["3", "2.828"]


@pytest.mark.parametrize("platform", ["tpu", "cuda"])
def test_a_missing_compiler_is_told_with_its_remedy(platform, monkeypatch):
    if compilers.is_here(platform):
        monkeypatch.setitem(compilers.NEEDED, platform, ("no-such-package",))
    with pytest.raises(ImportError, match=r"is missing: `python3.13 -m venv .*pip install "):
        compilers.versions(platform)


@pytest.mark.parametrize("platform", ["tpu", "cuda"])
def test_a_compiler_that_is_here(platform, tmp_path, monkeypatch, capsys):
    if not compilers.is_here(platform):
        pytest.skip(f"XLA's compiler for {platform} is missing")
    out = tmp_path / "x.csv"
    command = [
        "compiled", "--platform", platform, "--out", str(out), "--dtypes", "f32",
        "--problem", "g4mb2ic16ih8oc16oh8kh3ph1",
    ]  # fmt: skip
    monkeypatch.chdir(ROOT)
    compiled.main(command)
    assert "[3/3]" in capsys.readouterr().out
    for found in files.read(out)["rows"]:
        for one in found["engines"].values():
            assert one["status"] == "ok"
            assert bool(one["cycles"]) == (platform == "tpu")
            assert one["naive"] == 0
