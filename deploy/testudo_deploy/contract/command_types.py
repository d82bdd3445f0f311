"""What a policy may command: four types with their units, and who takes which.

`control_point_velocity_world` is what every robot, link and the shield take: the velocity of the control point in the
world [m/s]; of a drone the heading is held, its rate of turn is zero. `velocity_yaw_rate_world` is the same of a drone
that also turns: the yaw rate is the last number of the policy's output and travels beside the velocity, of which alone
the shield has something to say, since a drone keeps a body free that is round about its axis.

The two others are below the velocity controller of a drone. A policy file may say them, and simulation may fly them; on
a robot they are refused: the shield checks velocities, and no gate exists that would bound where an attitude or four
thrusts lead.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from testudo_deploy.contract.contract import (
    ATTITUDE_THRUST,
    COMMAND_TYPE,
    MOTOR_THRUSTS,
    VELOCITY_YAW_RATE,
    Command,
    PolicyContractError,
)
from testudo_hardware.errors import TestudoError
from testudo_hardware.links.link_profile import LinkProfile
from testudo_hardware.schema import VELOCITY_POINT
from testudo_hardware.spec import RobotSpec

SHIELDED = (COMMAND_TYPE, VELOCITY_YAW_RATE)
"""The types that the deployed shield checks."""
Limits = tuple[tuple[float, float], ...]


class CommandTypeError(TestudoError):
    """A vehicle, a link or the shield does not take what a policy commands."""


@dataclass(frozen=True)
class CommandForm:
    """One type of command."""

    channels: tuple[str, ...]
    """Names of its numbers; of a velocity as many as the robot has dimensions."""
    units: tuple[str, ...]
    table: str
    """Of the robot file, without which no robot takes it; empty: every robot does."""
    bounds: Callable[[RobotSpec], Limits]
    """Lowest and highest value that a robot with that table takes, for the last channels; those before them are a
    velocity, whose length is limited."""
    limited: int = 0
    """How many channels that is."""
    beside: str = ""
    """Another table that it needs."""

    @property
    def limited_channels(self) -> tuple[str, ...]:
        """Return the channels that have limits of their own."""
        return self.channels[len(self.channels) - self.limited :]

    @property
    def unit(self) -> str:
        """Return the unit that a contract says."""
        return ", ".join(self.units) if self.table else self.units[0]


def _no_bounds(_: RobotSpec) -> Limits:
    return ()


def _yaw_rate_bounds(spec: RobotSpec) -> Limits:
    return ((-spec.yaw_rate_limit_rad_s, spec.yaw_rate_limit_rad_s),)


def _attitude_bounds(spec: RobotSpec) -> Limits:
    tilt_rad = spec.attitude["attitude.tilt_limit"].value
    turn_rad = math.pi
    thrust = (spec.attitude["attitude.thrust_least"].value, spec.attitude["attitude.thrust_most"].value)
    return ((-tilt_rad, tilt_rad), (-tilt_rad, tilt_rad), (-turn_rad, turn_rad), thrust)


def _motor_bounds(spec: RobotSpec) -> Limits:
    return ((0.0, spec.rotors["rotors.thrust_most"].value),) * 4


FORMS: dict[str, CommandForm] = {
    COMMAND_TYPE: CommandForm(("x", "y", "z"), ("m/s", "m/s", "m/s"), "", _no_bounds),
    VELOCITY_YAW_RATE: CommandForm(
        ("x", "y", "z", "yaw_rate"),
        ("m/s", "m/s", "m/s", "rad/s"),
        "heading",
        _yaw_rate_bounds,
        limited=1,
        beside="attitude",
    ),
    ATTITUDE_THRUST: CommandForm(
        ("roll", "pitch", "yaw", "thrust"), ("rad", "rad", "rad", "N"), "attitude", _attitude_bounds, limited=4
    ),
    MOTOR_THRUSTS: CommandForm(
        ("motor 1", "motor 2", "motor 3", "motor 4"), ("N", "N", "N", "N"), "rotors", _motor_bounds, limited=4
    ),
}
"""By the name that a contract says."""


def velocity_command(command_type: str, spec: RobotSpec) -> Command:
    """Return what the contract of a policy for this robot says of velocities, with a yaw rate or without.

    Raises:
        PolicyContractError: the robot cannot be commanded so.
    """
    form = FORMS[command_type]
    limits = form.bounds(spec)
    check_vehicle(command_type, limits, spec, spec.name)
    return Command(command_type, form.unit, spec.control_point_speed_m_s, limits)


def turns(command: Command) -> bool:
    """Return whether a policy commands a yaw rate beside the velocity."""
    return command.type == VELOCITY_YAW_RATE


def split_output(command: Command, output: np.ndarray) -> tuple[np.ndarray, float]:
    """Return velocity (D,) and yaw rate [rad/s] of what a policy put out; zero of one that holds the heading."""
    return (output[:-1], float(output[-1])) if turns(command) else (output, 0.0)


def limited_yaw_rate(command: Command, yaw_rate: float) -> float:
    """Return the yaw rate [rad/s] that is sent: within the limits of the contract, which are within the robot's."""
    if not turns(command):
        return 0.0
    low, high = command.limits[0]
    return min(max(yaw_rate, low), high)


def check_vehicle(command_type: str, limits: Limits, spec: RobotSpec, where: str) -> None:
    """Check that a robot can be commanded so, and that the policy keeps to what it takes.

    Raises:
        PolicyContractError: naming the field and both values.
    """
    form = FORMS[command_type]
    if not form.table:
        return
    missing = [table for table in (form.table, form.beside) if table and not getattr(spec, table)]
    if spec.kind != VELOCITY_POINT or missing:
        raise PolicyContractError(
            f"{where}.command.type: found {command_type!r}, expected {COMMAND_TYPE!r}: {spec.name} is "
            f"a {spec.kind} without [{(missing or [form.table])[0]}] in its file"
        )
    units = form.units[len(form.units) - form.limited :]
    for (low, high), (least, most), channel, unit in zip(
        limits, form.bounds(spec), form.limited_channels, units, strict=True
    ):
        if low < least - 1e-9 or high > most + 1e-9:
            raise PolicyContractError(
                f"{where}.command.limits of {channel}: found {low:g} to {high:g} {unit}, {spec.name} "
                f"takes {least:g} to {most:g} {unit}"
            )


def check_link(command_type: str, robot: str, profile: LinkProfile) -> None:
    """Check that a link carries a command.

    Raises:
        CommandTypeError: naming the robot, the field and both values.
    """
    if command_type not in profile.takes:
        raise CommandTypeError(
            f"robots.{robot}.link: found command.type {command_type!r} in the policy, link "
            f"{profile.name!r} carries {' or '.join(profile.takes)}"
        )


def check_velocities_alone(command: Command, where: str) -> None:
    """Refuse a policy that commands more than a velocity, for what has no place for it; ``where`` says what that is.

    Raises:
        CommandTypeError: naming the type.
    """
    if command.type != COMMAND_TYPE:
        raise CommandTypeError(
            f"{where}: found a policy of command.type {command.type!r}, expected "
            f"{COMMAND_TYPE!r}, the only one that it knows"
        )


def check_shielded(command_type: str, robot: str) -> None:
    """Check that the shield of a robot looks at what its policy commands: nothing passes that it does not check.

    Raises:
        CommandTypeError: naming the robot, the field and both values.
    """
    if command_type not in SHIELDED:
        raise CommandTypeError(
            f"robots.{robot}: found command.type {command_type!r} in the policy, the shield checks "
            f"{' or '.join(SHIELDED)}: no gate bounds where other commands lead, so they fly in "
            "simulation only"
        )
