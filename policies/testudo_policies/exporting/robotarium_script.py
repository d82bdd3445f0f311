"""Writes a policy as one Python file for the Robotarium testbed, which needs NumPy alone.

The file holds the starts and goals of one episode, the graph of the policy with its weights, the numbers of its
contract, and a copy of `RobotariumTeam` with all that it uses. It is kept only if it computes what the policy file
computes.
"""

from __future__ import annotations

import base64
import io
import itertools
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx

from testudo_deploy.contract.contract import COMMAND_TYPE, WAYPOINT, Contract, robot_signals
from testudo_deploy.contract.policy_archive import policy_bytes
from testudo_deploy.contract.policy_artefact import REPLAY_TOLERANCE, PolicyArtefact
from testudo_deploy.contract.rules import COMMAND, HIDDEN, TASK_SIGNALS, graph_inputs
from testudo_deploy.files.atomic_files import whole_file
from testudo_deploy.shield.arena import Arena, Ball, Block, Capsule
from testudo_deploy.shield.projection_margins import ProjectionParameters
from testudo_hardware.errors import TestudoError
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import RobotSpec, parse_robot
from testudo_policies.exporting import numpy_names, robotarium_template
from testudo_policies.exporting.numpy_graph import Graph, read_graph
from testudo_policies.exporting.packaging import held_out_episodes, make_contract
from testudo_policies.exporting.robotarium_team import GraphPolicy, RobotariumTeam
from testudo_policies.exporting.source_bundle import Bundle, bundle
from testudo_policies.learning.builder import TrainingComponents
from testudo_sim.scenarios.goal_scenario import ROBOTARIUM, GoalScenario

STEP_S = 0.033  # of the testbed
MOST_ROBOTS = 50  # that its simulator takes
_REPLACED = {("testudo_hardware.arrays", "array_namespace"): (numpy_names.__name__, "array_namespace")}
_ROOTS = (RobotariumTeam, GraphPolicy, Graph, ProjectionParameters, Arena, Ball, Capsule, Block)
_SPEC_FIELDS = (
    "name", "kind", "control_period_s", "command_delay_s", "dead_man_s", "look_ahead_m", "wheel_base_m",
    "wheel_limit_m_s", "speed_limit_m_s", "control_point_speed_m_s", "turn_rate_limit_rad_s",
    "acceleration_limit_m_s2", "turn_acceleration_limit_rad_s2", "velocity_lag_s", "speed_scale", "turn_scale",
    "turn_slip_s_rad", "position_error_m", "yaw_error_rad",
)  # fmt: skip
_SCALES = ("dynamics.speed_scale", "dynamics.turn_scale")  # whose highest values the velocity filter reads
_LINE = 100


@dataclass(frozen=True)
class Episode:
    """Starts and goals of one episode on the testbed."""

    start_poses: np.ndarray  # (3, N): x [m], y [m], heading [rad]
    goals_world: np.ndarray  # (2, N) [m]
    duration_s: float


@dataclass(frozen=True)
class ScriptReport:
    """Properties of a written file."""

    path: Path
    robots: int
    size_bytes: int
    inputs: int  # random inputs on which it was compared with the policy file
    deviation: float  # largest deviation of a command


def write_script(artefact: PolicyArtefact, episode: Episode, path: Path) -> ScriptReport:
    """Write the file; it is kept only if its policy computes what the policy file does.

    Raises:
        TestudoError: the testbed does not fit the contract, or the file deviates.
    """
    check_testbed(artefact.contract, episode.start_poses.shape[1])
    text = script_text(artefact, episode)
    try:
        inputs, deviation = _deviation(load_script(text), artefact)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise TestudoError(f"{path}: the policy's graph cannot be evaluated with NumPy: {error}") from error
    if not deviation <= REPLAY_TOLERANCE:  # also true for NaN
        raise TestudoError(
            f"{path}: the script deviates from the policy by {deviation:.3g}, expected at most {REPLAY_TOLERANCE:g}; "
            "the file was not written"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as partial:
        partial.write_text(text, encoding="utf-8")
    return ScriptReport(path, episode.start_poses.shape[1], len(text.encode()), inputs, deviation)


def check_testbed(contract: Contract, robots: int) -> None:
    """Check that a policy can run on the testbed.

    Raises:
        TestudoError: one sentence that says what does not fit.
    """
    spec = parse_robot(contract.robot_spec, "contract.robot_spec")
    given = {signal.name for signal in robot_signals(spec)} | set(TASK_SIGNALS)
    missing = [signal.name for signal in contract.signals if signal.name not in given]
    if missing:
        raise TestudoError(
            f"--target robotarium: the policy of {contract.scenario!r} reads {' and '.join(missing)}, which the script "
            "cannot give: it knows poses and fixed goals"
        )
    if spec.kind != DIFFERENTIAL_DRIVE or abs(contract.control_period_s - STEP_S) > 1e-9:
        raise TestudoError(
            f"--target robotarium: found {spec.name}, a {spec.kind} controlled every {contract.control_period_s:g} s, "
            f"expected a differential drive controlled every {STEP_S:g} s, as gritsbot_x"
        )
    if contract.command.type not in (COMMAND_TYPE, WAYPOINT):
        raise TestudoError(
            f"--target robotarium: found command.type {contract.command.type!r}, expected {COMMAND_TYPE} or {WAYPOINT}"
        )
    if not 1 <= robots <= MOST_ROBOTS:
        raise TestudoError(f"--target robotarium: found {robots} robots, expected 1 to {MOST_ROBOTS}")


def draw_episode(components: TrainingComponents, seed: int) -> Episode:
    """Return the first held-out episode, counted from ``seed``, that crosses paths and lies within the testbed.

    Raises:
        TestudoError: the testbed does not fit the policy or its scenario, or has room for none of the episodes.
    """
    scenario, config = components.environment.scenario, components.config
    check_testbed(make_contract(components, []), config.team_size)
    kind = type(scenario)
    if not isinstance(scenario, GoalScenario) or (kind.advance, kind.signals) != (
        GoalScenario.advance,
        GoalScenario.signals,
    ):
        raise TestudoError(
            f"--target robotarium: the policy of {config.scenario!r} reads goal_world, which moves with the task: the "
            "script cannot give it, since it knows poses and fixed goals"
        )
    episodes = held_out_episodes(components, seed)
    arena = arena_on_testbed(scenario.arena)
    places = np.concatenate([episodes.position_world, episodes.goal_world], axis=1)
    low, high = (np.reshape(corner, (2, 1, 1)) for corner in (arena.low_world, arena.high_world))
    room_m = scenario.room_m
    fits = np.all((places >= low + room_m) & (places <= high - room_m), axis=(0, 1))
    if not fits.any():
        raise TestudoError(
            f"--target robotarium: none of the first {len(fits)} episodes of {config.scenario!r} with "
            f"{config.team_size} robots lies within the testbed, 3.2 m x 2 m; use another --seed or fewer robots"
        )
    index = int(np.argmax(fits & episodes.crossing if (fits & episodes.crossing).any() else fits))
    poses = np.concatenate([episodes.position_world[..., index], episodes.yaw[None, :, index]])
    return Episode(poses, episodes.goal_world[..., index], scenario.horizon_s)


def arena_on_testbed(arena: Arena | None) -> Arena:
    """Return the part of a policy's arena that the testbed has."""
    if arena is None:
        return ROBOTARIUM
    low = tuple(max(pair) for pair in zip(arena.low_world, ROBOTARIUM.low_world, strict=True))
    return replace(arena, low_world=low, high_world=tuple(map(min, arena.high_world, ROBOTARIUM.high_world)))


def script_bundle() -> Bundle:
    """Return the code that the file holds."""
    return bundle(_ROOTS, _REPLACED, {"numpy", *sys.stdlib_module_names})


def script_text(artefact: PolicyArtefact, episode: Episode) -> str:
    """Return the contents of the file."""
    contract = artefact.contract
    spec = parse_robot(contract.robot_spec, "contract.robot_spec")
    code = script_bundle()
    graph = _compact(read_graph(onnx.load_from_string(policy_bytes(artefact.path))), contract)
    imports = sorted({*code.imports, *robotarium_template.IMPORTS}, key=lambda line: line.split()[1])
    return robotarium_template.TEXT.format(
        scenario=contract.scenario,
        robots=episode.start_poses.shape[1],
        robot=spec.name,
        command=contract.command.type,
        sha256=artefact.sha256,
        imports="\n".join(imports),
        duration_s=episode.duration_s,
        start_poses=_rows(episode.start_poses),
        goals_world=_rows(episode.goals_world),
        code=code.text(),
        spec=_spec_text(spec),
        shield=repr(replace(contract.shield, terms=())),
        arena=repr(arena_on_testbed(contract.arena)),
        contract=_contract_text(contract),
        inputs=tuple(graph_inputs(contract)),
        nodes="\n".join(f"    {node}," for node in graph.nodes),
        arrays=_packed({**graph.constants, **_test_vector(contract)}),
        tolerance=REPLAY_TOLERANCE,
    )


def load_script(text: str) -> ModuleType:
    """Return the module of a file's text; its `main` has not run."""
    module = ModuleType("testudo_robotarium_script")
    sys.modules[module.__name__] = module  # where dataclasses look for it
    try:
        exec(compile(text, module.__name__, "exec"), module.__dict__)  # noqa: S102 -- the text is ours
    finally:
        del sys.modules[module.__name__]
    return module


def _deviation(script: Any, artefact: PolicyArtefact) -> tuple[int, float]:
    """Return the number of random inputs, and the largest deviation of a command or memory from the policy file."""
    rng, worst, count = np.random.default_rng(0), 0.0, 0
    policy, contract = script.make_policy(), artefact.contract
    for slots, _ in itertools.product(range(9), range(50)):
        signals = {}
        for signal in contract.signals:
            shape = tuple(slots if isinstance(axis, str) else axis for axis in signal.shape)
            value = rng.uniform(-1.6, 1.6, shape)
            signals[signal.name] = {"0 or 1": value < 1.0, "s": np.abs(value)}.get(signal.unit, value)
        hidden = rng.uniform(-1, 1, contract.hidden_size).astype(np.float32)
        pairs = zip(policy.step(signals, hidden), artefact.step(signals, hidden), strict=True)
        worst = float(np.max([worst, *(np.max(np.abs(a - b), initial=0.0) for a, b in pairs)]))
        count += 1
    return count, worst


def _compact(graph: Graph, contract: Contract) -> Graph:
    """Return the graph with short names for all but its inputs and outputs."""
    names = {name: name for name in (*graph_inputs(contract), COMMAND, f"{HIDDEN}_next")}
    for name in graph.constants:
        names.setdefault(name, f"c{len(names)}")

    def short(found: Iterable[str]) -> tuple[str, ...]:
        return tuple(names.setdefault(name, f"v{len(names)}") for name in found)

    nodes = [(kind, short(inputs), short(outputs), values) for kind, inputs, outputs, values in graph.nodes]
    return Graph(nodes, {names[name]: value for name, value in graph.constants.items()})


def _test_vector(contract: Contract) -> dict[str, np.ndarray]:
    vector = contract.test_vector
    sides = {"given": vector.inputs, "expected": vector.outputs}
    return {f"{side}.{name}": np.array(x, np.float32) for side, named in sides.items() for name, x in named.items()}


def _packed(arrays: dict[str, np.ndarray]) -> str:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # pyright: ignore[reportArgumentType] -- the names are ours
    text = base64.b64encode(buffer.getvalue()).decode()
    return "\n".join(text[k : k + _LINE] for k in range(0, len(text), _LINE))


def _rows(array: np.ndarray) -> str:
    rows = (", ".join(f"{value:.4f}" for value in row) for row in array)
    return "[\n" + "".join(f"        [{row}],\n" for row in rows) + "    ]"


def _spec_text(spec: RobotSpec) -> str:
    lines = [f"    {name}={getattr(spec, name)!r}," for name in _SPEC_FIELDS]
    scales = ", ".join(f"{name!r}: SimpleNamespace(high={spec.quantities[name].high!r})" for name in _SCALES)
    return "\n".join([*lines, f"    quantities={{{scales}}},"])


def _contract_text(contract: Contract) -> str:
    command = contract.command
    return (
        f"    command=SimpleNamespace(\n        type={command.type!r}, limit={command.limit!r}, "
        f"limits={command.limits!r}, gain_per_s={command.gain_per_s!r}, "
        f"message_size={command.message_size}\n    ),\n"
        f"    decision_ticks={contract.decision_ticks},\n    hidden_size={contract.hidden_size},"
    )
