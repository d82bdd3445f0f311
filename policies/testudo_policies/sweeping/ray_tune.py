"""Trials of a sweep by Ray Tune: several processes or machines, with the study, the runs and the results of any sweep.

The verb's process alone asks and tells Optuna's study; Ray Tune decides where a trial runs, and begins it anew, from
the checkpoint of its run, where its process or machine fails. Importing this module needs the package `ray`.
"""

import logging
import os
import shutil
import socket
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune.search import Searcher

from testudo_hardware.errors import TestudoError
from testudo_policies.learning.progress import Progress
from testudo_policies.sweeping.declaration import (
    Sweep,
    counted_trials,
    declared,
    locked,
    next_trial,
    opened,
    optuna_library,
    run_of,
)
from testudo_policies.sweeping.search_space import with_values
from testudo_policies.sweeping.worker import WORKERS_LOCK, Say, Watch, percent_of, trained

LOCAL = "local"
"""Address that starts Ray on this machine."""
_RETRIES = 2  # how often a trial begins anew whose process or machine failed
_STORE_BYTES = 100 * 2**20  # memory that processes share; trials hand over a few numbers
_EVERY_S = 2.0  # of reports, each of which costs about a second
_COURSE, _RESULT, _REASON = "course", "result", "reason"
"""What a trial reports: values (percent, value) of its course, and in the end its result or why it has none."""
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is sent to the makers of Ray
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # paths in options are those of the verb's folder
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # a trial without a GPU of Ray's keeps the machine's settings
    "RAY_AIR_NEW_OUTPUT": "0",  # the verb says what happens
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # the run folder of a trial has its figures
}


def work_by_ray(folder: Path, trials: int, workers: int, address: str, say: Say) -> bool:
    """Run trials by Ray Tune until as many have begun in the sweep; return whether none was stopped.

    Args:
        folder: folder of the sweep, which all machines see under the same path.
        trials: trials in all.
        workers: trials at a time.
        address: `LOCAL`, `auto`, or HOST:PORT of the first machine of a cluster.
        say: takes a line about what happens.

    Raises:
        TestudoError: Ray cannot be reached.
    """
    sweep, study = declared(folder), opened(folder)
    assert sweep is not None  # noqa: S101 -- the caller declared it
    left = trials - len(counted_trials(study))
    if left <= 0:
        return True
    asked = Asked(folder.resolve(), sweep, trials, study, say)
    with _cluster(address, workers) as machines, _ray_folder(asked.folder) as storage:
        amounts = {kind: share([one.get(kind, 0) for one in machines], workers) for kind in ("CPU", "GPU")}
        trainable = tune.with_resources(run_trial, {kind.lower(): amount for kind, amount in amounts.items() if amount})
        tune.Tuner(
            trainable,
            tune_config=tune.TuneConfig(search_alg=_Search(asked), num_samples=left, max_concurrent_trials=workers),
            run_config=tune.RunConfig(
                name="trials",
                storage_path=str(storage),
                stop=_Stopper(asked),
                failure_config=tune.FailureConfig(max_failures=_RETRIES),
                verbose=0,
            ),
        ).fit()
    return not study.get_trials(deepcopy=False, states=(optuna_library().trial.TrialState.RUNNING,))


def share(amounts: Sequence[float], workers: int) -> float:
    """Return how much of a resource each of a number of trials gets, of the amounts that the machines have.

    It is the largest whole number with which all fit at the same time, or else a fraction of one.
    """
    total = int(sum(amounts))
    if not total:
        return 0
    whole = [k for k in range(1, int(max(amounts)) + 1) if sum(int(a // k) for a in amounts) >= workers]
    return max(whole, default=1 / -(-workers // total))


@contextmanager
def _cluster(address: str, workers: int) -> Iterator[list[dict[str, float]]]:
    """Start Ray here, or join a cluster; yield what its machines have.

    Raises:
        TestudoError: there is no cluster at the address.
    """
    os.environ.update(_ENVIRONMENT)
    here = {"num_cpus": workers, "include_dashboard": False, "object_store_memory": _STORE_BYTES}
    try:
        with warnings.catch_warnings():
            # JAX warns of each fork; the processes of Ray begin with a program of their own
            warnings.filterwarnings("ignore", message=r"os\.fork", category=RuntimeWarning)
            ray.init(
                address,
                logging_level=logging.ERROR,
                log_to_driver=False,
                runtime_env={"env_vars": _ENVIRONMENT},
                **(here if address == LOCAL else {}),
            )
    except Exception as error:  # Ray raises all kinds, and where its processes take over 30 s to start none of its own
        ray.shutdown()
        why = (str(error) or type(error).__name__).splitlines()[0]
        raise TestudoError(
            f"--ray {address}: found no cluster ({why}); expected {LOCAL}, auto or HOST:PORT, "
            "after `ray start --head` on the first machine"
        ) from error
    try:
        yield [one["Resources"] for one in ray.nodes() if one["Alive"]]
    finally:
        ray.shutdown()


@contextmanager
def _ray_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty folder for what Ray keeps of its own; a sweep goes on without, from its journal and its runs."""
    storage = folder / "ray"
    shutil.rmtree(storage, ignore_errors=True)  # of a sweep that was killed
    try:
        yield storage
    finally:
        shutil.rmtree(storage, ignore_errors=True)


@dataclass
class Asked:
    """Asks the study for trials, and tells it what Ray's trials report; all in the verb's process."""

    folder: Path
    sweep: Sweep
    trials: int  # in all
    study: Any
    say: Say
    watches: dict[str, Watch] = field(default_factory=dict)  # of Ray's trials under way
    pruned: set[str] = field(default_factory=set)

    def __getstate__(self) -> dict[str, Any]:
        """Return nothing: Ray writes down the search, which nothing reads."""
        return {}

    def next(self, name: str) -> dict[str, Any] | None:
        """Return the order of Ray's next trial; None if as many as are asked for have begun."""
        found = next_trial(self.study, self.sweep, self.trials)
        if found is None:
            return None
        trial, values = found
        self.watches[name] = Watch(trial, self.sweep, self.say, None)
        self.watches[name].tell_begin()
        return {"folder": str(self.folder), "place": str(Path.cwd()), "run": run_of(trial), "values": values}

    def is_pruned(self, name: str, report: dict[str, Any]) -> bool:
        """Pass on what a trial reports; return whether it is not worth going on."""
        watch = self.watches[name]
        if any(watch.reported_and_pruned(value, percent) for percent, value in report.get(_COURSE, ())):
            self.pruned.add(name)
        return name in self.pruned

    def end(self, name: str, report: dict[str, Any], *, failed: bool) -> None:
        """Tell the study how a trial has ended; one that was stopped is left to go on later."""
        watch = self.watches.pop(name)
        if name in self.pruned:
            watch.tell_pruned(self.study)
        elif failed:
            watch.tell_failed(self.study, f"its process or machine failed {1 + _RETRIES} times")
        elif _REASON in report:
            watch.tell_failed(self.study, report[_REASON])
        elif report.get(_RESULT) is not None:
            watch.tell_result(self.study, report[_RESULT])


class _Search(Searcher):
    """Optuna's study of the sweep, as Ray Tune asks a search for trials."""

    def __init__(self, asked: Asked) -> None:
        super().__init__()
        self._asked = asked

    def suggest(self, trial_id: str) -> Any:
        """See `Searcher.suggest`."""
        return self._asked.next(trial_id) or Searcher.FINISHED

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """See `Searcher.on_trial_complete`."""
        self._asked.end(trial_id, result or {}, failed=error)

    def save(self, checkpoint_path: str) -> None:
        """Write nothing: the study is in the sweep's folder."""


class _Stopper(tune.Stopper):
    """Reports to Optuna's pruner, and ends the trials that it names."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """See `tune.Stopper`."""
        return self._asked.is_pruned(trial_id, result)

    def stop_all(self) -> bool:
        """Return false: the search says when all is done."""
        return False


def run_trial(order: dict[str, Any]) -> None:
    """Train a trial in a process of Ray's, from the checkpoint of its run; report course and result to the verb."""
    folder = Path(order["folder"])
    if Path(order["place"]).is_dir():
        os.chdir(order["place"])
    part = ray.get_runtime_context().get_assigned_resources().get("GPU", 0)
    if 0 < part < 1:  # several trials share an accelerator
        os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", f"{0.9 * part:.2f}")
    course: list[tuple[int, float]] = []
    try:
        value = _result(folder, order, course)
        tune.report({_COURSE: course, _RESULT: value})
    except TestudoError as error:
        tune.report({_COURSE: course, _REASON: f"{socket.gethostname()}: {error}"})
    except Exception as error:  # noqa: BLE001 -- whatever it is, the user has to see it: Ray's own records go
        tune.report({_COURSE: course, _REASON: f"{socket.gethostname()}: {type(error).__name__}: {error}"})


def _result(folder: Path, order: dict[str, Any], course: list[tuple[int, float]]) -> float | None:
    """Return the result of a trial, None if it was stopped; ``course`` gets the values that are not reported yet.

    Raises:
        TestudoError: this machine does not see the folder, or the options cannot be trained.
    """
    sweep, newest, reported_s = declared(folder), -1, time.monotonic()
    if sweep is None:
        raise TestudoError(
            f"{folder}: found no sweep, expected the folder that the verb was given; all machines have to see it under "
            "the same path"
        )
    objective = sweep.objective

    def watch(progress: Progress) -> None:
        nonlocal newest, reported_s
        value, percent = progress.metrics.get(objective), percent_of(progress)
        if value is None or percent <= newest:
            return
        newest = percent
        course.append((percent, value))
        if time.monotonic() - reported_s > _EVERY_S:
            reported_s = time.monotonic()
            tune.report({_COURSE: list(course)})
            course.clear()

    with locked(folder, WORKERS_LOCK, shared=True):
        return trained(with_values(sweep.config, order["values"]), folder / order["run"], objective, watch)
