"""What a training run tells while it goes on: read from the device one update late, so that it never waits."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import jax

from testudo_policies.learning.metrics_log import MetricsLog
from testudo_policies.train_config import TrainConfig


@dataclass(frozen=True)
class Progress:
    """Where a run is after an update."""

    update: int
    updates: int
    decisions: int
    seconds: float
    """Wall time of this session without compilation."""
    decisions_per_s: float
    metrics: dict[str, float]


class Reports:
    """Metrics on their way from the device to log and display, in order, each once."""

    def __init__(
        self, config: TrainConfig, begun: int, log: MetricsLog | None, show: Callable[[Progress], None] | None
    ) -> None:
        """Begin after ``begun`` updates; without a log, as in all processes but one, nothing is told."""
        self._config, self._begun, self._log, self._show = config, begun, log, show
        self._since = time.perf_counter()
        self._waiting: deque[tuple[int, dict[str, jax.Array]]] = deque()

    def add(self, update: int, metrics: dict[str, jax.Array]) -> None:
        """Take the metrics of an update that may still be running; does not wait for them."""
        for value in metrics.values():
            value.copy_to_host_async()
        self._waiting.append((update, metrics))

    def tell(self, *, keep: int = 0, show: bool = True) -> None:
        """Log and show what has been added, the newest ``keep`` excepted; waits for the device."""
        while len(self._waiting) > keep:
            update, metrics = self._waiting[0]
            values = {name: float(value) for name, value in metrics.items()}
            progress = self._progress(update, values)
            if self._log:
                self._log.write(update, progress.decisions, progress.seconds, values)
            self._waiting.popleft()
            if self._log and self._show and show:
                self._show(progress)

    def _progress(self, update: int, values: dict[str, float]) -> Progress:
        each = self._config.worlds * self._config.rollout
        seconds = time.perf_counter() - self._since
        speed = (update - self._begun) * each / seconds
        return Progress(update, self._config.updates, update * each, seconds, speed, values)
