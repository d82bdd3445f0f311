"""From trained parameters to a verified artefact with its contract, and a fleet file that uses it."""

import platform
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

from testudo_deploy.contract.command_types import velocity_command
from testudo_deploy.contract.contract import HOLD_RULE, VERSION, Contract, TestVector, robot_signals
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.contract.rules import TASK_SIGNALS
from testudo_deploy.fleet.fleet import Fleet, FleetRobot
from testudo_deploy.fleet.fleet_writer import save_fleet
from testudo_hardware.errors import TestudoError
from testudo_policies.evaluation.evaluation import HELD_OUT_SEED, LAST_SEED, Evaluation, crossing_paths
from testudo_policies.exporting.onnx_export import ExportReport, export_policy
from testudo_policies.learning.builder import TrainingComponents, make_environment
from testudo_policies.networks.agent import AgentParameters
from testudo_sim.online_task.task_state import bodies_of, values_of
from testudo_sim.physics.scene import BodyState
from testudo_sim.physics_choice import PhysicsChoice, make_tier
from testudo_sim.scenarios.declarations import declarations

_LOOP_STEPS = 500
_LOOP_WORLDS = 4
_PACKAGES = ("testudo", "jax", "flax", "onnx", "jax2onnx")


def package_policy(
    components: TrainingComponents,
    parameters: AgentParameters,
    path: Path,
    evaluations: list[Evaluation],
    updates: int | None = None,
) -> ExportReport:
    """Write and verify the artefact ``path`` with contract, evaluations, parity and test vector.

    ``updates`` is how many the training made, if it ended before its last one.

    Raises:
        TestudoError: the run is a best response, in which only one role has learnt.
        ExportError: the graph deviates from the policy.
    """
    config = components.config
    if config.against:
        raise TestudoError(
            f"export: found a best response to {config.against}, in which only {config.role} has learnt; expected a "
            "run in which all roles have; `testudo cross` takes it"
        )
    step = components.agent.policy(jax.device_get(parameters))
    loops = closed_loops(components, step, _LOOP_STEPS, _LOOP_WORLDS)
    examples = {name: value[_LOOP_STEPS // 50] for name, value in loops.items()}
    return export_policy(step, make_contract(components, evaluations, updates), examples, path, loops=loops)


def make_contract(
    components: TrainingComponents, evaluations: list[Evaluation], updates: int | None = None
) -> Contract:
    """Return the contract of a training run, without parity and test vector."""
    config, spec, scenario = components.config, components.spec, components.environment.scenario
    return Contract(
        version=VERSION,
        scenario=config.scenario,
        robot=spec.name,
        robot_spec=spec.to_dict(),
        robot_sha256=spec.sha256,
        dimension=spec.dimension,
        signals=robot_signals(spec, config.message) + tuple(scenario.task_signals),
        command=velocity_command(config.command_type, spec, config.message),
        hidden_size=config.memory,
        control_period_s=spec.control_period_s,
        decision_ticks=scenario.decision_ticks,
        hold_rule=HOLD_RULE,
        dead_man_s=spec.dead_man_s,
        arena=scenario.arena,
        team_size=config.team_size,
        shield=components.shield,
        provenance=_provenance(components, updates),
        evaluation={result.name: result.to_dict() for result in evaluations},
        parity={},
        test_vector=TestVector({}, {}),
    )


def closed_loops(components: TrainingComponents, step: Any, steps: int, worlds: int) -> Mapping[str, np.ndarray]:
    """Return the policy's inputs (T, B, ...) along closed loops of ``steps`` decisions."""
    environment = components.environment
    size = environment.team.size

    def decide(carry: Any, key: jax.Array) -> Any:
        world, hidden = carry
        signals = {name: value.reshape(-1, *value.shape[2:]) for name, value in environment.signals(world).items()}
        velocity, hidden = step(signals, hidden)
        world, _ = environment.step(world, velocity.reshape(worlds, size, -1), key)
        return (world, hidden), signals

    @jax.jit
    def run(key: jax.Array) -> Any:
        begin = environment.reset(jax.random.split(key, worlds)), components.agent.blank_memory(worlds * size)
        return jax.lax.scan(decide, begin, jax.random.split(key, steps))[1]

    signals = run(jax.random.key(HELD_OUT_SEED - 1))
    return {name: np.asarray(value) for name, value in signals.items()}


def _provenance(components: TrainingComponents, updates: int | None) -> dict[str, Any]:
    config = components.config
    return {
        "config": asdict(config),
        "updates": config.updates if updates is None else updates,
        "task": declarations(components.environment.scenario, config.team_size),
        "world_sha256": world_sha256(components),
        "git": _git_commit(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in _PACKAGES},
    }


def world_sha256(components: TrainingComponents) -> str:
    """Return the hash of the team's MuJoCo world, including masses, frictions and contact bits."""
    scenario = components.environment.scenario
    team = components.environment.team
    return make_tier(components.config.form, team.model, scenario.arena, team.size, scenario.boxes).sha256


def _git_commit() -> str:
    """Return the commit of the sources, with a plus sign if they are modified; empty outside git."""
    here = Path(__file__).parent

    def ask(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(here), *words], capture_output=True, text=True, check=False)  # noqa: S603, S607
        return done.stdout.strip() if done.returncode == 0 else ""

    try:
        commit = ask("rev-parse", "HEAD")
        return commit + ("+" if commit and ask("status", "--porcelain", "--untracked-files=no") else "")
    except OSError:
        return ""


_TRIES = 100


@dataclass(frozen=True)
class HeldOutEpisodes:
    """Starts of held-out episodes."""

    position_world: np.ndarray  # (D, N, E) [m]
    yaw: np.ndarray  # (N, E) [rad]
    goal_world: np.ndarray  # (D, N, E) [m]; the start where the task has no goals
    task: Any  # its state, worlds last
    bodies: BodyState | None  # poses of the boxes; None without any
    crossing: np.ndarray  # (E,) bool: straight paths cross


def held_out_episodes(components: TrainingComponents, seed: int) -> HeldOutEpisodes:
    """Return the first held-out episodes, counted from ``seed``.

    Raises:
        TestudoError: the seed is out of range.
    """
    highest = LAST_SEED - HELD_OUT_SEED - _TRIES
    if not 0 <= seed <= highest:
        raise TestudoError(f"--seed: found {seed}, expected 0 to {highest}")
    config = components.config
    environment = make_environment(
        config.scenario,
        components.spec,
        components.shield,
        config.team_size,
        physics=config.physics_choice if components.environment.scenario.boxes else PhysicsChoice(),
        obstacles=components.obstacles,
    )

    @jax.jit
    def drawn(seeds: jax.Array) -> Any:  # as one program: each operation for itself would be one to compile
        return environment.reset(jax.vmap(jax.random.key)(seeds))

    worlds = drawn(HELD_OUT_SEED + seed + np.arange(_TRIES))
    scene = environment.scene(worlds)
    place = scene.robots.position_world
    goals = environment.scenario.signals(worlds.task, scene).get("goal_world", place)
    return HeldOutEpisodes(
        np.asarray(place),
        np.asarray(scene.robots.yaw),
        np.asarray(goals),
        jax.tree.map(np.asarray, worlds.task),
        jax.tree.map(np.asarray, scene.bodies),
        np.asarray(crossing_paths(environment, worlds)),
    )


def write_fleet(components: TrainingComponents, policy: ExportReport | PolicyArtefact, path: Path, seed: int) -> Path:
    """Write a fleet file with the policy's hash and return its path.

    Starts and goals are those of the first held-out episode, counted from ``seed``, in which straight paths cross. Of a
    task that is more than goals the file holds its whole start, which the task node runs, and its bodies.

    Raises:
        TestudoError: the seed is out of range.
    """
    config, spec = components.config, components.spec
    episodes = held_out_episodes(components, seed)
    index = int(np.argmax(episodes.crossing))
    task: dict[str, Any] | None = values_of(jax.tree.map(lambda leaf: leaf[..., index], episodes.task))
    goals = episodes.position_world
    starts = jax.tree.map(lambda leaf: leaf[..., index], episodes.bodies)
    scenario = components.environment.scenario
    bodies = bodies_of(scenario.boxes, starts)
    read = {signal.name for signal in scenario.task_signals}
    if set(task) == read == set(TASK_SIGNALS) and not bodies:
        task, goals = None, episodes.goal_world
    kind = str(Path(config.robot).absolute()) if config.robot.endswith(".toml") else config.robot
    robots = tuple(
        FleetRobot(
            f"r{i}",
            kind,
            _rounded(episodes.position_world[:, i, index]),
            round(float(episodes.yaw[i, index]), 4),
            _rounded(goals[:, i, index]),
            spec,
        )
        for i in range(config.team_size)
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    save_fleet(Fleet(path, policy.path.absolute(), policy.sha256, robots, task=task, bodies=bodies), path)
    return path


def _rounded(vector: np.ndarray) -> tuple[float, ...]:
    return tuple(round(float(x), 4) for x in vector)
