"""The training run: update after update, with progress, metrics and checkpoints, resumable at any time.

The device never waits for the host: an update is sent off before the metrics of the one before are read.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

from testudo_policies.distributed.process_group import CONTINUE, SAVE, STOP, ProcessVote, first
from testudo_policies.distributed.sharding import DevicePlacement
from testudo_policies.learning.builder import TrainingComponents
from testudo_policies.learning.checkpoints import CheckpointError, Checkpoints, blank_state, ctrl_c_waits
from testudo_policies.learning.ppo import TrainState
from testudo_policies.learning.run_files import RunFiles
from testudo_policies.learning.training_reports import Progress, Reports
from testudo_policies.learning.world_count import memory_told
from testudo_policies.networks.agent import AgentParameters

__all__ = ["Progress", "TrainingResult", "load_parameters", "train_run"]

_CHECKPOINT_EVERY_S = 15.0


@dataclass(frozen=True)
class TrainingResult:
    """What a run has come to."""

    parameters: AgentParameters
    updates: int
    finished: bool
    """False if it was interrupted; the folder resumes."""
    compile_s: float
    seconds: float


def train_run(
    workshop: TrainingComponents,
    folder: Path,
    on_progress: Callable[[Progress], None] | None = None,
    devices: list[jax.Device] | None = None,
) -> TrainingResult:
    """Train in a run folder, from its newest checkpoint if it has one.

    The worlds are spread over the devices, by default over all, also those of other processes, which then
    call this as well; the result does not depend on how many there are, rounding excepted.

    Ctrl-C saves a checkpoint and returns what was reached; the same call goes on from there. While
    the update is compiled there is nothing to save yet, and `KeyboardInterrupt` goes on to the caller.

    Raises:
        CheckpointError: the folder holds another run, or a checkpoint that does not fit.
        TestudoError: the worlds do not fit into memory, or cannot be shared out to the processes.
    """
    config = workshop.config
    placement = DevicePlacement.create(config, devices)
    ppo = replace(workshop.ppo, mesh=placement.mesh) if placement.mesh else workshop.ppo
    begin = time.perf_counter()
    with RunFiles(folder, ppo, placement) as files, memory_told(config), jax.default_matmul_precision(config.precision):
        state = files.restore()
        if state is None:  # a run that goes on compiles no start
            state = placement.start(ppo)
        begun = int(state.updates)
        update = _compiled(ppo.update, state, placement) if begun < config.updates else ppo.update
        compile_s = time.perf_counter() - begin
        begin = time.perf_counter()
        with files.log(begun) as log:
            reports = Reports(config, begun, log, on_progress)
            state, interrupted = _advance(update, state, config.updates, reports, files, ProcessVote(placement.mesh))
            reports.tell(show=False)
        done = int(state.updates)
        seconds = time.perf_counter() - begin
        files.save(done, state)
    return TrainingResult(placement.gather(state.parameters), done, not interrupted, compile_s, seconds)


def _advance(
    update: Callable[..., Any], state: TrainState, updates: int, reports: Reports, files: RunFiles, ballot: ProcessVote
) -> tuple[TrainState, bool]:
    """Run the updates that are left; returns the newest state, and whether Ctrl-C came before all was told."""
    done, saved = int(state.updates), time.perf_counter()
    try:
        with _stop_flag() as stop:
            while done < updates:
                with ctrl_c_waits():
                    state, metrics = update(state)
                    done += 1
                    reports.add(done, metrics)
                reports.tell(keep=1)
                wish = STOP if stop else CONTINUE
                if first() and not stop and time.perf_counter() - saved > _CHECKPOINT_EVERY_S:
                    wish, saved = SAVE, time.perf_counter()
                agreed = ballot.ask(wish)
                if agreed == STOP:
                    return state, True
                if agreed == SAVE:
                    reports.tell()
                    files.save(done, state)
            reports.tell()
    except KeyboardInterrupt:
        if jax.process_count() > 1:
            raise
        return state, True
    return state, False


@contextmanager
def _stop_flag() -> Iterator[list[int]]:
    """Yield a list that Ctrl-C fills where several processes must stop together; a second one is heard at once."""
    wished: list[int] = []
    if jax.process_count() == 1:
        yield wished
        return
    before = signal.getsignal(signal.SIGINT)

    def wish(number: int, _: object) -> None:
        wished.append(number)
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, wish)
    try:
        yield wished
    finally:
        signal.signal(signal.SIGINT, before)


def _compiled(update: Callable[..., Any], state: TrainState, placement: DevicePlacement) -> Callable[..., Any]:
    if placement.mesh is None:
        return jax.jit(update).lower(state).compile()
    places = jax.tree.map(lambda leaf: leaf.sharding, state)
    everywhere = NamedSharding(placement.mesh, PartitionSpec())
    return jax.jit(update, out_shardings=(places, everywhere)).lower(state).compile()


def load_parameters(workshop: TrainingComponents, folder: Path) -> AgentParameters:
    """Return the newest parameters of a run folder.

    Raises:
        CheckpointError: there is no checkpoint.
    """
    blank = blank_state(workshop.ppo)
    with Checkpoints(folder, reading=True) as checkpoints:
        state = checkpoints.restore(blank)
    if state is None:
        raise CheckpointError(f"{folder}: no checkpoint yet; run `testudo train --run {folder}` first")
    return state.parameters
