"""The examples of docs/adapters.md run as they stand, and the table of docs/training.md names the trainers."""

import ast
import re
from pathlib import Path

import pytest

from testudo_policies.brax.trainers import TRAINERS

pytestmark = pytest.mark.usefixtures("quick")

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = (DOCS / "adapters.md").read_text(encoding="utf-8").partition("## A policy of another library on robots")[0]
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


CLASSES = ("BraxEnvironment", "MultiAgentTeam", "ParallelTeam", "VectorTeam")


def test_the_page_has_an_example_for_each_class():
    found = [[name for name in CLASSES if f"{name}(build" in code] for code in EXAMPLES]
    assert found == [[name] for name in (*CLASSES, "ParallelTeam")]  # the last one needs torchrl: it is only compiled
    assert compile(EXAMPLES[-1], "docs/adapters.md", "exec")


@pytest.mark.parametrize("code", EXAMPLES[:-1], ids=CLASSES)
def test_what_an_example_imports_is_there(code):
    lines = [node for node in ast.parse(code).body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert len(lines) > 2
    exec(compile(ast.Module(lines, []), "docs/adapters.md", "exec"), {})  # noqa: S102  (our own page)


@pytest.mark.slow  # a program for each class, which the tests of adapters drive through the same calls
@pytest.mark.parametrize("index", [0, 1, 2, 3], ids=CLASSES)
def test_an_example_runs(index):
    names = {}
    exec(compile(EXAMPLES[index], "docs/adapters.md", "exec"), names)  # noqa: S102  (our own page)
    if index == 0:
        assert int(names["parameters"][0].count.to_numpy()) >= 256


def test_the_table_names_every_trainer():
    page = (DOCS / "training.md").read_text(encoding="utf-8")
    table = page.partition("## Trainers")[2].partition("\nAll three")[0]
    assert tuple(re.findall(r"^\| `([\w-]+)`(?: \(default\))? \|", table, re.MULTILINE)[1:]) == TRAINERS
