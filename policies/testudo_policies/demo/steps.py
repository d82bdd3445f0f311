"""The steps of the demo, each a function of what came before; nothing in it is canned."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path

import jax
from rich.console import Console

from testudo_analysis.rendering.html_viewer import write_page
from testudo_analysis.rendering.run_film import film_run, recorded_show
from testudo_analysis.replay import InputMutation, OpenLoopGap, Reinference, mutations_detected, open_loop, reinfer
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.fleet.fleet import load_fleet
from testudo_deploy.launch.fleet_run import FleetRunState, run_fleet
from testudo_policies.evaluation.evaluation import Evaluation, evaluate_policy
from testudo_policies.exporting.onnx_export import ExportReport
from testudo_policies.exporting.packaging import package_policy
from testudo_policies.exporting.starting_fleet import write_fleet
from testudo_policies.learning.builder import TrainingComponents, build, make_environment
from testudo_policies.learning.progress_display import TrainingDisplay, counted
from testudo_policies.learning.training_run import TrainingResult, train_run
from testudo_policies.train_config import TrainConfig
from testudo_runs.run_reader import RecordedRun, read_run

_CLOCK = time.perf_counter


@dataclass
class Demo:
    """What the demo has come to so far."""

    folder: Path
    console: Console
    config: TrainConfig
    lock_step: bool = False
    """Drive in rounds of simulated time instead of real time."""
    begin_s: float = field(default_factory=_CLOCK)
    seconds: dict[str, float] = field(default_factory=dict)
    """Wall time of each step."""
    further_s: float = 0.0
    """Wall time of the runs after the first, which are no part of the whole job."""

    def headline(self, number: int, text: str) -> None:
        """Announce a step."""
        self.console.rule(f"[bold]{number}. {text}", align="left")

    def timed(self, name: str, since: float) -> None:
        """Note how long a step took."""
        self.seconds[name] = _CLOCK() - since


def train_step(demo: Demo) -> tuple[TrainingComponents, TrainingResult]:
    """Train, with checkpoints in ``training/``."""
    begin = _CLOCK()
    workshop = build(demo.config)
    with TrainingDisplay(demo.console) as display:
        result = train_run(workshop, demo.folder / "training", display.show)
    if not result.finished:
        raise KeyboardInterrupt
    demo.timed("training", begin)
    return workshop, result


def evaluate_step(demo: Demo, workshop: TrainingComponents, trained: TrainingResult, episodes: int) -> Evaluation:
    """Evaluate on held-out episodes."""
    begin = _CLOCK()
    config = demo.config
    environment = make_environment(
        config.scenario,
        workshop.spec,
        workshop.shield,
        config.team_size,
        obstacles=workshop.obstacles,
        yaw_rate_limit=workshop.agent.yaw_rate_limit,
    )
    policy = jax.jit(workshop.agent.policy(trained.parameters))
    with counted(demo.console, "held-out episodes", episodes) as done:
        result = evaluate_policy(environment, policy, config.memory, episodes, on_progress=done)
    (demo.folder / "training" / "evaluation.json").write_text(json.dumps([result.to_dict()], indent=2) + "\n")
    demo.timed("evaluation", begin)
    return result


def export_step(
    demo: Demo, workshop: TrainingComponents, trained: TrainingResult, evaluation: Evaluation, seed: int
) -> tuple[ExportReport, Path]:
    """Export and prove the artefact; returns it and the fleet file."""
    begin = _CLOCK()
    with demo.console.status("converting, and comparing with JAX"):
        report = package_policy(workshop, trained.parameters, demo.folder / "policy.onnx", [evaluation])
        fleet = write_fleet(workshop, report, demo.folder / "fleet.yaml", seed)
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
    demo: Demo, workshop: TrainingComponents, report: ExportReport, run: RecordedRun
) -> tuple[Reinference, tuple[InputMutation, ...], OpenLoopGap]:
    """Infer the run again, check that altered inputs are noticed, and measure the gap."""
    begin = _CLOCK()
    with demo.console.status("replaying"):
        artefact = PolicyArtefact.load(report.path, sha256=report.sha256)
        again = reinfer(run, artefact)
        caught = mutations_detected(run, artefact)
        gap = open_loop(run, workshop.spec)
    demo.timed("replay", begin)
    return again, tuple(caught), gap


def show_step(demo: Demo, workshop: TrainingComponents, run: RecordedRun) -> tuple[Path | None, Path]:
    """Render a film of the run and write a page to look around in it.

    Without OpenGL there is no film, and the report does without; the page is drawn by the browser.
    """
    begin = _CLOCK()
    config = demo.config
    with demo.console.status("rendering"):
        title = f"{config.scenario}: {config.team_size} {workshop.spec.name} over ROS 2"
        show = recorded_show(run, workshop.environment.scenario.arena, title)
        film = film_run(show, demo.folder / "run.webp", demo.console.print)
        page = write_page(show, demo.folder / "view.html")
    demo.timed("film", begin)
    return film, page
