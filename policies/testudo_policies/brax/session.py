"""Metrics, checkpoints and progress of a training run while brax trains."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from testudo_policies.brax.networks import BraxNetworks
from testudo_policies.learning.builder import TrainingComponents
from testudo_policies.learning.checkpoints import blank_state
from testudo_policies.learning.run_files import MetricsLog, RunFiles
from testudo_policies.learning.training_run import Progress, TrainingResult
from testudo_policies.networks.agent import AgentParameters, Params

_CHECKPOINT_EVERY_S = 15.0
_EPISODES = {  # metric name of Testudo: names of brax
    "train/return": ("sum_reward", "reward"),
    "train/success": ("success",),
    "train/contacts": ("contacts",),
    "shield/intervention_rate": ("interventions_per_step",),
    "shield/brake_rate": ("brakes_per_step",),
}
_NOT_LOSSES = ("sps", "walltime")


class BraxSession:
    """Receives brax's reports, writes metrics and checkpoints, and reports progress."""

    def __init__(
        self,
        components: TrainingComponents,
        networks: BraxNetworks,
        files: RunFiles,
        log: MetricsLog,
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        """Start a session; the time until the first report counts as compilation."""
        self.updates = 0
        self._config, self._networks = components.config, networks
        self._files, self._log, self._on_progress = files, log, on_progress
        self._state = blank_state(components.learner)
        self._newest = self._reported = self.blank
        self._episodes: dict[str, float] = {}
        self._first = 0
        self._begin = self._saved = time.perf_counter()
        self._compile_s = 0.0

    @property
    def blank(self) -> AgentParameters:
        """Return parameters of the right shapes, all zero."""
        return self._state.parameters

    def learned(self, statistics: Any, actor: Params, critic: Params) -> None:
        """Store brax's newest parameters."""
        parameters = self._networks.parameters(statistics, actor, critic)
        # in the types of a checkpoint and not bound to a device: brax replicates its parameters on all devices
        self._newest = jax.tree.map(lambda like, x: jnp.asarray(np.asarray(x), like.dtype), self.blank, parameters)

    def see_episodes(self, metrics: Mapping[str, Any], prefix: str) -> None:
        """Store brax's metrics of finished episodes; their names begin with ``prefix``."""
        found = {}
        for name, brax_names in _EPISODES.items():
            values = [float(metrics[prefix + key]) for key in brax_names if prefix + key in metrics]
            if values:
                found[name] = values[0]
        if "train/contacts" in found:  # a robot counts its share; reported is the sum of a world
            found["train/contacts"] *= self._config.team_size
        self._episodes = found

    def report(self, update: int, metrics: Mapping[str, Any]) -> None:
        """Log that ``update`` updates are done, and save a checkpoint every 15 s."""
        now = time.perf_counter()
        if not self.updates:
            self._compile_s, self._begin, self._first = now - self._begin, now, update
            seconds, rate = 0.0, update / self._compile_s
        else:
            seconds = now - self._begin
            rate = (update - self._first) / max(seconds, 1e-9)
        self.updates, self._reported = update, self._newest
        losses = {
            name.removeprefix("training/"): float(value)
            for name, value in metrics.items()
            if name.startswith("training/")
        }
        values = {
            **self._episodes,
            **{f"loss/{name}": value for name, value in losses.items() if name not in _NOT_LOSSES},
        }
        each = self._config.worlds * self._config.rollout
        self._log.write(update, update * each, seconds, values)
        if now - self._saved > _CHECKPOINT_EVERY_S:
            self._save()
        if self._on_progress:
            shown = dict.fromkeys(_EPISODES, math.nan) | values  # no episode has ended yet
            self._on_progress(Progress(update, self._config.updates, update * each, seconds, rate * each, shown))

    def result(self, *, finished: bool) -> TrainingResult:
        """Save and return the newest reported parameters."""
        self._save()
        seconds = time.perf_counter() - self._begin
        return TrainingResult(self._reported, self.updates, finished, self._compile_s, seconds)

    def _save(self) -> None:
        # a checkpoint is a whole TrainState; of this one only parameters and update count are valid
        state = replace(self._state, parameters=self._reported, updates=jnp.int32(self.updates))
        self._files.save(self.updates, state)
        self._saved = time.perf_counter()
