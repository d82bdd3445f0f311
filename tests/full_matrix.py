"""Tests and cases that only `make test-all` runs, read from full_matrix.toml."""

import re
import tomllib
from pathlib import Path

import pytest

TABLE = Path(__file__).with_suffix(".toml")
_TABLE = tomllib.loads(TABLE.read_text())


def left_out():
    """Return each pattern of the tests that are left out; ``*`` stands for any characters."""
    return [pattern for entry in _TABLE["left_out"] for pattern in entry["tests"]]


def kept_by():
    """Return, for each entry of the table, what names the tests that keep the power."""
    return [entry["kept_by"] for entry in _TABLE["left_out"]]


def few_cases():
    """Return {(file below tests/, test): patterns of the cases that `make test` runs}."""
    return {(file, test): kept for file, tests in _TABLE["few_cases"].items() for test, kept in tests.items()}


def mark_left_out(items):
    """Mark what the table leaves out as slow.

    A pattern without parameters matches every case of a test. A test of `few_cases` of which no named case is collected
    keeps all that are: a case that was renamed is noticed by its time, not lost.
    """
    whole, cases = set(), []
    for pattern in left_out():
        if "[" in pattern:
            cases.append(_regex(pattern))
        else:
            whole.add(pattern)
    functions = {regex.pattern.split("\\[")[0] for regex in cases}
    few, of_few = few_cases(), {}
    for item in items:
        file = item.nodeid.partition("::")[0].removeprefix("tests/")
        function = item.name.split("[")[0]
        is_case = function in functions and any(regex.fullmatch(item.name) for regex in cases)
        if is_case or {function, f"{file}::{function}"} & whole:
            item.add_marker(pytest.mark.slow)
        elif (file, function) in few:
            of_few.setdefault((file, function), []).append(item)
    for test, collected in of_few.items():
        patterns = [_regex(f"{test[1]}[{kept}]") for kept in few[test]]
        left = [item for item in collected if not any(regex.fullmatch(item.name) for regex in patterns)]
        for item in left if len(left) < len(collected) else ():
            item.add_marker(pytest.mark.slow)


def _regex(pattern):
    return re.compile(".*".join(map(re.escape, pattern.split("*"))))
