"""What a person sees while a long job runs: live on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from testudo_policies.learning.training_run import Progress as TrainingProgress

_PLAIN_EVERY_S = 5.0


class TrainingDisplay:
    """Shows a training run: steps, speed, return, success, collisions, interventions, time left."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=4) if console.is_terminal else None
        self._printed = 0.0

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        self._console.print("compiling the training step (once, about 15 s)")
        return self

    def __exit__(self, *unused: object) -> None:
        if self._live:
            self._live.stop()

    def show(self, progress: TrainingProgress) -> None:
        """Show the state after an update."""
        cells = _cells(progress)
        if self._live:
            table = Table(*cells)
            table.add_row(*cells.values())
            self._live.update(table)
        elif time.monotonic() - self._printed > _PLAIN_EVERY_S or progress.update == progress.updates:
            self._printed = time.monotonic()
            self._console.print("  ".join(f"{name} {value}" for name, value in cells.items()))


def _cells(progress: TrainingProgress) -> dict[str, str]:
    metrics = progress.metrics
    left = (progress.updates - progress.update) * progress.decisions / progress.update
    return {
        "decisions": f"{progress.decisions:,} ({progress.update / progress.updates:.0%})",
        "per second": f"{progress.decisions_per_s:,.0f}",
        "return": f"{metrics['train/return']:.2f}",
        "success": f"{metrics['train/success']:.3f}",
        "collisions": f"{metrics['train/contacts']:.0f}",
        "shield acts": f"{metrics['shield/intervention_rate']:.2f}",
        "time left": f"{left / max(progress.decisions_per_s, 1e-9):.0f} s",
    }


@contextmanager
def counted(console: Console, text: str, total: int) -> Iterator[Any]:
    """Yield a function that is told how many of ``total`` are done; shows nothing where nobody looks."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(text, total=total)
        yield lambda done: bar.update(task, completed=done)
