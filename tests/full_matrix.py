"""Tests that only `make test-all` runs, read from full_matrix.toml."""

import re
import tomllib
from pathlib import Path

import pytest

TABLE = Path(__file__).with_suffix(".toml")


def left_out():
    """Return each pattern of the table; ``*`` stands for any characters."""
    return [pattern for entry in tomllib.loads(TABLE.read_text())["left_out"] for pattern in entry["tests"]]


def mark_left_out(items):
    """Mark the tests of the table as slow.

    A pattern without parameters matches every case of a test.
    """
    whole, cases = set(), []
    for pattern in left_out():
        if "[" in pattern:
            cases.append(re.compile(".*".join(map(re.escape, pattern.split("*")))))
        else:
            whole.add(pattern)
    functions = {regex.pattern.split("\\[")[0] for regex in cases}
    for item in items:
        function = item.name.split("[")[0]
        if function in whole or (function in functions and any(regex.fullmatch(item.name) for regex in cases)):
            item.add_marker(pytest.mark.slow)
