"""`testudo train`: trains a coordination policy with the shield at every control tick."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import jax
import tyro
from rich.console import Console

from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.files.atomic_files import dated_folder
from testudo_hardware.errors import TestudoError
from testudo_policies.brax.trainers import prepared, train_run_with_brax
from testudo_policies.distributed import first, join
from testudo_policies.hand_written import HAND_WRITTEN
from testudo_policies.improve.initial_policy import matches
from testudo_policies.learning.builder import TrainingComponents, build
from testudo_policies.learning.checkpoints import load_config, read_config_file, shared_config
from testudo_policies.learning.progress import TrainingDisplay
from testudo_policies.learning.seeds import seed_folders
from testudo_policies.learning.shared_trunk import SharedComponents, build_run
from testudo_policies.learning.teacher import teacher_text
from testudo_policies.learning.training_run import load_parameters, train_run, train_seeds, train_shared
from testudo_policies.learning.wandb_run import ask_for_wandb
from testudo_policies.learning.world_count import sized
from testudo_policies.train_config import TrainConfig, suggested
from testudo_sim.devices import devices
from testudo_sim.starts import load_starts, starts_text

_STOPPED = 130  # exit status of every verb that Ctrl-C stops


def train(
    scenario: Annotated[str, tyro.conf.Positional] = "navigation",
    *,
    run: Path | None = None,
    like: Path | None = None,
    seeds: int = 1,
    starts: Path | None = None,
    coordinator: str | None = None,
    processes: int | None = None,
    process_id: int | None = None,
    wandb: str = "",
    config: Annotated[TrainConfig, tyro.conf.arg(name="")] = TrainConfig(),  # noqa: B008
) -> int:
    """Train a coordination policy for a team, with the shield at every control tick.

    Ctrl-C saves a checkpoint; the same --run resumes from it.

    Example:
        testudo train navigation --robot gritsbot_x --team-size 4
        testudo train navigation --run runs/mine --algorithm ippo --memory 64
        testudo train --run runs/mine      (resumes a stopped run)
        testudo train navigation --trainer brax-ppo --run runs/brax
        testudo train navigation --seeds 5 --run runs/five     (five seeds in one program: runs/five/seed_0 ...)
        testudo train --run runs/large --worlds 0 --decisions 50000000     (as many worlds as fit)
        testudo train foraging+discovery --run runs/two     (one network: a shared trunk, a head for each scenario)
        testudo train discovery --sharing role --network attention     (parameters of each role, attention)
        testudo train chase --self-play 8 --run runs/play     (roles against each other and against earlier policies)
        testudo train chase --against runs/play --role prey     (a best response to the policy of a run)
        testudo train unmapped --teacher runs/teacher     (imitates, then learns; also `--teacher hand-written`)
        testudo train navigation --starts incident.yaml     (half of the worlds start at an incident of a real run)
        testudo train navigation --run runs/mine --wandb teams     (curves in Weights & Biases)
        testudo train --like runs/sweep/best.json --seeds 5     (options of a sweep or of another run)
        testudo train --run runs/two --coordinator 10.0.0.1:7007 --processes 2 --process-id 0

    Args:
        scenario: registered scenario, or several joined by `+`, which learn in one network, each in its own `--worlds`.
        run: run folder; an existing one is resumed with its own configuration.
        like: config.json of a run, or best.json of a sweep: its options, where you give no other ones.
        seeds: number of seeds to train in one program, from `--seed` on; each has a run folder in the run folder.
        starts: start file from `testudo incident --save-scenario`; a share of the worlds starts from it.
        coordinator: HOST:PORT of process 0 if several processes train together, or `auto` in a cluster
            that assigns process ids (Slurm, Open MPI, Kubernetes); start the same command once for each process.
        processes: number of processes.
        process_id: index of this process, from 0; only process 0 writes and prints.
        wandb: project of Weights & Biases for the curves, also of a resumed run; WANDB_MODE=offline needs no account.
        config: the configuration of a new run.
    """
    join(coordinator, processes, process_id)
    console = Console(quiet=not first())
    console.print(devices().text)
    requested = replace(config, scenario=scenario, starts=_starts_text(starts), teacher=_teacher_text(config.teacher))
    completed, hint = suggested(requested) if like is None else (_like(read_config_file(like), requested), "")
    chosen, seeds = _configuration(run, completed, hint, seeds, console)
    folder = run or dated_folder("runs", chosen.scenario)
    console.print(f"run folder {folder}")
    components = build_run(chosen)
    if wandb and first():
        for one in _curves(folder, chosen, seeds):
            ask_for_wandb(one, wandb)
    return _train(components, folder, seeds, console)


def _curves(folder: Path, config: TrainConfig, seeds: int) -> tuple[Path, ...]:
    """Return the folders in which a run keeps its figures: of each seed, or each scenario."""
    if seeds > 1:
        return tuple(seed_folders(folder, config, seeds))
    return tuple(folder / name for name in config.scenarios) if len(config.scenarios) > 1 else (folder,)


def _train(components: TrainingComponents | SharedComponents, folder: Path, seeds: int, console: Console) -> int:
    """Train with a display, say what comes next, and return the exit status."""
    chosen = components.config
    with TrainingDisplay(console) as display:
        if isinstance(components, SharedComponents):
            result = train_shared(components, folder, display.show)
        elif seeds > 1:
            result = train_seeds(components, folder, seeds, display.show)
        else:
            learn = train_run if chosen.trainer == "testudo" else train_run_with_brax
            result = learn(components, folder, display.show)
    resume = "the same command with --run resumes it" if chosen.trainer == "testudo" else "it cannot be resumed"
    end = "finished" if result.finished else f"stopped; {resume}"
    console.print(
        f"{end}: {result.updates} of {chosen.updates} updates, {result.seconds:.1f} s "
        f"and {result.compile_s:.1f} s of compilation"
    )
    best = _curves(folder, chosen, seeds)[0]
    whole = folder if isinstance(components, SharedComponents) else best
    console.print(f"next: testudo evaluate {best}   testudo export {whole}")
    return 0 if result.finished else _STOPPED


def _starts_text(starts: Path | None) -> str:
    return "" if starts is None else starts_text(load_starts(starts))


def _teacher_text(given: str) -> str:
    """Return `TrainConfig.teacher` for a run folder, a policy file in the folder of its run, or `HAND_WRITTEN`.

    Raises:
        TestudoError: there is no run with a checkpoint, or the file holds another policy than its folder.
    """
    if given in ("", HAND_WRITTEN):
        return given
    path = Path(given)
    folder = path if path.is_dir() else path.parent
    theirs = load_config(folder)
    components = build(theirs)
    parameters = load_parameters(components, folder)
    if path.is_file() and not matches(components.agent, parameters, PolicyArtefact.load(path).contract):
        raise TestudoError(
            f"--teacher {path}: found another policy than the newest one of the run {folder}; expected the file that "
            f"`testudo export {folder}` writes; export again, or give the run folder"
        )
    return teacher_text(folder.resolve(), theirs)


def _like(config: TrainConfig, requested: TrainConfig) -> TrainConfig:
    """Return a configuration with the options that were given: those that differ from the defaults."""
    given = {name: value for name, value in asdict(requested).items() if value != getattr(TrainConfig, name)}
    return replace(config, **given)


def _configuration(
    run: Path | None, requested: TrainConfig, hint: str, seeds: int, console: Console
) -> tuple[TrainConfig, int]:
    """Return the saved configuration of the run if it has one, else the requested one with a hint; and its seeds.

    Raises:
        TestudoError: several seeds of a trainer, or on several processes, that do not train them in one program.
    """
    before = [] if run is None else sorted(run.glob("seed_*"), key=lambda folder: load_config(folder).seed)
    if before:
        console.print(f"resuming {len(before)} seeds in {run} with their own configuration")
        return load_config(before[0]), len(before)
    if seeds < 1:
        raise TestudoError(f"--seeds: found {seeds}, expected at least 1")
    if len(requested.scenarios) > 1 and (seeds > 1 or jax.process_count() > 1):
        found = f"--seeds {seeds}" if seeds > 1 else "several processes"
        raise TestudoError(f"{found}: found several scenarios, expected one; train one seed in one process")
    if seeds > 1 and (requested.trainer != "testudo" or jax.process_count() > 1):
        found = "several processes" if jax.process_count() > 1 else f"--trainer {requested.trainer}"
        raise TestudoError(f"--seeds {seeds}: found {found}, expected one process and --trainer testudo")
    if seeds > 1 and run is not None and (run / "config.json").exists():
        raise TestudoError(f"--seeds {seeds}: found a run of one seed in {run}; train into another folder")

    def choose() -> TrainConfig:
        if run is not None and (run / "config.json").exists():
            console.print(f"resuming {run} with its own configuration")
            return load_config(run)
        chosen, note = prepared(requested)
        for line in filter(None, (hint, note)):
            console.print(line)
        return chosen

    # every process measures, so that none waits long for another; the result of process 0 is used
    complete = sized(shared_config(choose), console.print)
    return shared_config(lambda: complete), seeds
