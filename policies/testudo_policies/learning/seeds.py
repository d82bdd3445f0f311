"""Training of several seeds in one program: the update of all is one `jax.vmap` over their states.

Each seed has a run folder of its own below that of the run, ``seed_<number>``, with the configuration, metrics and
checkpoints of a run with that ``--seed``: every verb that takes a run takes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import jax
import jax.numpy as jnp

from testudo_hardware.errors import TestudoError
from testudo_policies.distributed import DevicePlacement, Learner
from testudo_policies.learning.progress import Progress, Reports
from testudo_policies.learning.run_files import MetricsLog, RunFiles
from testudo_policies.train_config import TrainConfig
from testudo_sim.environment import Environment


def seed_folders(folder: Path, config: TrainConfig, seeds: int) -> dict[Path, TrainConfig]:
    """Return the run folders of a number of seeds, from that of the configuration on, with their configurations."""
    chosen = range(config.seed, config.seed + seeds)
    return {folder / f"seed_{seed}": replace(config, seed=seed) for seed in chosen}


@dataclass(frozen=True)
class SeveralSeeds:
    """A learner of several seeds at once; the leaves of its state have the seeds (S, ...) as first axis."""

    learner: Learner
    seeds: int

    @property
    def config(self) -> TrainConfig:
        """The configuration of the first seed."""
        return self.learner.config

    @property
    def environment(self) -> Environment:
        """The worlds in which each seed learns."""
        return self.learner.environment

    @cached_property
    def start(self) -> Callable[[jax.Array], Any]:
        """`init`, compiled once."""
        return jax.jit(self.init)

    def init(self, key: jax.Array) -> Any:
        """Return the states before the first update; each is that of a run with its seed, whatever the ``key``."""
        first = self.config.seed
        keys = jnp.stack([jax.random.key(first + index) for index in range(self.seeds)])
        return jax.vmap(self.learner.init)(keys)

    def update(self, state: Any) -> tuple[Any, dict[str, jax.Array]]:
        """Return the states after an update of each seed, and its figures (S,)."""
        return jax.vmap(self.learner.update)(state)


class SeveralFiles:
    """The files of the runs of several seeds."""

    def __init__(self, folders: dict[Path, TrainConfig], learner: Learner) -> None:
        """See `RunFiles`.

        Raises:
            CheckpointError: a folder holds another run, or cannot be written.
        """
        self._stack, placement = ExitStack(), DevicePlacement()
        with ExitStack() as opened:
            self._files = [
                opened.enter_context(RunFiles(folder, _with_config(learner, config), placement))
                for folder, config in folders.items()
            ]
            self._stack = opened.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *unused: object) -> None:
        self._stack.close()

    def restore(self) -> Any | None:
        """Return the states of the newest update that all seeds have saved; None without one."""
        saved = [set(files.saved) for files in self._files]
        common = set.intersection(*saved)
        if not common:
            if any(saved):
                raise TestudoError(
                    f"the seeds have no saved update in common: found {[sorted(one) for one in saved]}; remove the "
                    "folders of the seeds that lag behind, or train into another folder"
                )
            return None
        states = [files.restore(max(common)) for files in self._files]
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)

    def save(self, update: int, state: Any) -> None:
        """Save the state of each seed after its ``update``-th update."""
        for index, files in enumerate(self._files):
            files.save(update, jax.tree.map(lambda x, at=index: x[at], state))

    @contextmanager
    def log(self, updates: int) -> Any:
        """Yield the metrics logs of the seeds, continued after ``updates`` updates."""
        with ExitStack() as stack:
            yield [stack.enter_context(_opened(files.log(updates))) for files in self._files]


class SeveralReports:
    """The figures of several runs in one program: each in its own log, their means on the display."""

    def __init__(
        self,
        config: TrainConfig,
        horizons: Sequence[int],
        start_update: int,
        logs: list[MetricsLog],
        show: Callable[[Progress], None] | None,
    ) -> None:
        """See `Reports`."""
        self._shown: list[Progress] = []
        self._show = show
        self._reports = [
            Reports(config, horizon, start_update, log, self._shown.append)
            for horizon, log in zip(horizons, logs, strict=True)
        ]

    @classmethod
    def of_seeds(
        cls,
        config: TrainConfig,
        horizon: int,
        start_update: int,
        logs: list[MetricsLog],
        show: Callable[[Progress], None] | None,
    ) -> Self:
        """Return the reports of several seeds."""
        return cls(config, [horizon] * len(logs), start_update, logs, show)

    @property
    def aim_reached(self) -> bool:
        """Whether all have reached the figure of `TrainConfig.until`."""
        return all(report.aim_reached for report in self._reports)

    def add(self, update: int, metrics: dict[str, jax.Array]) -> None:
        """Add the figures of an update that may still be running."""
        for index, report in enumerate(self._reports):
            report.add(update, self._of(metrics, index))

    def _of(self, metrics: dict[str, jax.Array], index: int) -> dict[str, jax.Array]:
        """Return the figures of one seed from those (S,) of all."""
        return {name: values[index] for name, values in metrics.items()}

    def flush(self, *, keep: int = 0, show: bool = True) -> None:
        """Log and show all figures except the newest ``keep`` updates; waits for the device."""
        self._shown.clear()
        for report in self._reports:
            report.flush(keep=keep, show=show)
        if self._shown and self._show:
            self._show(_mean(self._shown, len(self._reports)))


def _mean(shown: list[Progress], runs: int) -> Progress:
    """Return the newest progress with the means of the runs that know a figure."""
    newest = [one for one in shown if one.update == shown[-1].update]
    values: dict[str, float] = {}
    for name in newest[0].metrics:
        known = [one.metrics[name] for one in newest if name in one.metrics]
        values[name] = sum(known) / len(known)
    return replace(newest[-1], metrics=values, decisions_per_s=newest[-1].decisions_per_s * runs)


def _with_config(learner: Learner, config: TrainConfig) -> Learner:
    alike: Any = learner
    return replace(alike, config=config)


def _opened(log: AbstractContextManager[MetricsLog | None]) -> AbstractContextManager[MetricsLog]:
    """Return the log, which process 0 always has."""
    found: Any = log
    return found
