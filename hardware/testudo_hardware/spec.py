"""`RobotSpec`: the one description of a robot, read from TOML with units and sources."""

from __future__ import annotations

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
    ATTITUDE,
    DIFFERENTIAL_DRIVE,
    HEADING,
    KINDS,
    POWER,
    PROPELLERS,
    QUANTITIES,
    ROTORS,
    SILENCE,
    VELOCITY_POINT,
    QuantityRule,
)
from testudo_hardware.strict_files import read_toml

SCHEMA = "testudo/robot/1"
FALL_S = 0.8
"""A drone whose motors are cut is on the floor after this time, if it flew no higher than 3.1 m."""
COLUMN_RATIO = 1000.0
"""Heights that count so little between robots do not keep any two apart."""


class SpecError(TestudoError):
    """A robot file does not hold: the text names file, key, what was found and what is expected."""


@dataclass(frozen=True)
class Quantity:
    """A number with its unit, where it comes from, and the interval in which the truth lies."""

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
    """A robot; every number is SI. Lengths m, times s, angles rad; absent for a kind means NaN.

    ``quantities`` holds the same numbers with unit, source and interval, by ``section.key``; what a file need not
    have, and does not, is not among them.
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
    pose_max_age_s: float
    quantities: Mapping[str, Quantity] = field(repr=False)
    rotors: Mapping[str, Quantity] = field(default_factory=dict, repr=False)
    """What a drone with commanded rotors is, by `rotors.key`; empty if the file does not say. A policy that commands
    velocities does not rest on these, so that they are no part of `to_dict` and the hash."""
    attitude: Mapping[str, Quantity] = field(default_factory=dict, repr=False)
    """What a drone under its attitude loop and velocity controller is, by `attitude.key`; as `rotors`."""
    propellers: Mapping[str, Quantity] = field(default_factory=dict, repr=False)
    """How speed, thrust and torque of its propellers go together, by `propellers.key`; as `rotors`."""
    power: Mapping[str, Quantity] = field(default_factory=dict, repr=False)
    """The voltages at which it may take off and has to land, by `power.key`; as `rotors`."""
    heading: Mapping[str, Quantity] = field(default_factory=dict, repr=False)
    """How fast it may be told to turn, by `heading.key`; as `rotors`. Empty: it holds its heading."""
    silence: Mapping[str, Quantity] = field(default_factory=dict, repr=False)
    """What a drone does when its radio brings no set-points, by `silence.key`; empty if that is the driver's brake."""

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
        """Return how fast a drone may be told to turn [rad/s]; 0 for whoever takes no yaw rate."""
        return self.heading["heading.yaw_rate_limit"].value if self.heading else 0.0

    @property
    def hold_s(self) -> float:
        """Return T_hold: the longest time that one command can act, and one tick.

        That is the dead-man time, or until a silent drone without a brake of its own levels out.
        """
        alone = 0.0 if self.brakes_in_silence else self.silence["silence.level_after"].high
        return max(self.dead_man_s, alone) + self.control_period_s

    @property
    def link_delay_most_s(self) -> float:
        """Return the longest time that a command is on its way to the vehicle: its own response is not in it."""
        return self.attitude.get("attitude.link_delay", self.quantities["dynamics.command_delay"]).high

    @property
    def coast_s(self) -> float:
        """Return how long it moves on after T_hold without a brake: until it levels no more, and then falls down."""
        if self.brakes_in_silence:
            return 0.0
        level, cut = (self.silence[f"silence.{name}_after"] for name in ("level", "cut"))
        return cut.high - level.low + FALL_S

    @property
    def keep_radius_m(self) -> float:
        """Return the radius that a robot keeps free of others at its own height: its body, or its wash if wider."""
        return max(self.body_radius_m, self.downwash_radius_m) if self.kind == VELOCITY_POINT else self.body_radius_m

    @property
    def height_ratio(self) -> float:
        """Return c: heights count 1/c between robots, so that what one keeps free is an ellipsoid; 1 is a ball.

        A drone that falls down once its radio is silent keeps its whole column free.
        """
        if self.kind != VELOCITY_POINT:
            return 1.0
        return max(1.0, self.downwash_height_m / self.keep_radius_m) if self.brakes_in_silence else COLUMN_RATIO

    @property
    def brakes_in_silence(self) -> bool:
        """Return whether the robot brakes by itself `dead_man_s` after the last command that reached it."""
        return not self.silence or self.silence["silence.onboard_brake"].value == 1

    @property
    def sha256(self) -> str:
        """Return the hash of the numbers (comments and layout of the file do not count)."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """Return the description as the nested tables of its TOML file."""
        tables: dict[str, Any] = {
            "schema": SCHEMA,
            "name": self.name,
            "kind": self.kind,
            "description": self.description,
        }
        for key, quantity in {**self.quantities, **self.silence}.items():
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
        SpecError: no such robot, or the file does not hold.
    """
    return parse_robot(*read_toml(name_or_path, robot_files(), "robot", SpecError))


@functools.cache
def _robot_folders() -> tuple[Any, ...]:
    """Return our folder of robots and those of `testudo.robots` packages; the search takes 25 ms."""
    others = [point.value for point in entry_points(group="testudo.robots") if point.value != "testudo_hardware.robots"]
    return (resources.files("testudo_hardware") / "robots", *map(resources.files, others))


def robot_files() -> dict[str, Any]:
    """Return every registered robot file by name: our own and those of `testudo.robots` packages."""
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
    values: dict[str, float] = {}
    for key, rule in QUANTITIES.items():
        if kind not in rule.kinds:
            values[rule.attribute] = math.nan
            continue
        section, name = key.split(".")
        entry = tables.get(section, {}).get(name)
        if entry is None and rule.default is not None:
            values[rule.attribute] = rule.default
            continue
        if entry is None:
            raise SpecError(
                f"{where}: {key}: missing; write {name} = {{ value = ..., "
                f'unit = "{rule.unit}", source = "..." }} below [{section}]'
            )
        quantities[key] = _quantity(entry, rule, f"{where}: {key}")
        values[rule.attribute] = quantities[key].value
    spec = RobotSpec(
        name=tables["name"],
        kind=kind,
        description=tables["description"],
        quantities=quantities,
        rotors=_optional(tables, ROTORS, where),
        attitude=_optional(tables, ATTITUDE, where),
        propellers=_optional(tables, PROPELLERS, where),
        power=_optional(tables, POWER, where),
        heading=_optional(tables, HEADING, where),
        silence=_optional(tables, SILENCE, where),
        **values,
    )
    _check_order(spec, where)
    return spec


def _optional(tables: Mapping[str, Any], rules: Mapping[str, QuantityRule], where: str) -> dict[str, Quantity]:
    """Return the quantities of a table that a file has whole or not at all."""
    section = next(iter(rules)).split(".")[0]
    found = tables.get(section)
    if found is None:
        return {}
    for key, rule in rules.items():
        if key.split(".")[1] not in found:
            raise SpecError(
                f"{where}: {key}: missing; a drone has all keys of [{section}] or no such table; write "
                f'{key.split(".")[1]} = {{ value = ..., unit = "{rule.unit}", source = "..." }}'
            )
    return {key: _quantity(found[key.split(".")[1]], rule, f"{where}: {key}") for key, rule in rules.items()}


def _refuse_unknown(tables: Mapping[str, Any], kind: str, where: str) -> None:
    rules = QUANTITIES | ROTORS | ATTITUDE | PROPELLERS | POWER | HEADING | SILENCE
    allowed = {key for key, rule in rules.items() if kind in rule.kinds}
    sections = {key.split(".")[0] for key in allowed}
    for section, content in tables.items():
        if section in ("schema", "name", "kind", "description"):
            continue
        if section not in sections or not isinstance(content, Mapping):
            raise SpecError(f"{where}: {section}: unknown table; known are {', '.join(sorted(sections))}")
        for name in content:
            if f"{section}.{name}" not in allowed:
                known = sorted(key.split(".")[1] for key in allowed if key.startswith(section + "."))
                raise SpecError(f"{where}: {section}.{name}: unknown key for a {kind}; known are {', '.join(known)}")


def _quantity(entry: Any, rule: Any, where: str) -> Quantity:
    if not isinstance(entry, Mapping):
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
        raise SpecError(f"{where}.source: missing; say where the number comes from")
    value = _number(entry.get("value"), f"{where}.value")
    interval = entry.get("interval", [value, value])
    if not isinstance(interval, list) or len(interval) != 2:
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
    # the comparison is false for NaN, and for an integer that no float can hold
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
                f"{where}: limits.speed: {spec.speed_limit_m_s} m/s is above what the wheels "
                f"reach, {spec.wheel_limit_m_s:.4g} m/s: limits out of order"
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
