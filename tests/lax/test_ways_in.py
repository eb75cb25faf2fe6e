"""`install` without editing a file: by a variable, by `run`, in notebooks; and in workers.

That a program is taken over is read from its text: lax's own has a depthwise convolution.
"""

import os
import re
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

import jaxconv
from jaxconv import __main__
from tests.support.peers import peer
from tests.support.plugin import findable, python

TAKEN = """
import sys
import jax
from jax import lax

def taken():
    x, k = jax.numpy.ones((4, 8, 7, 6)), jax.numpy.ones((3, 3, 1, 12))
    numbers = {"dimension_numbers": ("NHWC", "HWIO", "NHWC"), "feature_group_count": 6}
    depthwise = jax.jit(lambda x, k: lax.conv_general_dilated(x, k, (2, 1), "SAME", **numbers))
    return "feature_group_count = 6" not in depthwise.lower(x, k).as_text()
"""
ASKED = f"{TAKEN}\nprint(taken(), *(name for name in sys.modules if 'jaxconv' in name))"


@pytest.fixture
def path(tmp_path):
    (folder := tmp_path / "found").mkdir()
    return findable(folder)


@pytest.fixture
def off():
    yield
    jaxconv.uninstall()


@pytest.mark.parametrize("told", [None, "0", "1"])
def test_the_variable_installs(told, path):
    """Without it, nothing of the package is imported."""
    ran = python("-c", ASKED, path=path, told=told)
    taken, *imported = ran.stdout.split()
    assert (taken, imported[0], ran.stderr) == (str(told == "1"), "jaxconv_plugin", "")
    assert told == "1" or len(imported) == 1


def test_another_value_warns(path):
    ran = python("-c", ASKED, path=path, told="yes")
    assert ran.stdout.startswith("False")
    said = "UserWarning: JAXCONV_INSTALL must be 1, profile or 0; got 'yes', which counts as not"
    assert (ran.returncode, ran.stderr.count(said), ran.stderr.count("Warn")) == (0, 1, 1)


@pytest.mark.parametrize("options", [(), ("-W", "error")])
def test_a_broken_package_does_not_keep_jax_from_starting(options, tmp_path):
    (broken := tmp_path / "jaxconv").mkdir()
    (broken / "__init__.py").write_text("raise OSError('no such thing')")
    (folder := tmp_path / "found").mkdir()
    ran = python(*options, "-c", ASKED, path=findable(folder, first=tmp_path), told="1")
    said = "JAXCONV_INSTALL is set, but jaxconv is not used, since importing it fails: no such"
    assert ran.stdout.split() == ["False", "jaxconv_plugin"]
    assert ran.stderr.count(f"Warning: {said}") == 1
    assert len(ran.stderr.splitlines()) == 2 or options


def test_what_a_program_says_before_jax_starts_holds(path):
    code = f"import jaxconv\nprint(jaxconv.enabled())\njaxconv.uninstall()\n{ASKED}"
    assert python("-c", code, path=path, told="1").stdout.split()[:2] == ["True", "False"]


@pytest.mark.timed
def test_without_the_variable_it_costs_less_than_a_millisecond(path):
    code = """
import jax, time
start = time.process_time()
import jaxconv_plugin
jaxconv_plugin.initialize()
print(time.process_time() - start)
"""
    assert min(float(python("-c", code, path=path).stdout) for _ in range(7)) < 1e-3  # seconds


def test_the_variable_profiles(path):
    """On the stderr of the end, which may be that of a thread; pytest, say, closes its own."""
    code = f"""
import contextlib, io, threading
{TAKEN}
def work():
    threading.main_thread().join()
    with io.StringIO() as other, contextlib.redirect_stderr(other):
        print(taken())

threading.Thread(target=work).start()
"""
    ran = python("-c", code, path=path, told="profile")
    assert ran.stdout == "True\n"
    assert "[4,8,7,6]" in ran.stderr


SCRIPT = f"""
import os, pickle
os.environ["JAX_ENABLE_X64"] = "1"  # which JAX reads when it is imported
{TAKEN}
import beside

class Own:
    pass

print(jax.numpy.arange(3.0).dtype, beside.__name__, __name__, __file__, sys.argv, sys.path[0])
print(type(pickle.loads(pickle.dumps(Own()))))
if sys.argv[-1] == "taken":
    sys.exit(f"taken: {{taken()}}")
raise ValueError("as it should")
"""


@pytest.mark.parametrize(
    "words", [["of/script.py", "--profile", "-m"], ["-m", "of.script", "a b"]], ids=["path", "name"]
)
def test_a_program_runs_as_by_python(words, path, tmp_path):
    (folder := tmp_path / "of").mkdir()
    (folder / "script.py").write_text(SCRIPT)
    (tmp_path if "-m" in words[:1] else folder).joinpath("beside.py").touch()
    alone = python(*words, path=path, cwd=tmp_path)
    ran = python("-m", "jaxconv", "run", *words, path=path, cwd=tmp_path)
    assert (ran.returncode, ran.stdout, ran.stderr) == (1, alone.stdout, alone.stderr)
    assert alone.stdout.startswith("float64 beside __main__ ")
    assert alone.stderr.endswith("ValueError: as it should\n")
    if "--profile" in words:  # the script's own option
        ran = python("-m", "jaxconv", "run", *words, "taken", path=path, cwd=tmp_path)
        assert (ran.returncode, ran.stderr) == (1, "taken: True\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--profle", "x.py"], "unknown option --profle\n"), (["nonesuch.py"], "can't open file")],
)
def test_what_cannot_run_is_refused(words, said, path):
    ran = python("-m", "jaxconv", "run", *words, path=path)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert said in ran.stderr
    assert "Traceback" not in ran.stderr


def test_run_needs_a_program_and_the_entry_point(monkeypatch, capsys):
    for words in ([], ["--profile"]):
        assert __main__.main(["", "run", *words]) == 2
        said = "run: there must be a script, or -m and a module: python -m jaxconv run [--prof"
        assert said in capsys.readouterr().err
    monkeypatch.setattr(__main__, "entry_points", lambda group: [])
    assert __main__.main(["", "run", "x.py"]) == 2
    assert "JAX would not find jaxconv_plugin: install jaxconv by pip" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "rest", "told"),
    [(["x.py", "--profile"], ["x.py", "--profile"], "1"), (["--profile", "x"], ["x"], "profile")],
)
def test_run_hands_on_what_it_was_given(words, rest, told, monkeypatch):
    found, point = [], SimpleNamespace(value=__main__.PLUGIN)
    monkeypatch.setattr(__main__, "entry_points", lambda group: [point])
    monkeypatch.setattr(os, "execv", lambda program, words: found.extend(words[1:]))
    monkeypatch.setenv("JAXCONV_INSTALL", "0")
    __main__.main(["", "run", *words])
    assert (found, os.environ["JAXCONV_INSTALL"]) == (rest, told)


def test_the_command_says_whether_it_is_on(capsys):
    for yes, line in (
        (True, "install: on"),
        (False, "install: off; JAXCONV_INSTALL=1 turns it on"),
    ):
        with jaxconv.installed(yes):
            assert jaxconv.enabled() is yes
            __main__.print_devices()
        assert line in capsys.readouterr().out.splitlines()


@pytest.mark.usefixtures("off")
@pytest.mark.filterwarnings("default")  # IPython's own
def test_notebooks(monkeypatch, capsys):
    @contextmanager
    def profile():
        yield (report := [])
        report.append("the report")

    monkeypatch.setattr("jaxconv._tools.profile.profile", profile)
    shell = peer("IPython.core.interactiveshell").InteractiveShell()
    shell.run_line_magic("load_ext", "jaxconv")
    assert jaxconv.enabled()
    shell.run_cell("%%jaxconv_profile\na = 5\nprint(a + 1)").raise_error()
    assert capsys.readouterr().out == "6\n['the report']\n"
    assert shell.user_ns["a"] == 5
    with pytest.raises(ZeroDivisionError):
        shell.run_cell("%%jaxconv_profile\n1 // 0").raise_error()
    assert "['the report']\n" in capsys.readouterr().out
    shell.run_line_magic("unload_ext", "jaxconv")
    assert not jaxconv.enabled()
    assert shell.find_cell_magic("jaxconv_profile") is None


WORKERS = f"""
import multiprocessing
{TAKEN}
def work(method, queue):
    queue.put(f"{{method}} {{taken()}}")

if __name__ == "__main__":
    if "call" in sys.argv:
        import jaxconv
        jaxconv.install()
    for method in ("fork", "spawn"):
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        worker = context.Process(target=work, args=(method, queue))
        worker.start()
        print(queue.get(timeout=120))
        worker.join()
"""


@pytest.mark.parametrize(
    ("told", "words", "found"),
    [("1", [], "fork True spawn True"), (None, ["call"], "fork True spawn False")],
    ids=["variable", "call"],
)
def test_workers(told, words, found, path, tmp_path):
    """Forked ones are as their parent; spawned ones know the variable alone."""
    (script := tmp_path / "workers.py").write_text(WORKERS)
    ran = python(script, *words, path=path, told=told)
    assert ran.stdout.split() == found.split(), ran.stderr
    assert not re.search("Traceback|jaxconv", ran.stderr)
