"""Deviation of the exported graph from the JAX function, on random inputs and along closed loops."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

import jax
import numpy as np
import onnxruntime

from testudo_deploy.contract.command_types import split_message
from testudo_deploy.contract.contract import Contract
from testudo_deploy.contract.policy_artefact import REPLAY_TOLERANCE
from testudo_deploy.contract.rules import COMMAND, HIDDEN, HIDDEN_NEXT, MESSAGE, graph_inputs, graph_outputs
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import parse_robot
from testudo_sim.scenarios.robot_number import ROBOT_NUMBER

Step = Callable[[dict[str, Any], Any], tuple[Any, Any]]
"""``step(signals (B, ...) by name, hidden (B, H)) -> (command (B, D), next hidden (B, H))``.

The numbers of a message come after the command, in the same array.
"""

Reference = Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]
"""The outputs of the graph by name, from its inputs (B, ...) by name."""
SLOTS = tuple(range(1, 9))
INPUTS = 10_240
_COINCIDENT = 0.03  # share of inputs in which two points coincide, so that no direction is defined


@dataclass(frozen=True)
class Parity:
    """Largest deviations of all outputs of the graph from the JAX function."""

    tolerance: float
    inputs: int  # number of random inputs
    slots: tuple[int, ...]  # tested numbers of neighbour slots
    command_error: float  # [m/s]; with a message also that of its numbers
    hidden_error: float
    loop_steps: int  # steps of each closed loop; 0 without loops
    loops: int
    teacher_forced_error: float  # along the loops, with the hidden state of JAX before each step
    free_running_drift: float  # along the loops, with separate hidden states: reported, not bounded

    @property
    def max_error(self) -> float:
        """Return the largest deviation that the tolerance bounds."""
        # np.max, because max() ignores NaN
        return float(np.max([self.command_error, self.hidden_error, self.teacher_forced_error]))

    @property
    def holds(self) -> bool:
        """Return whether all bounded deviations are within the tolerance."""
        return self.max_error <= self.tolerance

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return asdict(self) | {"slots": list(self.slots), "max_error": self.max_error}


def measure_parity(
    reference: Reference,
    session: onnxruntime.InferenceSession,
    contract: Contract,
    *,
    loops: Mapping[str, np.ndarray] | None = None,
    seed: int = 0,
) -> Parity:
    """Compare a function with the graph, on random inputs and along loops.

    Args:
        reference: the function.
        session: the graph.
        contract: names and shapes.
        loops: inputs recorded in closed loops, (T, B, ...) by name; None skips them.
        seed: seed of the random inputs.
    """
    pair = _Pair(reference, session, contract)
    rng = np.random.default_rng(seed)
    batch = math.ceil(INPUTS / len(SLOTS))
    command_error = hidden_error = 0.0
    for slots in SLOTS:
        inputs = random_inputs(contract, batch, slots, rng)
        expected, found = pair.by_reference(inputs), pair.by_graph(inputs)
        for name in (COMMAND, MESSAGE):
            command_error = _worst(command_error, expected, found, name)
        hidden_error = _worst(hidden_error, expected, found, HIDDEN_NEXT)
    steps, count, forced, drift = _along_loops(pair, loops or {}, contract.hidden_size)
    return Parity(
        REPLAY_TOLERANCE, batch * len(SLOTS), SLOTS, command_error, hidden_error,
        steps, count, forced, drift,
    )  # fmt: skip


def random_inputs(contract: Contract, batch: int, slots: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return random inputs (B, ...) of the graph by name, float32, over the whole arena and all limits."""
    spec = parse_robot(contract.robot_spec, "contract.robot_spec")
    size, arena = spec.dimension, contract.arena
    low, high = (arena.low_world, arena.high_world) if arena else ((-3.0,) * size, (3.0,) * size)
    speed = spec.control_point_speed_m_s
    turn = spec.turn_rate_limit_rad_s if spec.kind == DIFFERENTIAL_DRIVE else spec.speed_limit_m_s
    limits = np.array([spec.speed_limit_m_s] + [turn] * (size - 1))

    def coincide(shape: tuple[int, ...]) -> np.ndarray:
        return rng.random((*shape, 1)) < _COINCIDENT

    position = rng.uniform(low, high, (batch, size))
    control_point = position + rng.normal(0, 0.05, (batch, size))
    goal = rng.uniform(low, high, (batch, size))
    peers = rng.uniform(low, high, (batch, slots, size))
    values = {
        "position_world": position,
        "yaw": rng.uniform(-2 * np.pi, 2 * np.pi, (batch, 1)),
        "velocity": rng.uniform(-limits, limits, (batch, size)),
        "control_point_world": control_point,
        "goal_world": np.where(coincide((batch,)), control_point, goal),
        "neighbour_position_world": np.where(coincide((batch, slots)), control_point[:, None, :], peers),
        "neighbour_velocity_world": rng.uniform(-speed, speed, (batch, slots, size)),
        "neighbour_age": rng.exponential(0.2, (batch, slots)),
        "neighbour_valid": rng.random((batch, slots)) < 0.8,
        HIDDEN: rng.uniform(-1, 1, (batch, contract.hidden_size)),
    }
    inputs = {}
    for name, shape in graph_inputs(contract).items():
        full = (batch, *(slots if isinstance(axis, str) else axis for axis in shape))
        value = values[name] if name in values else _task_values(name, full, low, high, rng)
        if name == ROBOT_NUMBER:
            value = rng.integers(0, contract.team_size, full)
        inputs[name] = value.astype(np.float32)
    return inputs


def _task_values(
    name: str, shape: tuple[int, ...], low: Sequence[float], high: Sequence[float], rng: np.random.Generator
) -> np.ndarray:
    """Return random values of a task signal: positions in the arena, angles, or numbers in (-1, 1)."""
    if name.endswith("_position_world"):
        return rng.uniform(low, high, shape)
    return rng.uniform(-2 * np.pi, 2 * np.pi, shape) if name.endswith("_yaw") else rng.uniform(-1, 1, shape)


class _Pair:
    """The function and the graph, both with inputs and outputs by name."""

    def __init__(self, reference: Reference, session: onnxruntime.InferenceSession, contract: Contract) -> None:
        self.by_reference = reference
        self._session = session
        self._names = list(graph_outputs(contract))

    def by_graph(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        results = cast(list[np.ndarray], self._session.run(self._names, dict(inputs)))
        return dict(zip(self._names, results, strict=True))


def outputs_of(command: Any, hidden_next: Any, message_size: int) -> dict[str, Any]:
    """Return the outputs of the graph by name, in its order, from those of a step function; no memory if None."""
    command, said = split_message(command, message_size)
    outputs = {COMMAND: command} | ({} if said is None else {MESSAGE: said})
    return outputs | ({} if hidden_next is None else {HIDDEN_NEXT: hidden_next})


def call_step(step: Step, inputs: Mapping[str, np.ndarray], message_size: int = 0) -> dict[str, np.ndarray]:
    """Return the outputs of a step function by name, float32 arrays with a batch axis."""
    signals = {name: value for name, value in inputs.items() if name != HIDDEN}
    batch = len(next(iter(signals.values())))
    hidden = inputs.get(HIDDEN, np.zeros((batch, 0), np.float32))
    # by default a GPU multiplies matrices with reduced precision
    with jax.enable_x64(False), jax.default_matmul_precision("highest"):
        command, hidden_next = step(signals, hidden)
    outputs = outputs_of(command, hidden_next if HIDDEN in inputs else None, message_size)
    return {name: np.asarray(value) for name, value in outputs.items()}


def _worst(so_far: float, expected: dict[str, np.ndarray], found: dict[str, np.ndarray], name: str) -> float:
    if name not in expected:
        return so_far
    if expected[name].shape != found[name].shape:
        return math.inf
    return float(np.max([so_far, np.max(np.abs(expected[name] - found[name]))]))


def _along_loops(pair: _Pair, loops: Mapping[str, np.ndarray], hidden_size: int) -> tuple[int, int, float, float]:
    """Return steps, loops, error with JAX's hidden state, and command drift with the graph's own."""
    if not loops:
        return 0, 0, 0.0, 0.0
    steps, count = next(iter(loops.values())).shape[:2]
    forced_hidden = own_hidden = np.zeros((count, hidden_size), np.float32)
    forced = drift = 0.0
    for tick in range(steps):
        signals = {name: np.asarray(value[tick], np.float32) for name, value in loops.items()}
        memory = {HIDDEN: forced_hidden} if hidden_size else {}
        expected = pair.by_reference(signals | memory)
        found = pair.by_graph(signals | memory)
        for name in expected:
            forced = _worst(forced, expected, found, name)
        if hidden_size:
            found = pair.by_graph(signals | {HIDDEN: own_hidden})
            forced_hidden, own_hidden = expected[HIDDEN_NEXT], found[HIDDEN_NEXT]
        drift = _worst(drift, expected, found, COMMAND)
    return steps, count, forced, drift
