"""The examples of docs/training.md run as they stand, and its table names the trainers."""

import re
from pathlib import Path

import pytest

from testudo_policies.brax.trainers import TRAINERS

pytestmark = pytest.mark.usefixtures("quick")

PAGE = (Path(__file__).resolve().parents[3] / "docs/training.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_the_page_has_an_example_for_each_library():
    assert ["ppo.train(" in code for code in EXAMPLES] == [True, False]
    assert ["MultiAgentTeam(" in code for code in EXAMPLES] == [False, True]


@pytest.mark.parametrize("index", [pytest.param(0, marks=pytest.mark.slow), 1], ids=["brax", "jaxmarl"])
def test_an_example_runs(index):
    names = {}
    exec(compile(EXAMPLES[index], "docs/training.md", "exec"), names)  # noqa: S102  (our own page)
    if index == 0:
        assert int(names["parameters"][0].count.to_numpy()) >= 256


def test_the_table_names_every_trainer():
    table = PAGE.partition("## Trainers")[2].partition("\nAll three")[0]
    assert tuple(re.findall(r"^\| `([\w-]+)`(?: \(default\))? \|", table, re.MULTILINE)[1:]) == TRAINERS
