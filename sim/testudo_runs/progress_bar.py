"""Progress bar of long work on a terminal; it disappears at the end and is silent without a terminal."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console

Tell = Callable[[str, float], None]
"""Called with the current step and the completed fraction of the whole work."""
Share = Callable[[float], None]
"""Called with the completed fraction."""


@contextmanager
def progress_bar(what: str, console: Console | None = None) -> Iterator[Tell]:
    """Show a bar on standard error, or on ``console``, until the block ends; ``what`` is the first step."""
    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield quiet
        return
    from rich.progress import (  # noqa: PLC0415 -- slow to import, and needed on a terminal alone
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )
    with bar:
        task = bar.add_task(what, total=1.0)
        yield lambda text, share: bar.update(task, description=text, completed=share)


def part(tell: Tell, begin: float, end: float) -> Tell:
    """Return the callback of a part of the work that takes it from fraction ``begin`` to ``end``."""
    return lambda text, share: tell(text, begin + share * (end - begin))


class Steps:
    """Progress of work in known steps, each with its approximate share of the time."""

    def __init__(self, tell: Tell, weights: Mapping[str, float]) -> None:
        """Take the steps in order, as names and weights; this reports nothing yet."""
        total, done = sum(weights.values()), 0.0
        self._tell, self._ends = tell, {}
        for name, weight in weights.items():
            self._ends[name] = (done / total, (done + weight) / total)
            done += weight

    def begin(self, name: str) -> Share:
        """Report the start of a step and return the callback for its completed fraction."""
        own = part(self._tell, *self._ends[name])
        own(name, 0.0)
        return lambda share: own(name, share)


def quiet(*_: object) -> None:
    """Report nothing."""
