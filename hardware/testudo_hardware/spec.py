"""`RobotSpec`: the description of a robot, read from TOML with units and sources."""

import functools
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from testudo_hardware.errors import TestudoError
from testudo_hardware.schema import (
    DIFFERENTIAL_DRIVE,
    KINDS,
    OPTIONAL_TABLES,
    QUANTITIES,
    VELOCITY_POINT,
    QuantityRule,
)
from testudo_hardware.strict_files import is_list, is_table, read_toml

SCHEMA = "testudo/robot/1"
FALL_S = 0.8  # time of fall after the motors are cut, from at most 3.1 m
COLUMN_RATIO = 1000.0  # height ratio at which heights separate no two robots


class SpecError(TestudoError):
    """A robot file is invalid: the text names file, key, what was found and what is expected."""


@dataclass(frozen=True)
class Quantity:
    """A number with its unit, its source, and the interval that contains the true value."""

    value: float
    unit: str
    source: str
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Return the distance of the value from the farther end of its interval."""
        return max(self.high - self.value, self.value - self.low)


@dataclass(frozen=True)
class RobotSpec:
    """A robot; every number is SI. Lengths m, times s, angles rad; NaN for quantities that its kind does not have.

    ``quantities`` has the same numbers with unit, source and interval, by ``section.key``, as far as the file has them.
    The optional tables are empty where the file lacks them. Except `silence` and `motion_noise`, which the shield's
    margins contain, they are not in `to_dict` and the hash: a policy that commands velocities does not depend on them.
    """

    name: str
    kind: str
    description: str
    body_radius_m: float
    body_height_m: float
    mass_kg: float
    downwash_radius_m: float
    downwash_height_m: float
    look_ahead_m: float
    wheel_radius_m: float
    wheel_base_m: float
    speed_limit_m_s: float
    wheel_speed_limit_rad_s: float
    turn_rate_limit_rad_s: float
    acceleration_limit_m_s2: float
    turn_acceleration_limit_rad_s2: float
    velocity_lag_s: float
    command_delay_s: float
    speed_scale: float
    turn_scale: float
    turn_slip_s_rad: float
    wheel_friction: float
    control_period_s: float
    dead_man_s: float
    position_error_m: float
    yaw_error_rad: float
    velocity_error_m_s: float
    """Of the measured velocity; wheeled: of the speed of each wheel's rim, from which the turn rate's error follows."""
    pose_max_age_s: float
    quantities: Mapping[str, Quantity] = field(repr=False)
    rotors: Mapping[str, Quantity] = field(default_factory=dict[str, Quantity], repr=False)
    """Drone with commanded rotors, by `rotors.key`."""
    attitude: Mapping[str, Quantity] = field(default_factory=dict[str, Quantity], repr=False)
    """Drone under its attitude loop and velocity controller, by `attitude.key`."""
    propellers: Mapping[str, Quantity] = field(default_factory=dict[str, Quantity], repr=False)
    """Speed, thrust and torque of its propellers, by `propellers.key`."""
    power: Mapping[str, Quantity] = field(default_factory=dict[str, Quantity], repr=False)
    """Battery voltages for take-off and landing, by `power.key`."""
    heading: Mapping[str, Quantity] = field(default_factory=dict[str, Quantity], repr=False)
    """Limit of the commanded yaw rate, by `heading.key`; empty: the drone holds its heading."""
    silence: Mapping[str, Quantity] = field(default_factory=dict[str, Quantity], repr=False)
    """What a drone does without set-points by radio, by `silence.key`; empty if the driver brakes it."""
    motion_noise: Mapping[str, Quantity] = field(default_factory=dict[str, Quantity], repr=False)
    """Residual motion beside the model, by `motion_noise.key` (`testudo_hardware.motion.motion_noise`)."""
    response: Mapping[str, Quantity] = field(default_factory=dict[str, Quantity], repr=False)
    """Drone: its response as its logs show it, by `response.key`; predicts flights from logged motor signals."""
    response_noise: Mapping[str, Quantity] = field(default_factory=dict[str, Quantity], repr=False)
    """Drone: what its response leaves, as a random process, by `response_noise.key`."""

    @property
    def dimension(self) -> int:
        """Return 2 for a robot on the ground and 3 for a drone."""
        return 3 if self.kind == VELOCITY_POINT else 2

    @property
    def wheel_limit_m_s(self) -> float:
        """Return the highest rim speed of a wheel."""
        return self.wheel_speed_limit_rad_s * self.wheel_radius_m

    @property
    def control_point_speed_m_s(self) -> float:
        """Return the highest speed of the control point (shield.md: v_wheel * max(1, 2 l / b))."""
        if self.kind == DIFFERENTIAL_DRIVE:
            return self.wheel_limit_m_s * max(1.0, 2 * self.look_ahead_m / self.wheel_base_m)
        return self.speed_limit_m_s

    @property
    def yaw_rate_limit_rad_s(self) -> float:
        """Return the largest commanded yaw rate of a drone; 0 for robots that take none."""
        return self.heading["heading.yaw_rate_limit"].value if self.heading else 0.0

    @property
    def hold_s(self) -> float:
        """Return T_hold: the longest time for which one command can act, plus one tick.

        One command acts for the dead-man time, or until a drone without radio and onboard brake levels.
        """
        alone = 0.0 if self.brakes_in_silence else self.silence["silence.level_after"].high
        return max(self.dead_man_s, alone) + self.control_period_s

    @property
    def link_delay_most_s(self) -> float:
        """Return the longest transport time of a command to the vehicle, without the vehicle's response."""
        return self.attitude.get("attitude.link_delay", self.quantities["dynamics.command_delay"]).high

    @property
    def coast_s(self) -> float:
        """Return how long it moves after T_hold without a brake: levelled, then falling."""
        if self.brakes_in_silence:
            return 0.0
        level, cut = (self.silence[f"silence.{name}_after"] for name in ("level", "cut"))
        return cut.high - level.low + FALL_S

    @property
    def keep_radius_m(self) -> float:
        """Return the radius that a robot keeps free of others at its height: its body, or its downwash if wider."""
        return max(self.body_radius_m, self.downwash_radius_m) if self.kind == VELOCITY_POINT else self.body_radius_m

    @property
    def height_ratio(self) -> float:
        """Return c: heights between robots are scaled by 1/c, so that the free space is an ellipsoid; 1 is a ball.

        A drone that falls when its radio is silent keeps its whole column free.
        """
        if self.kind != VELOCITY_POINT:
            return 1.0
        return max(1.0, self.downwash_height_m / self.keep_radius_m) if self.brakes_in_silence else COLUMN_RATIO

    @property
    def brakes_in_silence(self) -> bool:
        """Return whether the robot brakes by itself `dead_man_s` after the last command received."""
        return not self.silence or self.silence["silence.onboard_brake"].value == 1

    @property
    def sha256(self) -> str:
        """Return the hash of `to_dict`; comments and layout of the file have no effect."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """Return the description as the nested tables of its TOML file."""
        tables: dict[str, Any] = {
            "schema": SCHEMA,
            "name": self.name,
            "kind": self.kind,
            "description": self.description,
        }
        for key, quantity in {**self.quantities, **self.silence, **self.motion_noise}.items():
            section, name = key.split(".")
            tables.setdefault(section, {})[name] = {
                "value": quantity.value,
                "unit": quantity.unit,
                "source": quantity.source,
                "interval": [quantity.low, quantity.high],
            }
        return tables


def load_robot(name_or_path: str | Path) -> RobotSpec:
    """Read a robot by its registered name or from a TOML file.

    Raises:
        SpecError: no such robot, or an invalid file.
    """
    return parse_robot(*read_toml(name_or_path, robot_files(), "robot", SpecError))


@functools.cache
def _robot_folders() -> tuple[Any, ...]:
    """Return the folders of this package and of `testudo.robots` entry points; the search takes 25 ms."""
    others = [point.value for point in entry_points(group="testudo.robots") if point.value != "testudo_hardware.robots"]
    return (resources.files("testudo_hardware") / "robots", *map(resources.files, others))


def robot_files() -> dict[str, Any]:
    """Return every registered robot file by name, those of `testudo.robots` entry points included."""
    return {
        file.name.removesuffix(".toml"): file
        for folder in _robot_folders()
        for file in folder.iterdir()
        if file.name.endswith(".toml")
    }


def parse_robot(tables: Mapping[str, Any], where: str) -> RobotSpec:
    """Build a `RobotSpec` from the tables of a TOML file; ``where`` names the file in errors.

    Raises:
        SpecError: unknown, missing or malformed key, wrong unit, NaN, or limits out of order.
    """
    if tables.get("schema") != SCHEMA:
        raise SpecError(f"{where}: schema: found {tables.get('schema')!r}, expected {SCHEMA!r}")
    kind = tables.get("kind")
    if kind not in KINDS:
        raise SpecError(f"{where}: kind: found {kind!r}, expected one of {', '.join(KINDS)}")
    for key in ("name", "description"):
        if not isinstance(tables.get(key), str) or not tables[key]:
            raise SpecError(f"{where}: {key}: found {tables.get(key)!r}, expected a text")
    _refuse_unknown(tables, kind, where)
    quantities: dict[str, Quantity] = {}
    values: dict[str, Any] = {}
    for key, rule in QUANTITIES.items():
        section, name = key.split(".")
        entry = tables.get(section, {}).get(name)
        if kind not in rule.kinds:
            values[rule.attribute] = math.nan
        elif entry is None and rule.default is not None:
            values[rule.attribute] = rule.default
        elif entry is None:
            raise SpecError(f"{where}: {key}: missing; write {_example(name, rule)} below [{section}]")
        else:
            quantities[key] = _quantity(entry, rule, f"{where}: {key}")
            values[rule.attribute] = quantities[key].value
    for section, rules in OPTIONAL_TABLES.items():
        values[section] = _optional(tables.get(section), rules, kind, where)
    spec = RobotSpec(name=tables["name"], kind=kind, description=tables["description"], quantities=quantities, **values)
    _check_order(spec, where)
    return spec


def _example(name: str, rule: QuantityRule) -> str:
    return f'{name} = {{ value = ..., unit = "{rule.unit}", source = "..." }}'


def _optional(table: Any, rules: Mapping[str, QuantityRule], kind: str, where: str) -> dict[str, Quantity]:
    """Return the quantities of a table that a file has completely or not at all."""
    if table is None:
        return {}
    found: dict[str, Quantity] = {}
    for key, rule in rules.items():
        section, name = key.split(".")
        if kind not in rule.kinds:
            continue
        if name not in table:
            raise SpecError(
                f"{where}: {key}: missing; a robot has all keys of [{section}] or no such table; write "
                f"{_example(name, rule)}"
            )
        found[key] = _quantity(table[name], rule, f"{where}: {key}")
    return found


def _refuse_unknown(tables: Mapping[str, Any], kind: str, where: str) -> None:
    rules = {key: rule for table in (QUANTITIES, *OPTIONAL_TABLES.values()) for key, rule in table.items()}
    allowed = {key for key, rule in rules.items() if kind in rule.kinds}
    sections = {key.split(".")[0] for key in allowed}
    for section, content in tables.items():
        if section in ("schema", "name", "kind", "description"):
            continue
        if section not in sections or not is_table(content):
            raise SpecError(f"{where}: {section}: unknown table; known are {', '.join(sorted(sections))}")
        for name in content:
            if f"{section}.{name}" not in allowed:
                known = sorted(key.split(".")[1] for key in allowed if key.startswith(section + "."))
                raise SpecError(f"{where}: {section}.{name}: unknown key for a {kind}; known are {', '.join(known)}")


def _quantity(entry: Any, rule: QuantityRule, where: str) -> Quantity:
    if not is_table(entry):
        raise SpecError(
            f"{where}: missing unit: found {entry!r}, expected "
            f'{{ value = {entry!r}, unit = "{rule.unit}", source = "..." }}'
        )
    unknown = set(entry) - {"value", "unit", "source", "interval"}
    if unknown:
        raise SpecError(f"{where}.{min(unknown)}: unknown key; known are value, unit, source, interval")
    if entry.get("unit") != rule.unit:
        raise SpecError(f"{where}.unit: found {entry.get('unit')!r}, expected {rule.unit!r}")
    if not isinstance(entry.get("source"), str) or not entry["source"]:
        raise SpecError(f"{where}.source: missing; expected the source of the number")
    value = _number(entry.get("value"), f"{where}.value")
    interval = entry.get("interval", [value, value])
    if not is_list(interval) or len(interval) != 2:
        raise SpecError(f"{where}.interval: found {interval!r}, expected [low, high]")
    low, high = (_number(item, f"{where}.interval") for item in interval)
    if not low <= value <= high:
        raise SpecError(f"{where}.interval: limits out of order: {low} <= {value} <= {high} does not hold")
    if low < rule.low or high > rule.high:
        raise SpecError(
            f"{where}: found {value} in [{low}, {high}] {rule.unit}, expected within [{rule.low}, {rule.high}]"
        )
    return Quantity(value, rule.unit, entry["source"], low, high)


def _number(item: Any, where: str) -> float:
    # false for NaN, and for an integer that no float can hold
    if isinstance(item, bool) or not isinstance(item, int | float) or not abs(item) < 1e300:
        raise SpecError(f"{where}: found {item!r}, expected a finite number")
    return float(item)


def _check_order(spec: RobotSpec, where: str) -> None:
    if spec.dead_man_s < spec.control_period_s:
        raise SpecError(
            f"{where}: timing.dead_man: {spec.dead_man_s} s is shorter than "
            f"timing.control_period {spec.control_period_s} s: limits out of order"
        )
    if spec.kind == DIFFERENTIAL_DRIVE:
        if spec.speed_limit_m_s > spec.wheel_limit_m_s * (1 + 1e-9):
            raise SpecError(
                f"{where}: limits.speed: {spec.speed_limit_m_s} m/s is above the speed of the "
                f"wheels, {spec.wheel_limit_m_s:.4g} m/s: limits out of order"
            )
        if spec.wheel_base_m > 2 * spec.body_radius_m:
            raise SpecError(
                f"{where}: geometry.wheel_base: {spec.wheel_base_m} m is wider than the body, "
                f"{2 * spec.body_radius_m} m: limits out of order"
            )
    if spec.silence:
        _check_silence(spec, where)


def _check_silence(spec: RobotSpec, where: str) -> None:
    brake = spec.silence["silence.onboard_brake"]
    if not brake.low == brake.value == brake.high or brake.value not in (0, 1):
        raise SpecError(
            f"{where}: silence.onboard_brake: found {brake.value:g} in [{brake.low:g}, {brake.high:g}], expected 0 or 1"
        )
    level, cut = (spec.silence[f"silence.{name}_after"] for name in ("level", "cut"))
    if not spec.dead_man_s <= level.low <= level.high <= cut.low:
        raise SpecError(
            f"{where}: silence.level_after: found {level.value:g} s in [{level.low:g}, {level.high:g}], "
            f"expected between timing.dead_man, {spec.dead_man_s:g} s, and silence.cut_after, "
            f"{cut.low:g} s: limits out of order"
        )
