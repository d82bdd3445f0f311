"""The progress bar of long work on the terminal: gone when the work is done, and nothing where nobody looks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

Tell = Callable[[str, float], None]
"""Takes what is being done, and the share of the whole work that is done."""
Share = Callable[[float], None]
"""Takes the share that is done."""


@contextmanager
def progress_bar(what: str, console: Console | None = None) -> Iterator[Tell]:
    """Show a bar while the work goes on, on standard error.

    Args:
        what: is being done at first.
        console: where to show it instead.
    """
    console = console or Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task(what, total=1.0)
        yield lambda text, share: bar.update(task, description=text, completed=share)


def part(tell: Tell, begin: float, end: float) -> Tell:
    """Return what tells the progress of a part of the work, which goes from one share of the whole to another."""
    return lambda text, share: tell(text, begin + share * (end - begin))


class Steps:
    """A work whose steps are known beforehand, each with about its part of the time."""

    def __init__(self, tell: Tell, weights: Mapping[str, float]) -> None:
        """Make them of names and weights, in order; nothing is told yet."""
        total, done = sum(weights.values()), 0.0
        self._tell, self._ends = tell, {}
        for name, weight in weights.items():
            self._ends[name] = (done / total, (done + weight) / total)
            done += weight

    def begin(self, name: str) -> Share:
        """Tell that a step begins, and return what is told the share of it that is done."""
        own = part(self._tell, *self._ends[name])
        own(name, 0.0)
        return lambda share: own(name, share)


def quiet(*_: object) -> None:
    """Tell nobody."""
