"""The YAML file that describes a foreign policy: what its observation is made of, and what its action means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from testudo_deploy.contract.contract import NEIGHBOURS, Signal
from testudo_deploy.files.strict_yaml import parse_tables, read_text
from testudo_hardware.errors import TestudoError
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import RobotSpec
from testudo_hardware.strict_files import OPTIONAL, is_table, read_as

SCHEMA = "testudo/wrap/1"
POSITION = "position_world"
_EXPECTED = "schema, robot, observation and action, as in docs/adapters.md"
_MOST_NEAREST = 64


class WrapError(TestudoError):
    """A foreign policy cannot be wrapped: its description or its graph does not fit."""


@dataclass(frozen=True)
class Part:
    """Consecutive numbers of the observation: one signal of the contract."""

    signal: str
    relative: bool = field(default=False, metadata=OPTIONAL)  # of a place: the vector to it from the robot's position
    frame: Literal["", "world", "body"] = field(default="", metadata=OPTIONAL)
    """Frame of a vector; empty: that of the signal. `body`: x is the robot's heading, y to its left."""
    form: Literal["plain", "cos_sin"] = field(default="plain", metadata=OPTIONAL)  # `cos_sin`: two numbers of an angle
    scale: float = field(default=1.0, metadata=OPTIONAL)  # factor, after the above
    clip: float = field(default=0.0, metadata=OPTIONAL)  # largest absolute value, after the scale; 0: none


@dataclass(frozen=True)
class NeighbourParts:
    """Consecutive numbers of the observation: all parts of the nearest neighbour, then all of the second, and so on."""

    nearest: int
    parts: tuple[Part, ...]
    fill: float = field(default=0.0, metadata=OPTIONAL)  # every number of a neighbour that is not there


@dataclass(frozen=True)
class Normalisation:
    """(observation - mean) / sqrt(variance + epsilon), then clipped; as running statistics of training are stored."""

    mean: tuple[float, ...]
    variance: tuple[float, ...]
    epsilon: float = field(default=1e-8, metadata=OPTIONAL)
    clip: float = field(default=0.0, metadata=OPTIONAL)  # 0: none


@dataclass(frozen=True)
class Action:
    """What the numbers of the action mean."""

    kind: Literal["velocity", "forward_turn", "choices"]
    """`velocity` of the control point; `forward_turn`: forward speed and turn rate of a wheeled robot; `choices`: a
    score for each velocity in `choices`, of which the highest counts."""
    frame: Literal["world", "body"] = field(default="world", metadata=OPTIONAL)  # of velocities and choices
    scale: tuple[float, ...] = field(default=(), metadata=OPTIONAL)
    """By number of the action: m/s, or rad/s of a turn rate, for 1; one number stands for all."""
    clip: float = field(default=0.0, metadata=OPTIONAL)  # largest absolute value before the scale; 0: none
    choices: tuple[tuple[float, ...], ...] = field(default=(), metadata=OPTIONAL)  # [m/s]


@dataclass(frozen=True)
class Memory:
    """Input and output of the graph's hidden state (B, H)."""

    input: str
    output: str


@dataclass(frozen=True)
class _Entry:
    """The file."""

    schema: str
    robot: str
    observation: tuple[Any, ...]
    action: Action
    scenario: str = field(default="navigation", metadata=OPTIONAL)
    team_size: int = field(default=4, metadata=OPTIONAL)
    input: str = field(default="", metadata=OPTIONAL)
    output: str = field(default="", metadata=OPTIONAL)
    memory: Memory | None = field(default=None, metadata=OPTIONAL)
    normalisation: Normalisation | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True)
class WrapFile:
    """A description that is valid by itself; `check_parts` compares it with the signals of a contract."""

    file: Path
    robot: str  # registered robot, or the path of a .toml file
    scenario: str  # whose signals the robots have, and in which the policy is evaluated
    team_size: int  # robots in training
    input: str  # the graph's input of the observation; empty: the only one
    output: str  # the graph's output of the action; empty: the first
    memory: Memory | None
    observation: tuple[Part | NeighbourParts, ...]
    normalisation: Normalisation | None
    action: Action


def load_wrap_file(path: str | Path) -> WrapFile:
    """Read a description.

    Raises:
        WrapError: unreadable; an unknown or missing key, a wrong type, or values that contradict each other.
    """
    file = Path(path)
    tables = parse_tables(read_text(file, "description", WrapError, _EXPECTED), file, WrapError, _EXPECTED)
    entry: _Entry = read_as(_Entry, _with_scales(tables), str(file), WrapError)
    if entry.schema != SCHEMA:
        raise WrapError(f"{file}: schema: found {entry.schema!r}, expected {SCHEMA!r}")
    if not entry.observation:
        raise WrapError(f"{file}: observation: found none, expected at least one part")
    observation = tuple(_part(item, f"{file}: observation[{index}]") for index, item in enumerate(entry.observation))
    _check_action(entry.action, f"{file}: action")
    robot = str((file.parent / entry.robot).absolute()) if entry.robot.endswith(".toml") else entry.robot
    return WrapFile(
        file,
        robot,
        entry.scenario,
        entry.team_size,
        entry.input,
        entry.output,
        entry.memory,
        observation,
        entry.normalisation,
        entry.action,
    )


def check_parts(wrap: WrapFile, signals: Mapping[str, Signal], spec: RobotSpec) -> None:
    """Check the description against the signals of a contract, by name, and the robot.

    Raises:
        WrapError: an unknown signal, a frame or form that it does not have, or an action of another robot.
    """
    for index, item in enumerate(wrap.observation):
        where = f"{wrap.file}: observation[{index}]"
        if isinstance(item, Part):
            _check_part(item, signals, spec, where, of_neighbours=False)
        else:
            for number, part in enumerate(item.parts):
                _check_part(part, signals, spec, f"{where}.parts[{number}]", of_neighbours=True)
    where, action = f"{wrap.file}: action", wrap.action
    if action.kind == "forward_turn" and spec.kind != DIFFERENTIAL_DRIVE:
        raise WrapError(f"{where}.kind: found forward_turn for {spec.name}, expected velocity: it has no wheels")
    if any(len(choice) != spec.dimension for choice in action.choices):
        raise WrapError(f"{where}.choices: expected velocities of {spec.dimension} numbers for {spec.name}")
    if len(action.scale) > 1 and len(action.scale) != spec.dimension:
        raise WrapError(f"{where}.scale: found {len(action.scale)} numbers, expected 1 or {spec.dimension}")


def part_size(part: Part, signals: Mapping[str, Signal]) -> int:
    """Return how many numbers a part has, of a neighbour part for one neighbour."""
    if part.form == "cos_sin":
        return 2
    axes = [axis for axis in signals[part.signal].shape if axis != NEIGHBOURS]
    return int(axes[0]) if axes else 1


def is_turned(part: Part, signal: Signal) -> bool:
    """Return whether a part is a vector of the world that is turned into the body's frame."""
    return part.frame == "body" and signal.frame == "world"


def observation_size(wrap: WrapFile, signals: Mapping[str, Signal]) -> int:
    """Return how many numbers the observation has."""
    return sum(
        part_size(item, signals)
        if isinstance(item, Part)
        else item.nearest * sum(part_size(part, signals) for part in item.parts)
        for item in wrap.observation
    )


def action_size(wrap: WrapFile, spec: RobotSpec) -> int:
    """Return how many numbers the action has."""
    return len(wrap.action.choices) if wrap.action.kind == "choices" else spec.dimension


def _with_scales(tables: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the tables with one number as scale of the action as a list."""
    action = tables.get("action")
    if is_table(action) and isinstance(action.get("scale"), int | float):
        return {**tables, "action": {**action, "scale": [action["scale"]]}}
    return tables


def _part(item: Any, where: str) -> Part | NeighbourParts:
    if isinstance(item, str):
        return Part(item)
    if not is_table(item) or "nearest" not in item:
        part: Part = read_as(Part, item, where, WrapError)
        return part
    found: NeighbourParts = read_as(NeighbourParts, _spelled_out(item), where, WrapError)
    if not 1 <= found.nearest <= _MOST_NEAREST:
        raise WrapError(f"{where}.nearest: found {found.nearest}, expected 1 to {_MOST_NEAREST}")
    if not found.parts:
        raise WrapError(f"{where}.parts: found none, expected at least one")
    return found


def _spelled_out(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a group in which parts that are only the name of a signal are tables."""
    parts = item.get("parts")
    if not isinstance(parts, list):
        return item
    return {**item, "parts": [{"signal": part} if isinstance(part, str) else part for part in parts]}


def _check_part(part: Part, signals: Mapping[str, Signal], spec: RobotSpec, where: str, *, of_neighbours: bool) -> None:
    signal = signals.get(part.signal)
    if signal is None:
        raise WrapError(f"{where}.signal: found {part.signal!r}, expected one of {', '.join(signals)}")
    if (NEIGHBOURS in signal.shape) != of_neighbours:
        raise WrapError(
            f"{where}.signal: {part.signal} is {'not ' if of_neighbours else ''}one of neighbours; expected "
            + ("a name that begins with neighbour_" if of_neighbours else "it in a group: {nearest: K, parts: [...]}")
        )
    lengths = [axis for axis in signal.shape if axis != NEIGHBOURS]
    if len(lengths) > 1:
        raise WrapError(f"{where}.signal: {part.signal} has the shape {signal.shape}, expected one vector or number")
    is_place = signal.unit == "m" and signal.frame == "world" and lengths == [spec.dimension]
    if part.relative and not is_place:
        raise WrapError(f"{where}.relative: found true, but {part.signal} is no place in the world")
    if part.form == "cos_sin" and signal.unit != "rad":
        raise WrapError(f"{where}.form: found cos_sin, but {part.signal} is no angle (unit {signal.unit})")
    turnable = signal.frame == "world" and lengths == [spec.dimension]
    if part.frame not in ("", signal.frame) and not (turnable and part.frame == "body"):
        raise WrapError(
            f"{where}.frame: found {part.frame}, but {part.signal} is "
            + (f"in the frame {signal.frame}" if signal.frame else "in no frame")
        )
    if part.frame == "body" and is_place and not part.relative:
        raise WrapError(f"{where}.frame: a place in the body's frame is relative to it; expected relative: true")
    if part.clip < 0:
        raise WrapError(f"{where}.clip: found {part.clip:g}, expected 0 for none, or a bound above 0")


def _check_action(action: Action, where: str) -> None:
    if (action.kind == "choices") != bool(action.choices):
        raise WrapError(f"{where}.choices: expected velocities if and only if kind is choices")
    if (action.kind == "choices") == bool(action.scale):
        raise WrapError(f"{where}.scale: expected m/s (and rad/s) for 1, unless kind is choices, which are in m/s")
    if action.clip < 0:
        raise WrapError(f"{where}.clip: found {action.clip:g}, expected 0 for none, or a bound above 0")
    if action.kind == "forward_turn" and len(action.scale) != 2:
        raise WrapError(f"{where}.scale: found {len(action.scale)} numbers, expected two: m/s and rad/s for 1")
