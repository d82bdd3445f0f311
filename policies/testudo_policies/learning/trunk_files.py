"""Files and figures of a run with a shared trunk: a folder of each scenario in the run folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax

from testudo_policies.distributed import DevicePlacement
from testudo_policies.learning.checkpoints import save_config
from testudo_policies.learning.progress import Progress
from testudo_policies.learning.run_files import MetricsLog, RunFiles
from testudo_policies.learning.seeds import SeveralReports
from testudo_policies.learning.shared_trunk import SharedTrunk
from testudo_policies.train_config import TrainConfig


class TrunkFiles(RunFiles):
    """The files of a run with a shared trunk: checkpoints in its folder, configuration and log of each scenario."""

    def __init__(self, folder: Path, learner: SharedTrunk, placement: DevicePlacement) -> None:
        """See `RunFiles`."""
        super().__init__(folder, learner, placement)
        self._parts = {folder / name: one.config for name, one in learner.components.items()}
        self._horizons = {name: one.environment.horizon for name, one in learner.components.items()}
        for part, config in self._parts.items():
            save_config(part, config)

    @contextmanager
    def log(self, updates: int) -> Iterator[Mapping[str, tuple[MetricsLog, int]]]:  # type: ignore[override]
        """Yield the log and the horizon of each scenario, continued after ``updates`` updates."""
        with ExitStack() as stack:
            yield {
                part.name: (
                    stack.enter_context(MetricsLog(part, updates, asdict(config))),
                    self._horizons[part.name],
                )
                for part, config in self._parts.items()
            }


class TrunkReports(SeveralReports):
    """The figures of several scenarios, each in its own log."""

    def __init__(
        self,
        config: TrainConfig,
        _: int,
        start_update: int,
        logs: Mapping[str, tuple[MetricsLog, int]],
        show: Callable[[Progress], None] | None,
    ) -> None:
        """See `Reports`."""
        self._names = list(logs)
        horizons = [horizon for _, horizon in logs.values()]
        super().__init__(config, horizons, start_update, [log for log, _ in logs.values()], show)

    def _of(self, metrics: dict[str, jax.Array], index: int) -> dict[str, Any]:
        """Return the figures of one scenario, without its name."""
        begin = f"{self._names[index]}/"
        return {name.removeprefix(begin): value for name, value in metrics.items() if name.startswith(begin)}
