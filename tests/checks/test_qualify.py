"""A jaxlib that nobody tested: a warning, a sweep, and a verdict that is remembered."""

import json
import warnings

import pytest

import jaxconv
from jaxconv import __main__, _lowering
from jaxconv._checks import qualify
from jaxconv._lowering import onednn_here
from jaxconv._lowering.onednn_here import Verdict
from tests.support.plugin import forget

POSSIBLE = pytest.mark.skipif(
    onednn_here.why_impossible() is not None, reason=f"{onednn_here.why_impossible()}"
)
REASON = "its call is not tested for jaxlib"


@pytest.fixture
def untested(monkeypatch, tmp_path):
    """This jaxlib is one that nobody tested, and no verdict is known; the file of verdicts."""
    monkeypatch.setenv("JAXCONV_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("JAXCONV_ONEDNN", raising=False)
    monkeypatch.setattr(onednn_here, "TESTED_RELEASES", ())
    forget()
    yield tmp_path / "onednn.json"
    forget()


def keep(verdict):
    onednn_here.write_verdict(verdict, onednn_here.features(), onednn_here.held_to())
    forget()


@POSSIBLE
def test_a_jaxlib_that_nobody_tested_warns_once(untested):
    assert _lowering.why_unavailable().startswith(REASON)
    with pytest.warns(jaxconv.UntestedJaxlibWarning, match="python -m jaxconv --qualify"):
        onednn_here.warn_once()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        onednn_here.warn_once()


@POSSIBLE
def test_a_verdict_decides_and_is_kept_beside_others(untested):
    onednn_here.write_verdict(Verdict(False, "of another processor"), {"avx2"}, "")
    keep(Verdict(True, "all exact"))
    assert _lowering.why_unavailable() is None
    onednn_here.warn_once()  # without a warning
    keep(Verdict(False, "it hangs"))
    assert _lowering.why_unavailable() == "`python -m jaxconv --qualify` found here: it hangs"
    assert len(json.loads(untested.read_text())) == 2
    assert onednn_here.read_verdict({"avx2"}, "") == (False, "of another processor")
    assert onednn_here.read_verdict({"avx2"}, "AVX2") is None


@POSSIBLE
def test_a_bad_verdict_counts_for_a_known_release(untested, monkeypatch):
    monkeypatch.setattr(onednn_here, "TESTED_RELEASES", (onednn_here.version("jaxlib"),))
    assert _lowering.why_unavailable() is None
    keep(Verdict(False, "wrong"))
    assert "found here: wrong" in _lowering.why_unavailable()


@POSSIBLE
@pytest.mark.parametrize("text", ["", "{", "[1]", "null", '{"KEY": 3}', '{"KEY": {"good": true}}'])
def test_a_damaged_file_is_ignored_with_a_warning(untested, text, monkeypatch):
    key = onednn_here._key(onednn_here.features(), onednn_here.held_to())
    untested.write_text(text.replace("KEY", key))
    with monkeypatch.context() as turned_off:
        turned_off.setenv("JAXCONV_ONEDNN", "0")
        onednn_here.warn_once()  # without a warning
    with pytest.warns(UserWarning, match=r"onednn\.json cannot be read and is ignored"):
        assert _lowering.why_unavailable().startswith(REASON)
    keep(Verdict(True, "all exact"))
    assert _lowering.why_unavailable() is None


def test_without_a_folder_nothing_is_kept(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("JAXCONV_CACHE_DIR", str(tmp_path / "file"))
    assert onednn_here.write_verdict(Verdict(True, "all exact"), set(), "") is None


def test_the_folder_is_the_users(monkeypatch, tmp_path):
    monkeypatch.delenv("JAXCONV_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert onednn_here.verdict_path() == tmp_path / "jaxconv" / "onednn.json"


HURRY = """
import jaxconv._checks.qualify as q
q.SWEEP_SECONDS = q.THREADS_SECONDS = 3
q.MIN_CASES = 1
"""
#: What is put into the processes, and what the verdict then says.
SABOTAGE = {
    "config": ("""
from jaxconv._lowering.forms import onednn as c
dumps = c.json.dumps
def changed(x):
    x["onednn_conv_config"]["window"]["strides"] = ["2", "2", "2"]
    return dumps(x)
c.json = type("json", (), {"dumps": staticmethod(changed)})
""", "a process ended with code"),
    "value": ("""
from jaxconv._lowering.forms import onednn as c
convolve = c.convolve
c.convolve = lambda *a: convolve(*a) + 1
""", "integers wrong"),
    "hang": ("import threading; q.sweep = lambda seed: threading.Event().wait()", "it hangs"),
    "spin": ("""
import itertools
q.sweep = lambda seed: [None for _ in itertools.count() if False]
""", "it hangs"),
    "fallback": ("""
line = "onednn_verbose,v1,primitive,exec,cpu,convolution,x64:gemm:jit,forward_inference"
q.sweep = lambda seed: print(line)
""", "its fallback x64:gemm:jit ran"),
    "few": ("q.sweep = lambda seed: print('onednn_verbose,exec,cpu,convolution,ip:brgemm:avx2,')",
            "only 1 calls were seen to run"),
    "silent": ("q.os.environ.pop('ONEDNN_VERBOSE')", "calls were seen to run"),
}  # fmt: skip


@POSSIBLE
@pytest.mark.parametrize("name", SABOTAGE)
def test_what_goes_wrong_makes_a_bad_verdict(name, monkeypatch, capsys):
    sabotage, words = SABOTAGE[name]
    if words == "it hangs":
        monkeypatch.setattr(qualify, "IDLE_SECONDS", 2)
        monkeypatch.setattr(qualify, "BUSY_SECONDS", 9)
    monkeypatch.setattr(qualify, "SEEDS", (1,))
    verdict = qualify.judge(f"{HURRY}{sabotage}\nsweep = q.sweep")
    assert not verdict.good
    assert words in verdict.text


@POSSIBLE
@pytest.mark.slow
def test_this_release_is_good_and_the_library_then_calls_onednn(untested, monkeypatch, capsys):
    monkeypatch.setattr(qualify, "SEEDS", (1,))
    assert __main__.main(["jaxconv", "--qualify"]) == 0
    out = capsys.readouterr().out
    assert "eight threads at once" in out
    assert "good: jaxconv may call oneDNN" in out
    assert all(len(line) <= 80 for line in out.splitlines() if not line.startswith("Kept"))
    forget()
    assert _lowering.why_unavailable() is None
