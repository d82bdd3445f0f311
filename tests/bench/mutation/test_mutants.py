"""The mutants match the sources and name existing tests, and a fault in a copy is noticed."""

import ast
import builtins
import subprocess
import sys
from collections import Counter
from functools import cache

import pytest

from testudo_bench.mutation import mutants
from testudo_bench.mutation.mutants import KILLED, ROOT, Mutant, copy_checkout, read_mutants, try_mutant
from testudo_hardware.errors import TestudoError

MUTANTS = read_mutants()
KNOWN = {*dir(builtins), *dir(set)}
LEAST = {"shield": 28, "guard": 15, "supervisor": 21, "contract": 21, "replay": 26}


def test_there_are_enough_mutants_of_each_group_and_no_id_twice():
    groups = Counter(mutant.id.partition("-")[0] for mutant in MUTANTS)
    assert all(groups[name] >= count for name, count in LEAST.items())
    assert len({mutant.id for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.id)
def test_a_mutant_applies_exactly_once_and_its_test_exists(mutant):
    assert mutant.old != mutant.new
    text = (ROOT / mutant.file).read_text(encoding="utf-8")
    assert names(mutant.apply(text)) - names(text) <= KNOWN  # a test that fails by a wrong name proves nothing
    file, _, node = mutant.test.partition("::")
    assert functions(file).count(node.partition("[")[0]) == 1


def names(text):
    """Return the variables and attributes of a source."""
    nodes = [one for one in ast.walk(ast.parse(text)) if isinstance(one, ast.Name | ast.Attribute)]
    return {one.id if isinstance(one, ast.Name) else one.attr for one in nodes}


@cache
def functions(file):
    """Return the names of the functions at the top of a file."""
    return [one.name for one in ast.parse((ROOT / file).read_bytes()).body if isinstance(one, ast.FunctionDef)]


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """Return a checkout with one source and one test, and an empty folder for its copy."""
    root, folder = tmp_path / "root", tmp_path / "copy"
    files = {
        "src/tiny_sign.py": "SIGN = +1\n",
        "tests/test_sign.py": "from tiny_sign import SIGN\n\ndef test_sign():\n    assert SIGN == 1\n",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text(text)
    subprocess.run(["git", "init", "-q", root], check=True)
    monkeypatch.setattr(mutants, "ROOT", root)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setattr(sys, "path", [str(root / "src"), *sys.path])
    copy_checkout(folder)
    return root, folder


def test_a_fault_in_the_copy_is_detected_and_reverted(checkout):
    root, folder = checkout
    fault = Mutant("tiny-sign", "src/tiny_sign.py", "+1", "-1", "tests/test_sign.py::test_sign", "")
    harmless = Mutant("tiny-harmless", "src/tiny_sign.py", "+1", "1", fault.test, "")
    missing = Mutant("tiny-missing", fault.file, "+1", "-1", "tests/test_sign.py::test_other", "")
    found = [try_mutant(folder, one) for one in (harmless, fault, harmless, missing)]
    assert found == ["survived", KILLED, "survived", "test not collected"]
    assert (root / fault.file).read_text() == (folder / fault.file).read_text() == "SIGN = +1\n"


def test_a_text_that_does_not_occur_exactly_once_is_refused():
    mutant = Mutant("tiny-sign", "sign.py", "+1", "-1", "", "")
    for text in ("", "+1 +1"):
        with pytest.raises(TestudoError, match="expected once"):
            mutant.apply(text)
