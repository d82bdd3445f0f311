"""The command types of a policy: five types with their units, and the vehicles, links and shields that accept them.

`control_point_velocity_world` is accepted by every robot, link and shield: the velocity of the control point in the
world [m/s]; a drone holds its heading. `velocity_yaw_rate_world` adds the yaw rate of a drone as the last number of
the policy's output. The shield checks only the velocity, since a drone keeps a space free that is symmetric about its
axis. `waypoint_world` is a place [m] to which the control point drives: at every control tick the tracking law of the
contract (`WaypointTracking`) turns it into a velocity, which the shield checks and the link carries.

The two others bypass the velocity controller of a drone. A policy file may contain them and simulation may use them; a
robot refuses them: the shield checks velocities, and no stop-tube check bounds the motion under attitudes or thrusts.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from testudo_deploy.contract.contract import (
    ATTITUDE_THRUST,
    COMMAND_TYPE,
    MOTOR_THRUSTS,
    VELOCITY_YAW_RATE,
    WAYPOINT,
    Command,
    PolicyContractError,
)
from testudo_deploy.contract.waypoint_tracking import GAIN_PER_S, WaypointTracking
from testudo_hardware.errors import TestudoError
from testudo_hardware.links.link_profile import LinkProfile
from testudo_hardware.schema import VELOCITY_POINT
from testudo_hardware.spec import RobotSpec

SHIELDED = (COMMAND_TYPE, VELOCITY_YAW_RATE, WAYPOINT)  # the types that the deployed shield checks
Limits = tuple[tuple[float, float], ...]


class CommandTypeError(TestudoError):
    """A vehicle, a link or the shield does not accept the command type of a policy."""


@dataclass(frozen=True)
class CommandForm:
    """One type of command."""

    channels: tuple[str, ...]  # names of its numbers; a velocity has as many as the robot has dimensions
    units: tuple[str, ...]
    table: str  # table that the robot file needs; empty for none
    bounds: Callable[[RobotSpec], Limits]
    """Lowest and highest value of the last channels for a robot; a velocity before them is limited in length."""
    limited: int = 0  # number of those last channels
    beside: str = ""  # second table that the robot file needs

    @property
    def limited_channels(self) -> tuple[str, ...]:
        """Return the channels with own limits."""
        return self.channels[len(self.channels) - self.limited :]

    @property
    def unit(self) -> str:
        """Return the unit in contracts."""
        return ", ".join(self.units) if self.table else self.units[0]


def _yaw_rate_bounds(spec: RobotSpec) -> Limits:
    return ((-spec.yaw_rate_limit_rad_s, spec.yaw_rate_limit_rad_s),)


def _attitude_bounds(spec: RobotSpec) -> Limits:
    tilt_rad = spec.attitude["attitude.tilt_limit"].value
    thrust = (spec.attitude["attitude.thrust_least"].value, spec.attitude["attitude.thrust_most"].value)
    return ((-tilt_rad, tilt_rad), (-tilt_rad, tilt_rad), (-math.pi, math.pi), thrust)


def _motor_bounds(spec: RobotSpec) -> Limits:
    return ((0.0, spec.rotors["rotors.thrust_most"].value),) * 4


FORMS: dict[str, CommandForm] = {
    COMMAND_TYPE: CommandForm(("x", "y", "z"), ("m/s", "m/s", "m/s"), "", lambda _: ()),
    WAYPOINT: CommandForm(("x", "y", "z"), ("m", "m", "m"), "", lambda _: ()),
    VELOCITY_YAW_RATE: CommandForm(
        ("x", "y", "z", "yaw_rate"), ("m/s", "m/s", "m/s", "rad/s"), "heading", _yaw_rate_bounds, 1, "attitude"
    ),
    ATTITUDE_THRUST: CommandForm(
        ("roll", "pitch", "yaw", "thrust"), ("rad", "rad", "rad", "N"), "attitude", _attitude_bounds, limited=4
    ),
    MOTOR_THRUSTS: CommandForm(
        ("motor 1", "motor 2", "motor 3", "motor 4"), ("N", "N", "N", "N"), "rotors", _motor_bounds, limited=4
    ),
}
"""By the name in contracts."""


def velocity_command(command_type: str, spec: RobotSpec, message_size: int = 0) -> Command:
    """Return the command in the contract of a policy for this robot: a velocity, one with yaw rate, or a way-point.

    Beside it the policy says a message of ``message_size`` numbers to its peers.

    Raises:
        PolicyContractError: the robot does not accept it.
    """
    form = FORMS[command_type]
    limits = form.bounds(spec)
    check_vehicle(command_type, limits, spec, spec.name)
    gain_per_s = GAIN_PER_S if command_type == WAYPOINT else 0.0
    return Command(command_type, form.unit, spec.control_point_speed_m_s, limits, gain_per_s, message_size)


def turns(command: Command) -> bool:
    """Return whether a command contains a yaw rate."""
    return command.type == VELOCITY_YAW_RATE


def tracking_of(command: Command) -> WaypointTracking | None:
    """Return the tracking law of a command that is a way-point; None for other commands."""
    return WaypointTracking(command.gain_per_s, command.limit) if command.type == WAYPOINT else None


def split_message(output: Any, size: int) -> tuple[Any, Any]:
    """Return a policy's output (..., A) without its learned message, and the message (..., ``size``); None for 0."""
    return (output[..., :-size], output[..., -size:]) if size else (output, None)


def split_output(command: Command, output: np.ndarray) -> tuple[np.ndarray, float]:
    """Return velocity (D,) [m/s], or way-point (D,) [m], and yaw rate [rad/s] of a policy's output; 0 for none.

    The output is that without its message, see `split_message`.
    """
    return (output[:-1], float(output[-1])) if turns(command) else (output, 0.0)


def limited_yaw_rate(command: Command, yaw_rate: float) -> float:
    """Return the yaw rate [rad/s] within the limits of the contract, which are within those of the robot."""
    if not turns(command):
        return 0.0
    low, high = command.limits[0]
    return min(max(yaw_rate, low), high)


def limited_yaw_rate_of(command: Command) -> float:
    """Return the largest yaw rate [rad/s] that a command may ask for in either direction; 0 without yaw rates."""
    return min(-command.limits[0][0], command.limits[0][1]) if turns(command) else 0.0


def check_vehicle(command_type: str, limits: Limits, spec: RobotSpec, where: str) -> None:
    """Check that a robot accepts a command type, and that the policy's limits are within the robot's.

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
    """Check that a link carries a command type.

    Raises:
        CommandTypeError: naming the robot, the field and both values.
    """
    if (COMMAND_TYPE if command_type == WAYPOINT else command_type) not in profile.takes:
        raise CommandTypeError(
            f"robots.{robot}.link: found command.type {command_type!r} in the policy, link "
            f"{profile.name!r} carries {' or '.join(profile.takes)}"
        )


def check_velocities_alone(command: Command, where: str) -> None:
    """Refuse a policy that commands more than a velocity, for callers (``where``) that support only velocities.

    Raises:
        CommandTypeError: naming the type, or the size of the message.
    """
    if command.message_size:
        raise CommandTypeError(
            f"{where}: found a policy with a message of {command.message_size} numbers to its peers, expected one "
            "without a message"
        )
    if command.type != COMMAND_TYPE:
        raise CommandTypeError(
            f"{where}: found a policy of command.type {command.type!r}, expected "
            f"{COMMAND_TYPE!r}, the only supported type"
        )


def check_simulated(command: Command, where: str) -> None:
    """Refuse a policy whose commands pass no shield, for callers that simulate a deployed team.

    Raises:
        CommandTypeError: naming the type; ``where`` says in which file.
    """
    if command.type not in SHIELDED:
        raise CommandTypeError(
            f"{where}: found a policy of command.type {command.type!r}, expected {', '.join(SHIELDED)}: only these are "
            "simulated behind the shield"
        )


def check_shielded(command_type: str, robot: str) -> None:
    """Check that the shield of a robot covers the command type of its policy: nothing passes unchecked.

    Raises:
        CommandTypeError: naming the robot, the field and both values.
    """
    if command_type not in SHIELDED:
        raise CommandTypeError(
            f"robots.{robot}: found command.type {command_type!r} in the policy, the shield checks "
            f"{' or '.join(SHIELDED)}: no check bounds the motion under other commands, so they are for "
            "simulation only"
        )
