"""A worker of a sweep: it takes trials one after the other and trains each in a run folder of its own."""

import json
import math
import multiprocessing
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from testudo_hardware.errors import TestudoError
from testudo_policies.learning.builder import build
from testudo_policies.learning.progress import Progress
from testudo_policies.learning.run_files import NAME
from testudo_policies.learning.training_run import train_run
from testudo_policies.sweeping.declaration import (
    REASON,
    Sweep,
    best_trials,
    declared,
    locked,
    next_trial,
    opened,
    optuna_library,
    run_of,
)
from testudo_policies.sweeping.search_space import with_values
from testudo_policies.train_config import TrainConfig

WORKERS_LOCK, _CLAIM_LOCK = "workers.lock", "claim.lock"
_REPORTS = 100  # values of a trial that the pruner compares, in percent of its updates
_NEWEST = 0.1  # share of the updates at the end of a run whose mean is its result
_SAID_EVERY_S = 15.0

Say = Callable[[str], None]


class _PrunedError(Exception):
    """The trial is not worth going on."""


@dataclass
class Watch:
    """Follows a trial: reports its values, prunes it, and stops where its sweep has died."""

    study_trial: Any
    sweep: Sweep
    say: Say
    parent: int | None  # process that stops this one with Ctrl-C; None: it is the verb itself
    reported: int = -1
    said: float = 0.0

    def __call__(self, progress: Progress) -> None:
        """Report the value of an update.

        Raises:
            KeyboardInterrupt: the sweep has died.
            _PrunedError: the trial is not worth going on.
        """
        if self.parent not in (None, os.getppid()):  # it was killed: nobody would stop this one
            raise KeyboardInterrupt
        value, percent = progress.metrics.get(self.sweep.objective), percent_of(progress)
        if value is not None and self.reported_and_pruned(value, percent):
            raise _PrunedError

    def reported_and_pruned(self, value: float, percent: int) -> bool:
        """Report a value at a share of the course; return whether the trial is not worth going on."""
        if percent <= self.reported:
            return False
        self.reported = percent
        if time.monotonic() - self.said > _SAID_EVERY_S:
            self.said = time.monotonic()
            self.say(f"trial {self.study_trial.number}: {percent} %, {self.sweep.objective} {value:.4g}")
        self.study_trial.report(value, percent)
        return bool(self.study_trial.should_prune())

    def tell_begin(self) -> None:
        """Say which options are tried."""
        found = ", ".join(f"{name} {shown(value)}" for name, value in self.study_trial.params.items())
        self.say(f"trial {self.study_trial.number}: {found}")

    def tell_pruned(self, study: Any) -> None:
        """Tell the study that the trial was ended."""
        study.tell(self.study_trial, state=optuna_library().trial.TrialState.PRUNED)
        self.say(f"trial {self.study_trial.number}: pruned, {self.sweep.objective} is below the median")

    def tell_failed(self, study: Any, reason: str) -> None:
        """Tell the study that the trial has no result."""
        self.study_trial.set_user_attr(REASON, reason)
        study.tell(self.study_trial, state=optuna_library().trial.TrialState.FAIL)
        self.say(f"trial {self.study_trial.number}: failed: {reason}")

    def tell_result(self, study: Any, value: float) -> None:
        """Tell the study the result of the trial."""
        if not math.isfinite(value):
            self.tell_failed(study, f"{self.sweep.objective} is not finite")
            return
        study.tell(self.study_trial, value)
        best, objective = best_trials(study)[0], self.sweep.objective
        self.say(
            f"trial {self.study_trial.number}: {objective} {value:.4g}; best {best.value:.4g} (trial {best.number})"
        )


def percent_of(progress: Progress) -> int:
    """Return the share of the course of a training at which a value is compared, in percent."""
    return _REPORTS * progress.update // progress.updates


def trained(config: TrainConfig, folder: Path, objective: str, watch: Callable[[Progress], None]) -> float | None:
    """Train a trial in its run folder, from its checkpoint if it has one; return its result, None if it was stopped.

    The result is the mean of the objective over the newest tenth of the updates.

    Raises:
        TestudoError: the configuration is invalid, or the objective was never known.
    """
    if not train_run(build(config), folder, watch).finished:
        return None
    rows = [json.loads(line) for line in (folder / NAME).read_text(encoding="utf-8").splitlines()]
    newest = rows[-max(1, round(_NEWEST * len(rows))) :]
    known = [row[objective] for row in newest if objective in row]
    if not known:
        names = ", ".join(sorted(set(rows[-1]) - {"update", "decisions", "seconds"}))
        raise TestudoError(
            f"{folder}: {objective} is not known at the end; train longer than an episode, or choose one of {names}"
        )
    return fmean(known)


def work(folder: Path, trials: int, say: Say, parent: int | None = None) -> bool:
    """Run trials until as many have begun in the sweep; return whether it was not stopped.

    It stops when it is no longer a child of the process ``parent``, where one is given.
    """
    sweep = declared(folder)
    assert sweep is not None  # noqa: S101 -- the caller declared it
    with locked(folder, WORKERS_LOCK, shared=True):
        study = opened(folder)
        while True:
            with locked(folder, _CLAIM_LOCK):
                found = next_trial(study, sweep, trials)
            if found is None:
                return True
            trial, values = found
            watch = Watch(trial, sweep, say, parent)
            if not _run_trial(study, folder, with_values(sweep.config, values), watch):
                return False


def _run_trial(study: Any, folder: Path, config: TrainConfig, watch: Watch) -> bool:
    """Run a trial and tell the study; false if it was stopped, so that it is to go on later."""
    watch.tell_begin()
    try:
        value = trained(config, folder / run_of(watch.study_trial), watch.sweep.objective, watch)
    except _PrunedError:
        watch.tell_pruned(study)
    except KeyboardInterrupt:
        return False
    except TestudoError as error:
        watch.tell_failed(study, str(error))
    else:
        if value is None:
            return False
        watch.tell_result(study, value)
    return True


def work_in_processes(folder: Path, trials: int, workers: int) -> bool:
    """Run trials by several processes on this machine; return whether none was stopped.

    Ctrl-C reaches all of them; each saves a checkpoint of its trial and ends.
    """
    os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", f"{0.9 / workers:.2f}")  # they share an accelerator
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_process, args=(folder, trials, index)) for index in range(workers)]
    for process in processes:
        process.start()
    for process in processes:
        while process.is_alive():
            try:
                process.join()
            except KeyboardInterrupt:  # they received it, too, and are saving
                continue
    return all(process.exitcode == 0 for process in processes)


def shown(value: Any) -> str:
    """Return the value of an option as text."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _process(folder: Path, trials: int, index: int) -> None:
    parent = os.getppid()

    def say(text: str) -> None:
        print(f"worker {index}: {text}", flush=True)  # noqa: T201 -- progress of the verb

    try:
        finished = work(folder, trials, say, parent)
    except KeyboardInterrupt:
        finished = False
    raise SystemExit(0 if finished else 1)
