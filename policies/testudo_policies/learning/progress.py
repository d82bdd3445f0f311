"""Progress of long jobs: metrics of a training run and displays on the terminal.

Metrics are read from the device one update late, so that the device never waits for the host.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import jax
from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as ProgressBar
from rich.table import Table

from testudo_policies.learning.episode_window import Aim, EpisodeWindow
from testudo_policies.learning.run_files import MetricsLog
from testudo_policies.train_config import TrainConfig


@dataclass(frozen=True)
class Progress:
    """State of a training run after an update."""

    update: int
    updates: int
    decisions: int
    seconds: float  # wall time [s] of this session without compilation
    decisions_per_s: float
    metrics: dict[str, float]


class Reports:
    """Queue of metrics from the device to log and display."""

    def __init__(
        self,
        config: TrainConfig,
        horizon: int,
        start_update: int,
        log: MetricsLog | None,
        show: Callable[[Progress], None] | None,
    ) -> None:
        """Start after ``start_update`` updates; without a log, as in all processes except 0, nothing is reported.

        ``horizon`` is the number of decisions in an episode.
        """
        self._config, self._start_update, self._log, self._show = config, start_update, log, show
        self._window = EpisodeWindow(horizon, config.rollout, config.worlds * config.rollout)
        self._aim = Aim.parsed(config.until)
        for row in log.earlier if log else ():
            self._window.add(row)
            if self._aim is not None:
                self._aim.is_reached(row)
        self.aim_reached = False
        """Whether the figure of `TrainConfig.until` has been reached."""
        self._since = time.perf_counter()
        self._waiting: deque[tuple[int, dict[str, jax.Array]]] = deque()

    def add(self, update: int, metrics: dict[str, jax.Array]) -> None:
        """Add the metrics of an update that may still be running; does not wait for them."""
        for value in metrics.values():
            value.copy_to_host_async()
        self._waiting.append((update, metrics))

    def flush(self, *, keep: int = 0, show: bool = True) -> None:
        """Log and show all metrics except the newest ``keep``; waits for the device."""
        while len(self._waiting) > keep:
            update, metrics = self._waiting[0]
            values = {name: float(value) for name, value in metrics.items()}
            values |= self._window.add(values)
            self.aim_reached |= self._aim is not None and self._aim.is_reached(values)
            progress = self._progress(update, values)
            values["train/decisions_per_s"] = progress.decisions_per_s
            if self._log:
                self._log.write(update, progress.decisions, progress.seconds, values)
            self._waiting.popleft()
            if self._log and self._show and show:
                self._show(progress)

    def _progress(self, update: int, values: dict[str, float]) -> Progress:
        each = self._config.worlds * self._config.rollout
        seconds = time.perf_counter() - self._since
        speed = (update - self._start_update) * each / seconds
        return Progress(update, self._config.updates, update * each, seconds, speed, values)


_PLAIN_EVERY_S = 5.0


class TrainingDisplay:
    """Shows a training run: live table on a terminal, lines elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=4) if console.is_terminal else None
        self._printed = 0.0

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        self._console.print("compiling the training step (about 15 s the first time)")
        return self

    def __exit__(self, *unused: object) -> None:
        if self._live:
            self._live.stop()

    def show(self, progress: Progress) -> None:
        """Show the state after an update."""
        cells = _cells(progress)
        if self._live:
            table = Table(*cells)
            table.add_row(*cells.values())
            self._live.update(table)
        elif time.monotonic() - self._printed > _PLAIN_EVERY_S or progress.update == progress.updates:
            self._printed = time.monotonic()
            self._console.print("  ".join(f"{name} {value}" for name, value in cells.items()))


def _cells(progress: Progress) -> dict[str, str]:
    metrics = progress.metrics
    left = (progress.updates - progress.update) * progress.decisions / progress.update
    return {
        "decisions": f"{progress.decisions:,} ({progress.update / progress.updates:.0%})",
        "per second": f"{progress.decisions_per_s:,.0f}",
        "return": _shown(metrics.get("train/return"), 2),
        "success": _shown(metrics.get("train/success"), 3),
        **({"difficulty": f"{metrics['train/difficulty']:.2f}"} if "train/difficulty" in metrics else {}),
        "collisions": f"{metrics['train/contacts']:.0f}",
        "shield acts": f"{metrics['shield/intervention_rate']:.2f}",
        "time left": f"{left / max(progress.decisions_per_s, 1e-9):.0f} s",
    }


def _shown(value: float | None, digits: int) -> str:
    """Return a number for the table; a dash for one that is not known yet."""
    return "-" if value is None else f"{value:.{digits}f}"


@contextmanager
def counted(console: Console, text: str, total: int) -> Iterator[Any]:
    """Yield a function to call with the number of finished items; the bar is shown on terminals only."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with ProgressBar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(text, total=total)
        yield lambda done: bar.update(task, completed=done)
