"""`testudo sweep`: searches good training options with Optuna, resumable at any time; by Ray on several machines."""

from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Annotated

import tyro
from rich.console import Console
from rich.text import Text

from testudo_hardware.errors import TestudoError
from testudo_policies.brax.trainers import prepared
from testudo_policies.learning.builder import build
from testudo_policies.sweeping.declaration import (
    Sweep,
    counted_trials,
    declare,
    declared,
    locked,
    opened,
    optuna_library,
    repair,
    requeue_stopped,
)
from testudo_policies.sweeping.results import BEST, table, write_results
from testudo_policies.sweeping.search_space import parsed_space
from testudo_policies.sweeping.worker import WORKERS_LOCK, work, work_in_processes
from testudo_policies.train_config import TrainConfig, suggested
from testudo_sim.devices import devices

_STOPPED = 130  # exit status of every verb that Ctrl-C stops
_LOCK = "sweep.lock"


def sweep(
    scenario: Annotated[str, tyro.conf.Positional] = "navigation",
    *,
    folder: Path,
    space: tyro.conf.UseAppendAction[tuple[str, ...]] = (),
    trials: int = 30,
    workers: int = 1,
    ray: str = "",
    objective: str = "train/return",
    prune: bool = True,
    config: Annotated[TrainConfig, tyro.conf.arg(name="")] = TrainConfig(),  # noqa: B008
) -> int:
    """Optimise training options: each trial is a training run, and its options are chosen by the results so far.

    Ctrl-C or a kill loses nothing: the same --folder goes on, also with the trial that was under way, from its
    checkpoint. The folder holds the runs of all trials, plots, and the best configuration for `testudo train --like`.

    Example:
        testudo sweep navigation --folder runs/sweep --space learning_rate=log:1e-4:3e-3 --space width=32,64,128
        testudo sweep --folder runs/sweep --trials 60     (goes on with its own declaration, up to 60 trials)
        testudo sweep rware --folder runs/sweep --space entropy=0:0.02 --objective episode/deliveries --workers 2
        testudo sweep --folder /shared/sweep --workers 8 --ray auto     (by Ray Tune on the machines of its cluster)
        testudo train --like runs/sweep/best.json --seeds 5 --run runs/best

    Args:
        scenario: registered scenario.
        folder: folder of the sweep; an existing one is resumed with its own declaration.
        space: an option of `testudo train` and its values: NAME=A,B,C, or a range NAME=LOW:HIGH, NAME=log:LOW:HIGH or
            NAME=int:LOW:HIGH.
        trials: trials in all, those of earlier calls included.
        workers: trials at the same time, each in a process of its own: on this machine, or where --ray places them.
        ray: run the trials by Ray Tune: `local` starts Ray on this machine; `auto` or HOST:PORT joins a cluster, all of
            whose machines see --folder under the same path.
        objective: figure of `metrics.jsonl` that is to be large, such as train/success; its mean over the last tenth
            of a run is the result.
        prune: stop a trial that falls below the median of the others at the same share of its course.
        config: all other options of the trials.
    """
    console = Console()
    optuna_library()
    if ray:
        _ray_tune()
    for name, value in (("trials", trials), ("workers", workers)):
        if value < 1:
            raise TestudoError(f"--{name}: found {value}, expected at least 1")
    before = declared(folder)
    found = before or _new(Sweep(replace(config, scenario=scenario), space, objective, prune), console)
    if before is not None and space and space != before.space:
        raise TestudoError(f"--space: found another one than in {folder}, which goes on with its own; leave it out")
    console.print(devices().text)
    if before is None:
        declare(folder, found)
    with locked(folder, _LOCK, wait=False):
        return _run(folder, found, trials, workers, ray, console)


def _new(sweep: Sweep, console: Console) -> Sweep:
    """Return a sweep whose options are complete and valid."""
    config, hint = suggested(sweep.config)
    config, note = prepared(config)
    for line in filter(None, (hint, note)):
        console.print(line)
    if config.trainer != "testudo" or config.worlds == 0:
        found = f"--trainer {config.trainer}" if config.worlds else "--worlds 0"
        raise TestudoError(f"sweep: found {found}, expected --trainer testudo and a number of worlds")
    parsed_space(sweep.space)
    build(config)
    return replace(sweep, config=config)


def _ray_tune() -> ModuleType:
    """Return the module that runs trials by Ray Tune.

    Raises:
        TestudoError: the package is not installed.
    """
    try:
        from testudo_policies.sweeping import ray_tune  # noqa: PLC0415 -- an optional extra
    except ImportError as error:
        raise TestudoError("--ray: the package ray is not installed: pip install 'testudo[ray]'") from error
    return ray_tune


def _run(folder: Path, sweep: Sweep, trials: int, workers: int, ray: str, console: Console) -> int:
    """Run the trials that are left; print and write the results, whatever ends them."""
    with locked(folder, WORKERS_LOCK):  # waits for workers of a sweep that was killed: they notice it and end
        repair(folder)
        study = opened(folder)
        stopped = requeue_stopped(study)
    if stopped:
        console.print(f"{stopped} stopped trials go on from their checkpoints")

    def say(text: str) -> None:
        console.print(Text(text))

    console.print(f"sweep folder {folder}: {len(counted_trials(study))} of {trials} trials have begun")
    try:
        if ray:
            finished = _ray_tune().work_by_ray(folder, trials, workers, ray, say)
        elif workers == 1:
            finished = work(folder, trials, say)
        else:
            finished = work_in_processes(folder, trials, workers)
    except KeyboardInterrupt:
        finished = False
    console.print(table(study, sweep))
    for path in write_results(folder, study, sweep):
        console.print(Text(f"wrote {path}"))
    if not finished:
        console.print(f"stopped; testudo sweep --folder {folder} goes on")
        return _STOPPED
    if (folder / BEST).exists():
        console.print(Text(f"next: testudo train --like {folder / BEST} --seeds 5 --run runs/best"))
    return 0
