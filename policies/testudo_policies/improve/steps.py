"""The steps of `testudo improve`, each a function of what came before and kept in the folder once it is done."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import jax
from rich.console import Console

from testudo_deploy.contract.command_types import check_velocities_alone
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.files.atomic_files import write_whole
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import RobotSpec, load_robot
from testudo_policies.dataset.episodes import DatasetEpisode, episodes_of
from testudo_policies.evaluation.evaluation import BatchPolicy, Evaluation, evaluate_policy
from testudo_policies.evaluation.policy_under_test import load_policy_under_test
from testudo_policies.exporting.onnx_export import ExportReport
from testudo_policies.exporting.packaging import package_policy
from testudo_policies.improve.comparison import Comparison
from testudo_policies.improve.components import FineTuningComponents
from testudo_policies.improve.counterfactual import complaints, counterfactual
from testudo_policies.improve.initial_policy import InitialPolicy, find_initial_policy
from testudo_policies.improve.recorded_transitions import recorded_of
from testudo_policies.improve.run_starts import run_starts
from testudo_policies.learning.builder import TrainingComponents, build, make_environment
from testudo_policies.learning.progress_display import TrainingDisplay, counted
from testudo_policies.learning.training_run import Progress, TrainingResult, load_parameters, train_run
from testudo_runs.run_reader import RecordedRun
from testudo_sim.environment import Environment

Method = Literal["finetune", "h2o"]
ROBOT_FILE, REPORT, POLICY, TRAINING = "identified.toml", "improve.json", "policy.onnx", "training"
CANDIDATE = "candidate.onnx"
MODEL, RUN = "identified model", "starts of the run"
_RATE = 0.3
"""Of the first learning rate of the old policy's training: it is to be tuned, not to be lost."""
_CLOCK = time.perf_counter


@dataclass(frozen=True)
class ImproveSettings:
    """What is asked for."""

    run_folder: Path
    policy: Path
    folder: Path
    method: Method
    minutes: float
    episodes: int
    decisions: int | None
    """Of fine-tuning; None takes as many as the old policy was trained for."""


@dataclass
class Improvement:
    """What has come of it so far; `improve.json` in the folder holds the values."""

    order: ImproveSettings
    console: Console
    old: PolicyArtefact
    run: RecordedRun | None
    """None where no policy of ours drove it."""
    values: dict[str, Any] = field(default_factory=dict)

    def headline(self, number: int, text: str) -> None:
        """Announce a step."""
        self.console.rule(f"[bold]{number}. {text}", align="left")

    def keep(self, name: str, value: Any) -> None:
        """Note what a step came to, in the folder, too.

        Raises:
            TestudoError: it cannot be written.
        """
        self.values[name] = value
        path = self.order.folder / REPORT
        try:
            write_whole(path, json.dumps(self.values, indent=2, allow_nan=False) + "\n")
        except OSError as error:
            raise TestudoError(f"{path}: cannot be written: {error.strerror}") from error

    @property
    def robot_file(self) -> Path:
        """Return the identified robot."""
        return self.order.folder / ROBOT_FILE


def open_improvement(order: ImproveSettings, console: Console, run: RecordedRun | None) -> Improvement:
    """Return the state in the folder; a folder of other inputs is refused.

    Raises:
        TestudoError: the folder holds something else, or the policy does not hold.
    """
    old = PolicyArtefact.load(order.policy)
    check_velocities_alone(old.contract.command, f"{order.policy}: improve")
    state = Improvement(order, console, old, run)
    asked = {
        "run": str(order.run_folder),
        "policy_sha256": old.sha256,
        "method": order.method,
        "episodes": order.episodes,
        "decisions": order.decisions,
    }
    path = order.folder / REPORT
    if path.is_file():
        try:
            state.values = json.loads(path.read_text(encoding="utf-8"))
            found = state.values["asked"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise TestudoError(f"{path}: cannot be read: {error!r}; give another --out") from error
        other = [name for name, value in asked.items() if found.get(name) != value]
        if other:
            raise TestudoError(
                f"{order.folder}: holds an improvement of something else ({other[0]} is "
                f"{found.get(other[0])!r}, not {asked[other[0]]!r}); give another --out"
            )
        console.print(f"going on in {order.folder}")
        return state
    try:
        order.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TestudoError(f"--out {order.folder}: cannot be written: {error.strerror}") from error
    state.keep("asked", asked)
    return state


def robot_changes(old: RobotSpec, new: RobotSpec) -> dict[str, Any]:
    """Return which quantities differ: value and interval before and after."""
    return {
        key: {
            "unit": quantity.unit,
            "source": quantity.source,
            "new": [quantity.value, quantity.low, quantity.high],
            "old": [before.value, before.low, before.high] if before is not None else None,
        }
        for key, quantity in new.quantities.items()
        if (before := old.quantities.get(key)) is None
        or (before.value, before.low, before.high) != (quantity.value, quantity.low, quantity.high)
    }


def components_step(state: Improvement) -> FineTuningComponents:
    """Find where to go on from, and build the parts of fine-tuning on the identified robot."""
    with state.console.status("looking for the old policy's checkpoint"):
        beginning = find_initial_policy(state.old, state.robot_file)
        config = beginning.config
        config = replace(
            config,
            decisions=state.order.decisions or config.decisions,
            learning_rate=config.learning_rate * (1.0 if beginning.parameters is None else _RATE),
        )
        beginning = replace(beginning, config=config)
        workshop = FineTuningComponents.of(build(config), beginning)
    state.console.print(f"begins with: {beginning.note}")
    if state.order.method == "h2o":
        workshop = _with_run(state, workshop, beginning)
    state.keep("begins_with", {"source": beginning.source, "note": beginning.note})
    return workshop


def _with_run(state: Improvement, workshop: FineTuningComponents, beginning: InitialPolicy) -> FineTuningComponents:
    if beginning.parameters is None:
        raise TestudoError(f"--method h2o: needs the old policy's weights ({beginning.note}); use --method finetune")
    if state.run is None:
        raise TestudoError(
            f"{state.order.run_folder}: --method h2o learns from recorded transitions, which only a run "
            "of a policy of ours holds; use --method finetune"
        )
    episodes = recorded_episodes(state)
    recorded = recorded_of(episodes, workshop, beginning.parameters)
    steps = int(recorded.weight.sum())
    state.keep("recorded", {"episodes": len(episodes), "robot_steps": steps})
    state.console.print(f"{steps:,} recorded robot-steps; simulated ones are weighed by how real they look")
    return replace(workshop, recorded=recorded)


def recorded_episodes(state: Improvement) -> tuple[DatasetEpisode, ...]:
    """Return the transitions of the run, as the policy that drove it saw them."""
    return episodes_of(state.run, PolicyArtefact.load(state.run.policy_path, sha256=state.run.policy_sha256).contract)


def train_step(state: Improvement, workshop: FineTuningComponents) -> TrainingResult:
    """Fine-tune, with checkpoints in ``training/``, until it is done or its time is over.

    Raises:
        KeyboardInterrupt: Ctrl-C; the checkpoint is written.
    """
    folder = state.order.folder / TRAINING
    if "trained" in state.values:
        done = state.values["trained"]["updates"]
        return TrainingResult(load_parameters(workshop, folder), done, finished=True, compile_s=0.0, seconds=0.0)
    timer = _Timer(state.order.minutes * 60)
    with TrainingDisplay(state.console) as display:
        # one device: recorded sequences cannot be shared out in equal parts
        result = train_run(workshop, folder, timer.watch(display.show), jax.devices()[:1])
    if not result.finished and not timer.over:
        raise KeyboardInterrupt
    why = "" if result.finished else f"; {state.order.minutes:g} minutes were over"
    state.console.print(f"{result.updates} of {workshop.config.updates} updates in {result.seconds:.0f} s{why}")
    state.keep(
        "trained",
        {
            "updates": result.updates,
            "planned": workshop.config.updates,
            "decisions": result.updates * workshop.config.worlds * workshop.config.rollout,
        },
    )
    return result


@dataclass
class _Timer:
    """Ends a training when its time is over, as Ctrl-C would."""

    limit_s: float
    over: bool = False
    _begin: float | None = None

    def watch(self, show: Callable[[Progress], None]) -> Callable[[Progress], None]:
        """Return what is to be told of the progress."""

        def told(progress: Progress) -> None:
            self._begin = _CLOCK() if self._begin is None else self._begin
            show(progress)
            if _CLOCK() - self._begin >= self.limit_s and progress.update < progress.updates:
                self.over = True
                raise KeyboardInterrupt

        return told


def evaluate_step(state: Improvement, workshop: TrainingComponents, trained: TrainingResult) -> tuple[Comparison, ...]:
    """Evaluate both policies on the same episodes: of the identified model, and from the starts of the run."""
    old = load_policy_under_test(state.order.policy)
    new = jax.jit(workshop.agent.policy(trained.parameters))
    places = {
        MODEL: make_environment(
            workshop.config.scenario,
            workshop.spec,
            workshop.shield,
            workshop.config.team_size,
            obstacles=workshop.obstacles,
        )
    }
    if state.run is not None:
        starts = run_starts(state.run, state.old.contract, workshop.spec)
        base = make_environment(
            workshop.config.scenario,
            workshop.spec,
            workshop.shield,
            len(state.run.robots),
            obstacles=workshop.obstacles,
        )
        places[RUN] = replace(base, scenario=starts)
    memory = workshop.config.memory
    return tuple(
        Comparison(
            name,
            _evaluated(state, f"old, {name}", place, old.policy, memory),
            _evaluated(state, f"new, {name}", place, new, memory),
        )
        for name, place in places.items()
    )


def _evaluated(state: Improvement, name: str, environment: Environment, policy: BatchPolicy, memory: int) -> Evaluation:
    """Return an evaluation, from the folder if it was made before."""
    kept = state.values.get("evaluations", {})
    if name in kept:
        return Evaluation(**{key: math.nan if value is None else value for key, value in kept[name].items()})
    with counted(state.console, name, state.order.episodes) as done:
        result = evaluate_policy(environment, policy, memory, state.order.episodes, on_progress=done)
    state.keep("evaluations", {**kept, name: result.to_dict()})
    return result


def export_step(
    state: Improvement, workshop: TrainingComponents, trained: TrainingResult, evaluation: Evaluation
) -> ExportReport:
    """Export and prove the new policy, as a candidate that the counterfactual of the run may still refuse."""
    with state.console.status("converting, and comparing with JAX"):
        return package_policy(workshop, trained.parameters, state.order.folder / CANDIDATE, [evaluation])


def counterfactual_step(state: Improvement, workshop: TrainingComponents, candidate: Path) -> tuple[str, ...]:
    """Let both policies go on from moments of the run; returns in what the candidate is worse."""
    if state.run is None:
        return ()
    found = {}
    for name, policy in (("old", state.order.policy), ("new", candidate)):
        with counted(state.console, f"{name}, counterfactual of the run", 100) as done:
            found[name] = counterfactual(
                state.run,
                state.old.contract,
                workshop.spec,
                policy,
                workshop.environment.scenario.horizon_s,
                lambda share, done=done: done(round(100 * share)),
            )
    state.keep("counterfactual", {name: one.to_dict() for name, one in found.items()})
    return complaints(found["old"], found["new"])


def identified_spec(state: Improvement) -> RobotSpec:
    """Return the identified robot.

    Raises:
        TestudoError: it is another robot than that of the policy.
    """
    spec = load_robot(state.robot_file)
    contract = state.old.contract
    if spec.name != contract.robot or spec.dimension != contract.dimension:
        raise TestudoError(
            f"{state.robot_file}: found robot {spec.name}, expected {contract.robot}, for which {state.order.policy} is"
        )
    return spec
