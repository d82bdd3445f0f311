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
    counted_trials,
    declared,
    locked,
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
class _Watch:
    """Follows a trial: reports its values, prunes it, and stops where its sweep has died."""

    study_trial: Any
    sweep: Sweep
    say: Say
    parent: int | None  # process that stops this one with Ctrl-C; None: it is the verb itself
    reported: int = -1
    said: float = 0.0

    def __call__(self, progress: Progress) -> None:
        if self.parent not in (None, os.getppid()):  # it was killed: nobody would stop this one
            raise KeyboardInterrupt
        value = progress.metrics.get(self.sweep.objective)
        percent = _REPORTS * progress.update // progress.updates
        if value is None or percent <= self.reported:
            return
        self.reported = percent
        if time.monotonic() - self.said > _SAID_EVERY_S:
            self.said = time.monotonic()
            self.say(f"trial {self.study_trial.number}: {percent} %, {self.sweep.objective} {value:.4g}")
        self.study_trial.report(value, percent)
        if self.study_trial.should_prune():
            raise _PrunedError


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
                if len(counted_trials(study)) >= trials:
                    return True
                trial = study.ask()
                values = {one.name: one.drawn(trial) for one in sweep.dimensions}
            watch = _Watch(trial, sweep, say, parent)
            if not _run_trial(study, folder, with_values(sweep.config, values), watch):
                return False


def _run_trial(study: Any, folder: Path, config: TrainConfig, watch: _Watch) -> bool:
    """Run a trial and tell the study; false if it was stopped, so that it is to go on later."""
    states = optuna_library().trial.TrialState
    trial, sweep, say = watch.study_trial, watch.sweep, watch.say
    say(f"trial {trial.number}: {', '.join(f'{name} {shown(value)}' for name, value in trial.params.items())}")
    try:
        value = trained(config, folder / run_of(trial), sweep.objective, watch)
    except _PrunedError:
        study.tell(trial, state=states.PRUNED)
        say(f"trial {trial.number}: pruned, {sweep.objective} is below the median")
        return True
    except KeyboardInterrupt:
        return False
    except TestudoError as error:
        trial.set_user_attr(REASON, str(error))
        study.tell(trial, state=states.FAIL)
        say(f"trial {trial.number}: failed: {error}")
        return True
    if value is None:
        return False
    if not math.isfinite(value):
        trial.set_user_attr(REASON, f"{sweep.objective} is not finite")
        study.tell(trial, state=states.FAIL)
        return True
    study.tell(trial, value)
    best = best_trials(study)[0]
    say(f"trial {trial.number}: {sweep.objective} {value:.4g}; best {best.value:.4g} (trial {best.number})")
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
