"""The bar of long work: steps that are known beforehand, and silence where nobody looks."""

import io

from rich.console import Console

from testudo_runs.progress_bar import Steps, progress_bar


def test_steps_begin_where_the_ones_before_end():
    told = []
    steps = Steps(lambda *step: told.append(step), {"read": 1, "fit": 3})
    steps.begin("read")
    half = steps.begin("fit")
    half(0.5)
    assert told == [("read", 0.0), ("fit", 0.25), ("fit", 0.625)]


def test_the_bar_is_seen_on_a_terminal_and_nowhere_else():
    for terminal in (True, False):
        written = io.StringIO()
        with progress_bar("fitting", Console(file=written, force_terminal=terminal)) as tell:
            tell("fitting r0", 0.5)
        assert ("fitting r0" in written.getvalue()) is terminal
        assert terminal or not written.getvalue()
