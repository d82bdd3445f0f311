"""The steps of `testudo improve`; each saves its results in the output folder."""

import json
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
from testudo_policies.evaluation.evaluation import BatchPolicy, EpisodeBatch, Evaluation, evaluate_policy
from testudo_policies.evaluation.policy_under_test import load_policy_under_test
from testudo_policies.exporting.onnx_export import ExportReport
from testudo_policies.exporting.packaging import package_policy
from testudo_policies.improve.comparison import Comparison, counterfactual, counterfactual_regressions
from testudo_policies.improve.fine_tuning import FineTuningComponents
from testudo_policies.improve.initial_policy import InitialPolicy, find_initial_policy
from testudo_policies.improve.paired_test import EpisodeOutcomes, differences
from testudo_policies.improve.recorded_run import recorded_of, run_starts
from testudo_policies.learning.builder import TrainingComponents, build, make_environment
from testudo_policies.learning.progress import TrainingDisplay, counted
from testudo_policies.learning.training_run import Progress, TrainingResult, load_parameters, train_run
from testudo_runs.run_reader import RecordedRun
from testudo_sim.environment import Environment
from testudo_sim.scenarios.robot_number import has_numbers, numbered

Method = Literal["finetune", "h2o"]
ROBOT_FILE, REPORT, POLICY, TRAINING = "identified.toml", "improve.json", "policy.onnx", "training"
CANDIDATE = "candidate.onnx"
MODEL, RUN = "identified model", "starts of the run"
_RATE = 0.3  # initial learning rate as a share of that of the old policy's training, so that little is unlearned
_CLOCK = time.perf_counter


@dataclass(frozen=True)
class ImproveSettings:
    """Options of an improvement."""

    run_folder: Path
    policy: Path
    folder: Path
    method: Method
    minutes: float
    episodes: int
    decisions: int | None  # simulated decisions of fine-tuning; None: as many as in the old policy's training


@dataclass
class Improvement:
    """State of an improvement; `improve.json` in the folder holds ``values``."""

    settings: ImproveSettings
    console: Console
    old: PolicyArtefact
    run: RecordedRun | None  # none if the run has no policy artefact
    values: dict[str, Any] = field(default_factory=dict)

    def headline(self, number: int, text: str) -> None:
        """Print the headline of a step."""
        self.console.rule(f"[bold]{number}. {text}", align="left")

    def keep(self, name: str, value: Any) -> None:
        """Store a result, and write all results to the folder.

        Raises:
            TestudoError: the file cannot be written.
        """
        self.values[name] = value
        path = self.settings.folder / REPORT
        try:
            write_whole(path, json.dumps(self.values, indent=2, allow_nan=False) + "\n")
        except OSError as error:
            raise TestudoError(f"{path}: cannot be written: {error.strerror}") from error

    @property
    def robot_file(self) -> Path:
        """Return the path of the identified robot file."""
        return self.settings.folder / ROBOT_FILE


def open_improvement(settings: ImproveSettings, console: Console, run: RecordedRun | None) -> Improvement:
    """Return the state saved in the folder, or a new one.

    Raises:
        TestudoError: the folder belongs to other inputs, or the policy is invalid.
    """
    old = PolicyArtefact.load(settings.policy)
    check_velocities_alone(old.contract.command, f"{settings.policy}: improve")
    own, team = has_numbers(old.contract), old.contract.team_size
    if own and run is not None and len(run.robots) != team:
        raise TestudoError(
            f"{settings.run_folder}: found {len(run.robots)} robots, expected {team}: each robot of "
            f"{settings.policy} has its own parameters"
        )
    state = Improvement(settings, console, old, run)
    asked = {
        "run": str(settings.run_folder),
        "policy_sha256": old.sha256,
        "method": settings.method,
        "episodes": settings.episodes,
        "decisions": settings.decisions,
    }
    path = settings.folder / REPORT
    if path.is_file():
        try:
            state.values = json.loads(path.read_text(encoding="utf-8"))
            found = state.values["asked"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise TestudoError(f"{path}: cannot be read: {error!r}; give another --out") from error
        other = [name for name, value in asked.items() if found.get(name) != value]
        if other:
            raise TestudoError(
                f"{settings.folder}: holds an improvement with other inputs: {other[0]}: found "
                f"{found.get(other[0])!r}, expected {asked[other[0]]!r}; give another --out"
            )
        console.print(f"resuming {settings.folder}")
        return state
    try:
        settings.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TestudoError(f"--out {settings.folder}: cannot be written: {error.strerror}") from error
    state.keep("asked", asked)
    return state


def robot_changes(old: RobotSpec, new: RobotSpec) -> dict[str, Any]:
    """Return the quantities that differ, with value and interval before and after."""
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
    """Find the initial policy, and build the components of fine-tuning with the identified robot."""
    with state.console.status("searching the old policy's checkpoint"):
        beginning = find_initial_policy(state.old, state.robot_file)
        config = beginning.config
        config = replace(
            config,
            decisions=state.settings.decisions or config.decisions,
            learning_rate=config.learning_rate * (1.0 if beginning.parameters is None else _RATE),
        )
        beginning = replace(beginning, config=config)
        components = FineTuningComponents.of(build(config), beginning)
    state.console.print(f"starts from: {beginning.note}")
    if state.settings.method == "h2o":
        components = _with_run(state, components, beginning)
    state.keep("begins_with", {"source": beginning.source, "note": beginning.note})
    return components


def _with_run(state: Improvement, components: FineTuningComponents, beginning: InitialPolicy) -> FineTuningComponents:
    if beginning.parameters is None:
        raise TestudoError(f"--method h2o: needs the old policy's weights ({beginning.note}); use --method finetune")
    if state.run is None:
        raise TestudoError(
            f"{state.settings.run_folder}: --method h2o learns from recorded transitions, which only a run "
            "with a policy artefact has; use --method finetune"
        )
    episodes = recorded_episodes(state)
    recorded = recorded_of(episodes, components, beginning.parameters)
    steps = int(recorded.weight.sum())
    state.keep("recorded", {"episodes": len(episodes), "robot_steps": steps})
    state.console.print(f"{steps:,} recorded robot-steps; simulated ones are weighted by the dynamics ratio")
    return replace(components, recorded=recorded)


def recorded_episodes(state: Improvement) -> tuple[DatasetEpisode, ...]:
    """Return the episodes of the run, with the contract of the policy that drove it."""
    run = state.run
    if run is None:
        raise TestudoError(f"{state.settings.run_folder}: found no policy artefact, which recorded episodes need")
    return episodes_of(run, PolicyArtefact.load(run.policy_path, sha256=run.policy_sha256).contract)


def train_step(state: Improvement, components: FineTuningComponents) -> TrainingResult:
    """Fine-tune, with checkpoints in ``training/``, until all updates are done or the time limit is reached.

    Raises:
        KeyboardInterrupt: Ctrl-C, after the checkpoint is written.
    """
    folder = state.settings.folder / TRAINING
    if "trained" in state.values:
        done = state.values["trained"]["updates"]
        return TrainingResult(load_parameters(components, folder), done, finished=True, compile_s=0.0, seconds=0.0)
    timer = _Timer(state.settings.minutes * 60)
    with TrainingDisplay(state.console) as display:
        # one device, because recorded sequences cannot be split into equal parts
        result = train_run(components, folder, timer.watch(display.show), jax.devices()[:1])
    if not result.finished and not timer.over:
        raise KeyboardInterrupt
    why = "" if result.finished else f"; stopped at the limit of {state.settings.minutes:g} minutes"
    state.console.print(f"{result.updates} of {components.config.updates} updates in {result.seconds:.0f} s{why}")
    state.keep(
        "trained",
        {
            "updates": result.updates,
            "planned": components.config.updates,
            "decisions": result.updates * components.config.worlds * components.config.rollout,
        },
    )
    return result


@dataclass
class _Timer:
    """Stops a training at its time limit, in the same way as Ctrl-C."""

    limit_s: float
    over: bool = False
    _begin: float | None = None

    def watch(self, show: Callable[[Progress], None]) -> Callable[[Progress], None]:
        """Return a progress callback that calls ``show`` and raises KeyboardInterrupt at the time limit."""

        def on_progress(progress: Progress) -> None:
            self._begin = _CLOCK() if self._begin is None else self._begin
            show(progress)
            if _CLOCK() - self._begin >= self.limit_s and progress.update < progress.updates:
                self.over = True
                raise KeyboardInterrupt

        return on_progress


def evaluate_step(
    state: Improvement, components: TrainingComponents, trained: TrainingResult
) -> tuple[Comparison, ...]:
    """Evaluate both policies on the same episodes: on the identified model, and from starts of the run."""
    old = load_policy_under_test(state.settings.policy)
    new = jax.jit(components.agent.policy(trained.parameters))
    environments = {MODEL: _environment(components, components.config.team_size)}
    if state.run is not None:
        starts = run_starts(state.run, state.old.contract, components.spec)
        environments[RUN] = replace(_environment(components, len(state.run.robots)), scenario=starts)
    memory = components.config.memory
    found = []
    for name, environment in environments.items():
        first, before = _evaluated(state, f"old, {name}", environment, old.policy, memory)
        second, after = _evaluated(state, f"new, {name}", environment, new, memory)
        found.append(Comparison(name, first, second, differences(before, after)))
    return tuple(found)


def _environment(components: TrainingComponents, team_size: int) -> Environment:
    """Return the task of the training for a team, undisturbed; robots with parameters of their own have numbers."""
    config = components.config
    found = make_environment(
        config.scenario, components.spec, components.shield, team_size, obstacles=components.obstacles
    )
    return replace(found, scenario=numbered(found.scenario, team_size)) if components.agent.groups else found


def _evaluated(
    state: Improvement, name: str, environment: Environment, policy: BatchPolicy | None, memory: int
) -> tuple[Evaluation, EpisodeOutcomes]:
    """Return an evaluation and its episodes; a saved one is not repeated."""
    saved, kept = state.values.get("evaluations", {}), state.values.get("episodes", {})
    if name in saved and name in kept:
        return Evaluation.from_dict(saved[name]), EpisodeOutcomes.from_dict(kept[name])
    batches: list[EpisodeBatch] = []
    with counted(state.console, name, state.settings.episodes) as done:
        result = evaluate_policy(
            environment, policy, memory, state.settings.episodes, on_progress=done, on_batch=batches.append
        )
    outcomes = EpisodeOutcomes.of(batches, environment.scenario.horizon_s)
    state.keep("evaluations", {**saved, name: result.to_dict()})
    state.keep("episodes", {**kept, name: outcomes.to_dict()})
    return result, outcomes


def export_step(
    state: Improvement, components: TrainingComponents, trained: TrainingResult, evaluation: Evaluation
) -> ExportReport:
    """Export and verify the new policy as a candidate, before the counterfactual of the run."""
    with state.console.status("converting, and comparing with JAX"):
        path = state.settings.folder / CANDIDATE
        return package_policy(components, trained.parameters, path, [evaluation], trained.updates)


def counterfactual_step(state: Improvement, components: TrainingComponents, candidate: Path) -> tuple[str, ...]:
    """Simulate both policies from states of the run; return in which respects the candidate is worse."""
    if state.run is None:
        return ()
    found = {}
    for name, policy in (("old", state.settings.policy), ("new", candidate)):
        with counted(state.console, f"{name}, counterfactual of the run", 100) as done:
            found[name] = counterfactual(
                state.run,
                state.old.contract,
                components.spec,
                policy,
                components.environment.scenario.horizon_s,
                lambda share, done=done: done(round(100 * share)),
            )
    state.keep("counterfactual", {name: one.to_dict() for name, one in found.items()})
    return counterfactual_regressions(found["old"], found["new"])


def identified_spec(state: Improvement) -> RobotSpec:
    """Return the identified robot.

    Raises:
        TestudoError: it differs from the robot of the policy.
    """
    spec = load_robot(state.robot_file)
    contract = state.old.contract
    if spec.name != contract.robot or spec.dimension != contract.dimension:
        raise TestudoError(
            f"{state.robot_file}: found robot {spec.name}, expected {contract.robot} as in {state.settings.policy}"
        )
    return spec
