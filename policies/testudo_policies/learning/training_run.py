"""A training run with progress, metrics and checkpoints, resumable at any time.

The device never waits for the host: an update is dispatched before the metrics of the previous one are read.
"""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from testudo_hardware.errors import TestudoError
from testudo_policies.distributed import CONTINUE, SAVE, STOP, DevicePlacement, ProcessVote, first
from testudo_policies.hand_written import HAND_WRITTEN
from testudo_policies.learning.builder import TrainingComponents, build
from testudo_policies.learning.checkpoints import CheckpointError, Checkpoints, blank_state, ctrl_c_waits, load_config
from testudo_policies.learning.progress import Progress, Reports
from testudo_policies.learning.run_files import RunFiles
from testudo_policies.learning.seeds import SeveralFiles, SeveralReports, SeveralSeeds, seed_folders
from testudo_policies.learning.self_play import with_opponent
from testudo_policies.learning.shared_trunk import SharedComponents, build_run
from testudo_policies.learning.teacher import TeacherEntry, with_teacher
from testudo_policies.learning.train_state import TrainState
from testudo_policies.learning.trunk_files import TrunkFiles, TrunkReports
from testudo_policies.learning.world_count import explain_out_of_memory
from testudo_policies.networks.agent import AgentParameters
from testudo_policies.train_config import TrainConfig

__all__ = ["Progress", "TrainingResult", "load_parameters", "train_run", "train_seeds", "train_shared"]

_CHECKPOINT_EVERY_S = 15.0


@dataclass(frozen=True)
class TrainingResult:
    """Result of a training run."""

    parameters: AgentParameters  # of several scenarios their `SharedParameters`
    updates: int
    finished: bool  # false if the run was interrupted and can be resumed
    compile_s: float
    seconds: float


def train_run(
    components: TrainingComponents,
    folder: Path,
    on_progress: Callable[[Progress], None] | None = None,
    devices: list[Any] | None = None,
) -> TrainingResult:
    """Train in a run folder, from its newest checkpoint if it has one.

    The worlds are sharded over ``devices``, by default all devices of all processes; every process calls this
    function. Except for rounding, the result does not depend on the number of devices.

    A run with an aim (`TrainConfig.until`) is finished when it has reached it. Ctrl-C saves a checkpoint and returns
    the current result; the same call resumes. During compilation there is nothing to save, and `KeyboardInterrupt` is
    raised.

    Raises:
        CheckpointError: the folder holds another run, or a checkpoint that does not fit.
        TestudoError: the worlds do not fit into memory, or cannot be divided equally among the processes.
    """
    config = components.config
    if config.trunk:
        raise CheckpointError(f"{folder}: found one of {config.trunk}, which are trained together; give its run folder")
    placement = DevicePlacement.create(config, devices)
    learner = replace(cast(Any, components.learner), mesh=placement.mesh) if placement.mesh else components.learner
    begin = time.perf_counter()
    with RunFiles(folder, learner, placement) as files, _arithmetic(config):
        return _trained(learner, files, Reports, on_progress, placement, begin)


def train_seeds(
    components: TrainingComponents, folder: Path, seeds: int, on_progress: Callable[[Progress], None] | None = None
) -> TrainingResult:
    """Train a number of seeds in one program, each in a folder of its own, see `seeds`; otherwise as `train_run`.

    The result holds the parameters of all seeds (S, ...).

    Raises:
        CheckpointError: a folder holds another run, or a checkpoint that does not fit.
        TestudoError: the worlds do not fit into memory, or the folders of the seeds do not fit each other.
    """
    config, learner = components.config, SeveralSeeds(components.learner, seeds)
    begin = time.perf_counter()
    with SeveralFiles(seed_folders(folder, config, seeds), components.learner) as files, _arithmetic(config):
        return _trained(learner, files, SeveralReports.of_seeds, on_progress, DevicePlacement(), begin)


def train_shared(
    components: SharedComponents,
    folder: Path,
    on_progress: Callable[[Progress], None] | None = None,
    devices: list[Any] | None = None,
) -> TrainingResult:
    """Train several scenarios with a shared trunk; otherwise as `train_run`.

    The run folder has the configuration and the checkpoints, and in it a folder of each scenario with its figures,
    which every verb takes that takes a run. The result holds the `SharedParameters`.

    Raises:
        CheckpointError: the folder holds another run, or a checkpoint that does not fit.
        TestudoError: the worlds do not fit into memory.
    """
    config = components.config
    placement = DevicePlacement.create(config, devices)
    learner = replace(components.learner, mesh=placement.mesh)
    begin = time.perf_counter()
    with TrunkFiles(folder, learner, placement) as files, _arithmetic(config):
        return _trained(learner, files, TrunkReports, on_progress, placement, begin)


@contextmanager
def _arithmetic(config: TrainConfig) -> Iterator[None]:
    """Multiply matrices as the configuration says, and explain an error of memory."""
    with explain_out_of_memory(config), jax.default_matmul_precision(config.precision):
        yield


def _trained(
    learner: Any, files: Any, make_reports: Any, on_progress: Any, placement: DevicePlacement, begin: float
) -> TrainingResult:
    """Train with a learner, files and reports of one seed or of several; ``begin`` is the time of the start."""
    config = learner.config
    state = files.restore()
    if state is None:  # a resumed run does not compile the start
        state = placement.start(learner)
        if config.against:
            state = with_opponent(state, load_opponent(config))
        if config.teacher and config.teacher != HAND_WRITTEN:
            state = with_teacher(state, load_teacher(config))
    start_update = _done(state)
    update = _compiled(learner.update, state, placement) if start_update < config.updates else learner.update
    compile_s = time.perf_counter() - begin
    begin = time.perf_counter()
    with files.log(start_update) as log:
        reports = make_reports(config, learner.environment.horizon, start_update, log, on_progress)
        state, interrupted = _advance(update, state, config.updates, reports, files, ProcessVote(placement.mesh))
        reports.flush(show=False)
    done = _done(state)
    seconds = time.perf_counter() - begin
    files.save(done, state)
    return TrainingResult(placement.gather(state.parameters), done, not interrupted, compile_s, seconds)


def _done(state: TrainState) -> int:
    """Return the number of finished updates, which is that of all seeds."""
    return int(np.max(np.asarray(state.updates)))


def _advance(
    update: Callable[..., Any], state: TrainState, updates: int, reports: Any, files: Any, vote: ProcessVote
) -> tuple[TrainState, bool]:
    """Run the remaining updates; return the newest state, and whether Ctrl-C interrupted them."""
    done, saved = _done(state), time.perf_counter()
    try:
        with _stop_flag() as stop:
            while done < updates:
                with ctrl_c_waits():
                    state, metrics = update(state)
                    done += 1
                    reports.add(done, metrics)
                reports.flush(keep=1)
                request = STOP if stop or reports.aim_reached else CONTINUE
                if first() and request == CONTINUE and time.perf_counter() - saved > _CHECKPOINT_EVERY_S:
                    request, saved = SAVE, time.perf_counter()
                agreed = vote.decide(request)
                if agreed == STOP:
                    return state, not reports.aim_reached
                if agreed == SAVE:
                    reports.flush()
                    files.save(done, state)
            reports.flush()
    except KeyboardInterrupt:
        if jax.process_count() > 1:
            raise
        return state, True
    return state, False


@contextmanager
def _stop_flag() -> Iterator[list[int]]:
    """Yield a list to which Ctrl-C appends if several processes must stop together; a second Ctrl-C interrupts."""
    requests: list[int] = []
    if jax.process_count() == 1:
        yield requests
        return
    before = signal.getsignal(signal.SIGINT)

    def request_stop(number: int, _: object) -> None:
        requests.append(number)
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, request_stop)
    try:
        yield requests
    finally:
        signal.signal(signal.SIGINT, before)


def _compiled(update: Callable[..., Any], state: TrainState, placement: DevicePlacement) -> Callable[..., Any]:
    if placement.mesh is None:
        return jax.jit(update).lower(state).compile()
    places = jax.tree.map(lambda leaf: leaf.sharding, state)
    everywhere = NamedSharding(placement.mesh, PartitionSpec())
    return jax.jit(update, out_shardings=(places, everywhere)).lower(state).compile()


def load_parameters(components: TrainingComponents, folder: Path) -> AgentParameters:
    """Return the newest parameters of a run folder, or of a scenario's folder in that of a shared trunk.

    Raises:
        CheckpointError: the folder has no checkpoint.
    """
    config = components.config
    if not config.trunk:
        return _newest(components.learner, folder).parameters
    whole = build_run(replace(config, scenario=config.trunk, trunk=""))
    shared: Any = _newest(whole.learner, folder.parent).parameters
    found: AgentParameters = shared.of(config.scenario)
    return found


def load_met_opponent(components: TrainingComponents, folder: Path) -> AgentParameters:
    """Return the policy that a best response was trained against, as its own run folder keeps it.

    Raises:
        CheckpointError: the folder has no checkpoint.
    """
    pool = _newest(components.learner, folder).rollout.league.pool
    return cast(AgentParameters, jax.tree.map(lambda x: x[0], pool.policies))


def _newest(learner: Any, folder: Path) -> TrainState:
    with Checkpoints(folder, reading=True) as checkpoints:
        state = checkpoints.restore(blank_state(learner))
    if state is None:
        raise CheckpointError(f"{folder}: no checkpoint yet; run `testudo train --run {folder}` first")
    return cast(TrainState, state)


def load_teacher(config: TrainConfig) -> AgentParameters:
    """Return the newest parameters of the run that a configuration names as its teacher.

    Raises:
        TestudoError: there is no such run any more, or it is another one by now.
    """
    entry = TeacherEntry.read(config.teacher)
    folder = Path(entry.run)
    theirs = load_config(folder)
    if replace(theirs, teacher="") != entry.config:
        raise TestudoError(f"--teacher {folder}: found a run of another configuration than when this one was begun")
    return load_parameters(build(theirs), folder)


_SHAPED_BY = (
    "scenario",
    "robot",
    "team_size",
    "command",
    "message",
    "sharing",
    "network",
    "width",
    "memory",
    "most_neighbours",
)
"""Options in which a run and its opponent are equal, as one program runs both policies."""


def load_opponent(config: TrainConfig) -> AgentParameters:
    """Return the newest parameters of the run that a configuration learns against.

    Raises:
        TestudoError: there is no such run, or its policy does not fit as an opponent.
    """
    folder = Path(config.against)
    theirs = load_config(folder)
    for name in _SHAPED_BY:
        found, expected = getattr(theirs, name), getattr(config, name)
        if found != expected:
            option = f"--{name.replace('_', '-')}"
            raise TestudoError(f"--against {folder}: found a run of {option} {found}, expected {expected} as here")
    if theirs.against and theirs.role == config.role:
        raise TestudoError(f"--against {folder}: found a run in which only {theirs.role} has learnt; give another one")
    return load_parameters(build(theirs), folder)
