"""The `testudo` program: help, hidden verbs, errors. A made-up package brings the verbs."""

import re
import subprocess
import sys
from importlib import metadata

import pytest

from testudo_deploy import cli

OWN_VERBS = sorted(
    point.name
    for point in metadata.entry_points(group=cli.GROUP)
    if point.dist is not None and point.dist.name == "testudo"
)
PLUGIN = '''
"""Verbs for a test."""
from testudo_hardware.errors import TestudoError

def greet(name: str = "world", times: int = 1) -> int | None:
    """Greet somebody.

    Example:
        testudo greet --name you

    Args:
        name: whom to greet.
        times: how often.
    """
    print(f"hello {name}" * times)
    return 7 if name == "seven" else None

def refuse() -> None:
    """Refuse everything."""
    raise TestudoError("fleet.yaml: key 'robots': found none, expected at least one.")

def interrupt() -> None:
    """Behave as if Ctrl-C came."""
    raise KeyboardInterrupt

def crash() -> None:
    """Hold a bug."""
    raise ZeroDivisionError("a bug")
'''
ENTRY_POINTS = """[testudo.commands]
greet = testudo_plugin:greet
refuse = testudo_plugin:refuse
interrupt = testudo_plugin:interrupt
crash = testudo_plugin:crash
absent = testudo_plugin:greet [heavy]
nested = testudo_plugin:greet [all]
present = testudo_plugin:greet [light]
broken = testudo_plugin_broken:verb
"""
METADATA = """Metadata-Version: 2.1
Name: testudo-plugin
Version: 1.0
Provides-Extra: heavy
Provides-Extra: light
Provides-Extra: all
Requires-Dist: no-such-distribution-of-testudo; extra == "heavy"
Requires-Dist: numpy; extra == "light"
Requires-Dist: no-such-distribution-for-mars; extra == "light" and sys_platform == "mars"
Requires-Dist: testudo-plugin[heavy]; extra == "all"
"""


@pytest.fixture(scope="module")
def testudo(tmp_path_factory):
    """Return a function that runs `testudo WORDS` with the plugin installed."""
    folder = tmp_path_factory.mktemp("plugin")
    info = folder / "testudo_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(METADATA)
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    (folder / "testudo_plugin.py").write_text(PLUGIN)
    (folder / "testudo_plugin_broken.py").write_text("import no_such_module_at_all\n")

    def run(*words):
        code = "import sys; sys.path.insert(0, sys.argv.pop(1)); import testudo_deploy.cli as c; "
        code += "sys.exit(c.main())"
        return subprocess.run(
            [sys.executable, "-c", code, folder, *words],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


def test_help_lists_visible_verbs_with_summary_and_example(testudo):
    result = testudo("--help")
    assert result.returncode == 0
    assert re.search(r"^  greet +Greet somebody\.$", result.stdout, re.MULTILINE)
    assert "  testudo greet --name you" in result.stdout
    assert re.search(r"^  present +Greet", result.stdout, re.MULTILINE)


@pytest.mark.parametrize("verb", ["absent", "nested"])
def test_verb_without_its_extra_is_hidden_and_help_names_the_extra(testudo, verb):
    listed, _, hidden = testudo("--help").stdout.partition("not installed:")
    assert f"  {verb} " not in listed
    assert f"  {verb} " in hidden
    assert "pip install 'testudo-plugin[heavy]'" in hidden


def test_calling_a_hidden_verb_tells_what_to_install(testudo):
    result = testudo("absent")
    assert result.returncode == 2
    assert "no-such-distribution-of-testudo" in result.stderr
    assert "pip install 'testudo-plugin[heavy]'" in result.stderr
    assert "Traceback" not in result.stderr


def test_other_import_error_is_shown(testudo):
    result = testudo("broken")
    assert result.returncode not in (0, 2)
    assert "No module named 'no_such_module_at_all'" in result.stderr


def test_help_imports_neither_jax_nor_any_verb():
    code = (
        "import sys; from testudo_deploy.cli import main; status = main(['--help']);"
        "heavy = {'jax', 'flax', 'mujoco', 'onnxruntime', 'numpy', 'tyro', 'testudo_sim',"
        " 'testudo_policies', 'testudo_deploy.commands'};"
        "print('LOADED', sorted(heavy & set(sys.modules))); sys.exit(status)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert "LOADED []" in result.stdout
    for verb in OWN_VERBS:
        assert re.search(rf"^  {verb} +\w", result.stdout, re.MULTILINE), f"{verb}: no summary"
        assert f"testudo {verb}" in result.stdout.partition("examples:")[2], f"{verb}: no example"


@pytest.mark.parametrize("verb", OWN_VERBS)
def test_help_of_each_verb_shows_an_example(verb, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main([verb, "--help"])
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    assert f"usage: testudo {verb}" in shown
    assert f"testudo {verb}" in shown.partition("Example")[2]


def test_help_of_a_verb_shows_its_arguments_once(testudo):
    result = testudo("greet", "--help")
    assert result.returncode == 0
    assert "testudo greet --name you" in result.stdout
    assert result.stdout.count("whom to greet") == 1


def test_verb_receives_its_arguments_and_sets_the_exit_status(testudo):
    assert testudo("greet", "--name", "you").stdout == "hello you\n"
    assert testudo("greet", "--name", "seven").returncode == 7


def test_unknown_verb_is_refused_with_a_hint(testudo):
    result = testudo("gret")
    assert result.returncode == 2
    assert "there is no verb 'gret'; did you mean 'greet'?" in result.stderr
    assert "known are" in testudo("zzz").stderr


def test_unknown_option_is_refused(testudo):
    result = testudo("greet", "--volume", "3")
    assert result.returncode == 2
    assert "--volume" in result.stdout + result.stderr


def test_known_error_is_one_sentence(testudo):
    result = testudo("refuse")
    assert result.returncode == 2
    expected = "testudo: fleet.yaml: key 'robots': found none, expected at least one.\n"
    assert result.stderr == expected
    assert "Traceback" in testudo("refuse", "--debug").stderr
    assert "Traceback" in testudo("--debug", "refuse").stderr


def test_ctrl_c_is_one_sentence(testudo):
    result = testudo("interrupt")
    assert (result.returncode, result.stderr) == (130, "testudo: stopped by Ctrl-C.\n")


def test_a_bug_shows_its_traceback(testudo):
    result = testudo("crash")
    assert result.returncode == 1
    assert "ZeroDivisionError: a bug" in result.stderr


def test_two_packages_with_one_verb_are_refused(monkeypatch):
    points = [metadata.EntryPoint("up", f"package_{n}:up", cli.GROUP) for n in (1, 2)]
    monkeypatch.setattr(cli, "entry_points", lambda **_: points)
    with pytest.raises(cli.UsageError, match="'up' is registered twice"):
        cli.verbs()


def test_version(testudo):
    assert testudo("--version").stdout.strip() == metadata.version("testudo")
