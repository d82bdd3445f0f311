"""The steps of `testudo demo` and the contents of its report; nothing is precomputed."""

import json
import os
import platform
import time
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import jax
from rich.console import Console
from rich.table import Table

from testudo_analysis.rendering.render_run import film_run, recorded_animation
from testudo_analysis.replay import InputMutation, Reinference, mutations_detected, reinfer
from testudo_analysis.replay.open_loop import OpenLoopGap, open_loop
from testudo_analysis.report.fleet_summary import COLUMNS, flown_row, flown_run
from testudo_analysis.report.report_data import (
    EvaluationRow,
    FleetSection,
    FlownRun,
    ParitySection,
    ReinferenceSection,
    ReportData,
    TrainingSection,
)
from testudo_analysis.run_page.analyse_run import analyse_run
from testudo_analysis.run_page.build_page import RunContents
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.fleet.fleet import load_fleet
from testudo_deploy.launch.fleet_run import FleetRunState, run_fleet
from testudo_policies.evaluation.evaluation import Evaluation, evaluate_policy
from testudo_policies.exporting.onnx_export import ExportReport
from testudo_policies.exporting.packaging import package_policy, write_fleet
from testudo_policies.learning.builder import TrainingComponents, build, make_environment
from testudo_policies.learning.progress import TrainingDisplay, counted
from testudo_policies.learning.training_run import TrainingResult, train_run
from testudo_policies.train_config import TrainConfig
from testudo_runs.progress_bar import progress_bar
from testudo_runs.run_reader import RecordedRun, read_run
from testudo_sim.deployed_environment import DeployedEnvironment
from testudo_sim.physics_choice import PhysicsChoice

_CLOCK = time.perf_counter


@dataclass
class Demo:
    """State of the demo between its steps."""

    folder: Path
    console: Console
    config: TrainConfig
    lock_step: bool = False  # run in lock-step with simulated time instead of real time
    begin_s: float = field(default_factory=_CLOCK)
    seconds: dict[str, float] = field(default_factory=dict)  # wall time of each step
    further_s: float = 0.0  # wall time [s] of the runs after the first; not part of the reported wall time

    def headline(self, number: int, text: str) -> None:
        """Print the headline of a step."""
        self.console.rule(f"[bold]{number}. {text}", align="left")

    def timed(self, name: str, since: float) -> None:
        """Store the wall time of a step that began at ``since``."""
        self.seconds[name] = _CLOCK() - since


def train_step(demo: Demo) -> tuple[TrainingComponents, TrainingResult]:
    """Train, with checkpoints in ``training/``.

    Raises:
        KeyboardInterrupt: Ctrl-C stopped the training.
    """
    begin = _CLOCK()
    components = build(demo.config)
    with TrainingDisplay(demo.console) as display:
        result = train_run(components, demo.folder / "training", display.show)
    if not result.finished:
        raise KeyboardInterrupt
    demo.timed("training", begin)
    return components, result


def evaluate_step(
    demo: Demo, components: TrainingComponents, trained: TrainingResult, episodes: int
) -> list[Evaluation]:
    """Evaluate on held-out episodes, with layer 1 alone as in training, and as deployed with all layers."""
    begin = _CLOCK()
    config = demo.config
    environment = make_environment(
        config.scenario,
        components.spec,
        components.shield,
        config.team_size,
        obstacles=components.obstacles,
        yaw_rate_limit=components.agent.yaw_rate_limit,
        tracking=components.environment.team.tracking,
    ).with_message(components.agent.message_size)
    policy = jax.jit(components.agent.policy(trained.parameters))
    results = []
    for each in (environment, DeployedEnvironment.of(environment, PhysicsChoice())):
        name = "held-out episodes, " + ("layer 1" if each is environment else "all layers")
        with counted(demo.console, name, episodes) as done:
            results.append(evaluate_policy(each, policy, config.memory, episodes, on_progress=done, has_iqm=True))
    values = [result.to_dict() for result in results]
    (demo.folder / "training" / "evaluation.json").write_text(json.dumps(values, indent=2) + "\n")
    demo.timed("evaluation", begin)
    return results


def export_step(
    demo: Demo, components: TrainingComponents, trained: TrainingResult, evaluations: list[Evaluation], seed: int
) -> tuple[ExportReport, Path]:
    """Export and verify the artefact; return its report and the fleet file."""
    begin = _CLOCK()
    with demo.console.status("converting, and comparing with JAX"):
        path = demo.folder / "policy.onnx"
        report = package_policy(components, trained.parameters, path, evaluations, trained.updates)
        fleet = write_fleet(components, report, demo.folder / "fleet.yaml", seed)
    demo.timed("export", begin)
    return report, fleet


def fleet_run_step(demo: Demo, fleet: Path, seed: int) -> tuple[FleetRunState, RecordedRun]:
    """Drive the fleet over ROS 2 in real time, and read the recording."""
    begin = _CLOCK()
    with demo.console.status("starting the nodes") as status:

        def show(state: FleetRunState) -> None:
            farthest = max(state.distance_m.values(), default=float("nan"))
            status.update(
                f"driving: {state.time_s:.0f} s, farthest robot {farthest:.2f} m from its goal, "
                f"{state.contacts} contacts"
            )

        state = run_fleet(
            load_fleet(fleet), run_folder=demo.folder / "run", seed=seed, lock_step=demo.lock_step, show=show
        )
    demo.timed("fleet", begin)
    return state, read_run(demo.folder / "run")


def replay_step(
    demo: Demo, components: TrainingComponents, report: ExportReport, run: RecordedRun
) -> tuple[Reinference, tuple[InputMutation, ...], OpenLoopGap]:
    """Re-infer the run, check that altered inputs are detected, and measure the gap."""
    begin = _CLOCK()
    with demo.console.status("replaying"):
        artefact = PolicyArtefact.load(report.path, sha256=report.sha256)
        again = reinfer(run, artefact)
        caught = mutations_detected(run, artefact)
        gap = open_loop(run, components.spec)
    demo.timed("replay", begin)
    return again, tuple(caught), gap


def show_step(demo: Demo, components: TrainingComponents, run: RecordedRun) -> Path | None:
    """Render a film of the run; None without OpenGL."""
    begin = _CLOCK()
    config = demo.config
    with demo.console.status("rendering"):
        title = f"{config.scenario}: {config.team_size} {components.spec.name} over ROS 2"
        task = components.environment.scenario
        animation = recorded_animation(run, task.arena, title, task.task_signals)
        film = film_run(animation, demo.folder / "run.webp", demo.console.print)
    demo.timed("film", begin)
    return film


def analysis_step(demo: Demo) -> RunContents:
    """Search the run for incidents and compare it with the model, for the page."""
    begin = _CLOCK()
    with progress_bar("analysing the run") as tell:
        contents = analyse_run(demo.folder / "run", tell=tell)
    demo.timed("analysis", begin)
    return contents


def run_again(demo: Demo, components: TrainingComponents, export: ExportReport, seeds: range) -> list[FlownRun]:
    """Drive a fleet for each seed, record it in ``runs/<seed>``, and print a table."""
    begin = time.perf_counter()
    table, runs = Table(*COLUMNS), []
    for seed in seeds:
        folder = demo.folder / "runs" / str(seed)
        fleet = write_fleet(components, export, folder / "fleet.yaml", seed)
        with demo.console.status(f"seed {seed}: driving"):
            state = run_fleet(load_fleet(fleet), run_folder=folder / "run", seed=seed, lock_step=demo.lock_step)
        runs.append(flown_run(seed, state, read_run(folder / "run"), export.contract.shield))
        table.add_row(*flown_row(runs[-1]))
    if runs:
        demo.console.print(table)
    demo.further_s = time.perf_counter() - begin
    return runs


_PACKAGES = ("testudo", "jax", "flax", "mujoco", "onnxruntime", "numpy")
_SUCCESS_BAR = 0.98
_WALL_BAR_S = 300.0
_TRAINING_BARS_S = {2: 60.0, 3: 120.0}  # by space dimensions of the robots


def report_data(
    demo: Demo,
    trained: TrainingResult,
    evaluations: list[Evaluation],
    export: ExportReport,
    run: RecordedRun,
    reinference: Reinference,
    detected: tuple[InputMutation, ...],
    gap: OpenLoopGap,
    wall_s: float,
) -> ReportData:
    """Return the contents of the demo's report."""
    config, folder = demo.config, demo.folder
    facts = {
        "algorithm": config.algorithm,
        "robots": str(config.team_size),
        "memory": str(config.memory),
        "worlds": str(config.worlds),
        "decisions": f"{config.decisions:,}",
        "seed": str(config.seed),
    }
    return ReportData(
        title=f"Testudo: {config.scenario} with {config.team_size} {export.contract.robot}",
        subtitle=f"{folder.name}: trained, exported, driven over ROS 2, replayed",
        wall_s=wall_s,
        wall_bar_s=_WALL_BAR_S,
        training=TrainingSection.read(folder / "training" / "metrics.jsonl", trained.compile_s, facts),
        training_bar_s=_TRAINING_BARS_S[export.contract.dimension],
        evaluation=tuple(EvaluationRow.from_values(result.to_dict(), _SUCCESS_BAR) for result in evaluations),
        parity=ParitySection.from_values(export.parity.to_dict()),
        fleet=FleetSection(run, export.contract),
        reinference=ReinferenceSection(reinference, detected),
        gap=gap,
        contract=export.contract,
        versions={name: version(name) for name in _PACKAGES}
        | {
            "python": platform.python_version(),
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, {jax.devices()[0].device_kind}",
        },
        hashes={
            "policy.onnx": export.sha256,
            "contract": export.contract.contract_hash,
            "robot": export.contract.robot_sha256,
        },
        next_steps=(
            (f"testudo inspect {folder / 'policy.onnx'}", "what is inside the artefact"),
            (f"testudo up --fleet {folder / 'fleet.yaml'} --seed 1", "drive again, with another plant"),
            (f"testudo view {folder / 'run'}", "show the run: in a window, or as a film if there is no screen"),
            (f"testudo replay {folder / 'run'} --alter", "see re-inference fail on an altered input"),
            (f"testudo evaluate {folder / 'policy.onnx'} --team-size 2 4 6 8", "other team sizes"),
        ),
    )
