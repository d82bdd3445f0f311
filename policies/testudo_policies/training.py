"""The training run: update after update, with progress, metrics and checkpoints, resumable at any time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from testudo_policies.agent import AgentParameters
from testudo_policies.build import Workshop
from testudo_policies.checkpoints import CheckpointError, Checkpoints, save_config
from testudo_policies.metrics import MetricsLog
from testudo_policies.ppo import TrainState

_CHECKPOINT_EVERY_S = 15.0


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


@dataclass(frozen=True)
class TrainingResult:
    """What a run has come to."""

    parameters: AgentParameters
    updates: int
    finished: bool
    """False if it was interrupted; the folder resumes."""
    compile_s: float
    seconds: float


def train_run(workshop: Workshop, folder: Path, on_progress: Callable[[Progress], None] | None = None
              ) -> TrainingResult:
    """Train in a run folder, from its newest checkpoint if it has one.

    Ctrl-C saves a checkpoint and returns what was reached; the same call goes on from there. While
    the update is compiled there is nothing to save yet, and `KeyboardInterrupt` goes on to the caller.

    Raises:
        CheckpointError: the folder holds another run, or a checkpoint that does not fit.
    """
    config, ppo = workshop.config, workshop.ppo
    save_config(folder, config)
    begin = time.perf_counter()
    state = jax.jit(ppo.init)(jax.random.key(config.seed))
    with Checkpoints(folder) as checkpoints:
        restored = checkpoints.restore(state)
        state = state if restored is None else restored
        first = done = int(state.updates)
        update = _compiled(ppo.update, state) if done < config.updates else ppo.update
        compile_s = time.perf_counter() - begin
        begin = saved = time.perf_counter()
        interrupted = False
        with MetricsLog(folder, first) as log:
            try:
                while done < config.updates:
                    state, metrics = update(state)
                    values = {name: float(value) for name, value in metrics.items()}
                    done += 1
                    progress = _progress(workshop, first, done, begin, values)
                    log.write(done, progress.decisions, progress.seconds, values)
                    if on_progress:
                        on_progress(progress)
                    if time.perf_counter() - saved > _CHECKPOINT_EVERY_S:
                        checkpoints.save(done, state)
                        saved = time.perf_counter()
            except KeyboardInterrupt:
                interrupted = True
                done = int(state.updates)
        seconds = time.perf_counter() - begin
        checkpoints.save(done, state)
    return TrainingResult(state.parameters, done, not interrupted, compile_s, seconds)


def _compiled(update: Callable[..., Any], state: TrainState) -> Callable[..., Any]:
    return jax.jit(update).lower(state).compile()


def load_parameters(workshop: Workshop, folder: Path) -> AgentParameters:
    """Return the newest parameters of a run folder.

    Raises:
        CheckpointError: there is no checkpoint.
    """
    like = jax.eval_shape(workshop.ppo.init, jax.random.key(workshop.config.seed))
    blank = jax.tree.map(_blank, like)
    with Checkpoints(folder, reading=True) as checkpoints:
        state = checkpoints.restore(blank)
    if state is None:
        raise CheckpointError(f"{folder}: no checkpoint yet; run `testudo train --run {folder}` first")
    return state.parameters


def _blank(leaf: jax.ShapeDtypeStruct) -> jax.Array:
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.key(0)
    return jax.numpy.zeros(leaf.shape, leaf.dtype)


def _progress(workshop: Workshop, first: int, done: int, begin: float, values: dict[str, float]) -> Progress:
    config = workshop.config
    each = config.worlds * config.rollout
    seconds = time.perf_counter() - begin
    return Progress(done, config.updates, done * each, seconds, (done - first) * each / seconds, values)
