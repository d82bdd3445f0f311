"""What a sweep is, in its folder: the declaration, the journal of its trials, and who works in it."""

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from testudo_deploy.files.atomic_files import write_whole
from testudo_hardware.errors import TestudoError
from testudo_hardware.strict_files import read_as
from testudo_policies.sweeping.search_space import Dimension, parsed_space
from testudo_policies.train_config import TrainConfig

_FILE, _JOURNAL = "sweep.json", "journal.log"
_STUDY = "testudo"
FOLDER, REASON = "folder", "reason"
"""Attributes of a trial: the run that it goes on from, and why it failed; one that was stopped has no reason."""


@dataclass(frozen=True)
class Sweep:
    """The declaration of a sweep."""

    config: TrainConfig  # of all trials, but for the search space
    space: tuple[str, ...]  # as the user wrote it
    objective: str  # figure of the metrics of a run that is to be large
    prune: bool

    @property
    def dimensions(self) -> tuple[Dimension, ...]:
        """Return the search space."""
        return parsed_space(self.space)


def optuna_library() -> ModuleType:
    """Return the `optuna` package, silent.

    Raises:
        TestudoError: it is not installed.
    """
    try:
        import optuna  # noqa: PLC0415 -- an optional extra
    except ImportError as error:
        raise TestudoError("the package optuna is not installed: pip install 'testudo[sweep]'") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def declared(folder: Path) -> Sweep | None:
    """Return the sweep of a folder; None where there is none.

    Raises:
        TestudoError: its declaration cannot be read.
    """
    path = folder / _FILE
    if not path.exists():
        return None
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TestudoError(f"{path}: cannot be read: {error}") from error
    found: Sweep = read_as(Sweep, values, str(path), TestudoError)
    return found


def declare(folder: Path, sweep: Sweep) -> None:
    """Write the declaration of a new sweep.

    Raises:
        TestudoError: the folder cannot be made or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / _FILE, json.dumps(asdict(sweep), indent=2) + "\n")
    except OSError as error:
        raise TestudoError(f"--folder {folder}: cannot be written: {error.strerror}") from error


def opened(folder: Path) -> Any:
    """Return the study of a folder, made where there is none.

    Its journal is only ever appended to, so that a kill costs at most the line that was being written, see `repair`.
    """
    optuna = optuna_library()
    sweep = declared(folder)
    prune = sweep is not None and sweep.prune
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(folder / _JOURNAL)))
    return optuna.create_study(
        storage=storage,
        study_name=_STUDY,
        direction="maximize",
        sampler=optuna.samplers.TPESampler(constant_liar=True),
        pruner=optuna.pruners.MedianPruner(n_warmup_steps=30) if prune else optuna.pruners.NopPruner(),
        load_if_exists=True,
    )


def repair(folder: Path) -> None:
    """Cut off the end of a line that a kill left in the journal; no worker may be at work."""
    path = folder / _JOURNAL
    data = path.read_bytes() if path.exists() else b""
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        os.truncate(path, whole)


@contextmanager
def locked(folder: Path, name: str, *, shared: bool = False, wait: bool = True) -> Iterator[None]:
    """Hold a lock of a folder; the kernel gives it back when the process ends, however it does.

    Raises:
        TestudoError: without ``wait``, another process holds it.
    """
    with (folder / name).open("a") as file:
        flags = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB)
        try:
            fcntl.flock(file, flags)
        except BlockingIOError:
            raise TestudoError(f"{folder}: found a sweep at work; wait for it, or stop it first") from None
        yield


def requeue_stopped(study: Any) -> int:
    """Let the trials that a stop or a kill left in mid-course go on, before all others; return their number.

    No worker may be at work. Each goes on from the checkpoint of its run.
    """
    states = optuna_library().trial.TrialState
    running = study.get_trials(deepcopy=False, states=(states.RUNNING,))
    for trial in running:
        study.enqueue_trial(trial.params, user_attrs={FOLDER: run_of(trial)})
        study.tell(trial.number, state=states.FAIL)
    return len(running)


def run_of(trial: Any) -> str:
    """Return the name of the run folder of a trial."""
    return str(trial.user_attrs.get(FOLDER, f"trial_{trial.number:04d}"))


def next_trial(study: Any, sweep: Sweep, trials: int) -> tuple[Any, dict[str, Any]] | None:
    """Return the next trial and the values of its options; None if as many as ``trials`` have begun."""
    if len(counted_trials(study)) >= trials:
        return None
    trial = study.ask()
    return trial, {one.name: one.drawn(trial) for one in sweep.dimensions}


def counted_trials(study: Any) -> list[Any]:
    """Return the trials that count: all but those that were stopped and go on as another, and those that wait."""
    states = optuna_library().trial.TrialState

    def counts(trial: Any) -> bool:
        return trial.state not in (states.WAITING, states.FAIL) or REASON in trial.user_attrs

    return [trial for trial in study.get_trials(deepcopy=False) if counts(trial)]


def best_trials(study: Any) -> Sequence[Any]:
    """Return the finished trials, the best first."""
    states = optuna_library().trial.TrialState
    return sorted(study.get_trials(deepcopy=False, states=(states.COMPLETE,)), key=lambda trial: -trial.value)
