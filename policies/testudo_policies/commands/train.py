"""`testudo train`: trains a coordination policy with the shield at every control tick."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from testudo_deploy.files.atomic_files import dated_folder
from testudo_policies.brax.trainers import prepared, train_run_with_brax
from testudo_policies.distributed import first, join
from testudo_policies.learning.builder import build
from testudo_policies.learning.checkpoints import load_config, shared_config
from testudo_policies.learning.progress import TrainingDisplay
from testudo_policies.learning.training_run import train_run
from testudo_policies.learning.world_count import sized
from testudo_policies.train_config import TrainConfig, suggested
from testudo_sim.devices import devices
from testudo_sim.starts import load_starts, starts_text

_STOPPED = 130  # exit status of every verb that Ctrl-C stops


def train(
    scenario: Annotated[str, tyro.conf.Positional] = "navigation",
    *,
    run: Path | None = None,
    starts: Path | None = None,
    coordinator: str | None = None,
    processes: int | None = None,
    process_id: int | None = None,
    config: Annotated[TrainConfig, tyro.conf.arg(name="")] = TrainConfig(),  # noqa: B008
) -> int:
    """Train a coordination policy for a team, with the shield at every control tick.

    Ctrl-C saves a checkpoint; the same --run resumes from it.

    Example:
        testudo train navigation --robot gritsbot_x --team-size 4
        testudo train navigation --run runs/mine --algorithm ippo --memory 64
        testudo train --run runs/mine      (resumes a stopped run)
        testudo train navigation --trainer brax-ppo --run runs/brax
        testudo train --run runs/large --worlds 0 --decisions 50000000     (as many worlds as fit)
        testudo train navigation --starts incident.yaml     (half of the worlds start at an incident of a real run)
        testudo train --run runs/two --coordinator 10.0.0.1:7007 --processes 2 --process-id 0

    Args:
        scenario: registered scenario.
        run: run folder; an existing one is resumed with its own configuration.
        starts: start file from `testudo incident --save-scenario`; a share of the worlds starts from it.
        coordinator: HOST:PORT of process 0 if several processes train together, or `auto` in a cluster
            that assigns process ids (Slurm, Open MPI, Kubernetes); start the same command once for each process.
        processes: number of processes.
        process_id: index of this process, from 0; only process 0 writes and prints.
        config: the configuration of a new run.
    """
    join(coordinator, processes, process_id)
    console = Console(quiet=not first())
    console.print(devices().text)
    text = "" if starts is None else starts_text(load_starts(starts))
    chosen = _configuration(run, replace(config, scenario=scenario, starts=text), console)
    folder = run or dated_folder("runs", chosen.scenario)
    console.print(f"run folder {folder}")
    components = build(chosen)
    with TrainingDisplay(console) as display:
        learn = train_run if chosen.trainer == "testudo" else train_run_with_brax
        result = learn(components, folder, display.show)
    resume = "the same command with --run resumes it" if chosen.trainer == "testudo" else "it cannot be resumed"
    end = "finished" if result.finished else f"stopped; {resume}"
    console.print(
        f"{end}: {result.updates} of {chosen.updates} updates, {result.seconds:.1f} s "
        f"and {result.compile_s:.1f} s of compilation"
    )
    console.print(f"next: testudo evaluate {folder}   testudo export {folder}")
    return 0 if result.finished else _STOPPED


def _configuration(run: Path | None, requested: TrainConfig, console: Console) -> TrainConfig:
    """Return the saved configuration of the run if it has one, else the requested one, completed."""

    def choose() -> TrainConfig:
        if run is not None and (run / "config.json").exists():
            console.print(f"resuming {run} with its own configuration")
            return load_config(run)
        completed, hint = suggested(requested)
        chosen, note = prepared(completed)
        for line in filter(None, (hint, note)):
            console.print(line)
        return chosen

    # every process measures, so that none waits long for another; the result of process 0 is used
    complete = sized(shared_config(choose), console.print)
    return shared_config(lambda: complete)
