"""The progress bar of long work on the terminal: gone when the work is done, and nothing where nobody looks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

Tell = Callable[[str, float], None]
"""Takes what is being done, and the share of the whole work that is done."""


@contextmanager
def progress_bar(what: str, console: Console | None = None) -> Iterator[Tell]:
    """Show a bar while the work goes on, on standard error.

    Args:
        what: is being done at first.
        console: where to show it instead.
    """
    console = console or Console(stderr=True)
    bar = Progress(TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn(),
                   console=console, transient=True, disable=not console.is_terminal)
    with bar:
        task = bar.add_task(what, total=1.0)
        yield lambda text, share: bar.update(task, description=text, completed=share)


def part(tell: Tell, begin: float, end: float) -> Tell:
    """Return what tells the progress of a part of the work, which goes from one share of the whole to another."""
    return lambda text, share: tell(text, begin + share * (end - begin))


def quiet(*_: object) -> None:
    """Tell nobody."""
