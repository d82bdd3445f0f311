"""Series of one robot or body in a recorded run: poses, commands, and what its sensors sent."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from testudo_hardware.links.signal_wire import SignalWire
from testudo_hardware.links.wire import (
    CommandReading,
    OdometryReading,
    PoseReading,
    WireError,
    read_pose_stamped,
)

_FUTURE_S, _OLDEST_S = 0.002, 1.0  # a stamp of a body further from its arrival is on another clock


@dataclass(frozen=True)
class Track:
    """Poses of one robot or body, by stamp; D axes."""

    stamp_s: np.ndarray  # (T,) steady clock of the measurement
    received_s: np.ndarray  # (T,) steady clock of the recorder
    position_world: np.ndarray  # (T, D) [m]
    yaw: np.ndarray  # (T,) [rad], unwrapped
    velocity: np.ndarray
    """(T, D): (forward [m/s], turn rate [rad/s]) in the body, or (x, y, z) [m/s] in the world; (T, 0) if unknown."""
    quaternion_xyzw: np.ndarray | None = None  # (T, 4): body to world, of a recorded truth

    def at(self, times_s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return positions (K, D) [m] and yaws (K,) [rad] at times (K,); outside of the samples of the nearest one."""
        place = [np.interp(times_s, self.stamp_s, axis) for axis in self.position_world.T]
        return np.stack(place, axis=-1), np.interp(times_s, self.stamp_s, self.yaw)

    def in_order(self) -> "Track":
        """Return the samples by stamp, each stamp once."""
        _, index = np.unique(self.stamp_s, return_index=True)
        turns = self.quaternion_xyzw
        columns = (self.stamp_s, self.received_s, self.position_world, self.yaw, self.velocity)
        stamp, received, position, yaw, velocity = (column[index] for column in columns)
        return Track(stamp, received, position, yaw, velocity, None if turns is None else turns[index])


@dataclass(frozen=True)
class CommandTrack:
    """Commands of one robot, by stamp."""

    stamp_s: np.ndarray  # (T,) steady clock: time of sending or of application
    received_s: np.ndarray  # (T,) steady clock of the recorder
    command: np.ndarray  # (T, D) as sent, see `wire.command_frame`
    yaw_rate: np.ndarray | None = None  # (T,) [rad/s] of drones; None if unknown


class SensedSample(NamedTuple):
    """One message of a sensor."""

    stamp_s: float  # steady clock of the measurement
    values: tuple[float, ...]  # numbers of the signal


class GuardSample(NamedTuple):
    """One report of a guard; see the topic `guard_status`."""

    received_s: float  # steady clock of the recorder
    stamp_s: float  # steady clock of the guard
    code: str  # why it brakes; empty while it passes commands on
    since_s: float  # for how long [s]
    counts: tuple[int, int, int, int]  # commands received, of these not passed on; rearms and stops
    life: str  # names its process
    speed_share: float  # by which it slows commands
    sentence: str
    level: int
    name: str
    hardware: str


def read_guard(message: Any, received_s: float) -> GuardSample:
    """Read a `diagnostic_msgs/DiagnosticStatus` of a guard.

    Raises:
        WireError: a value is missing or is no number.
    """
    values = {item.key: item.value for item in message.values}
    try:
        stamp_s, since_s, share = (float(values[key]) for key in ("stamp_s", "since_s", "speed_share"))
        commands, refused, rearms, stops = (int(values[key]) for key in ("commands", "refused", "rearms", "stops"))
        code, life = values["code"], values["life"]
    except (KeyError, ValueError) as error:
        raise WireError(f"guard_status: cannot be read ({error!r})") from error
    if not all(map(isfinite, (stamp_s, since_s, share))):
        raise WireError("guard_status: a number is not finite")
    about = str(message.message), int(message.level), str(message.name), str(message.hardware_id)
    return GuardSample(received_s, stamp_s, code, since_s, (commands, refused, rearms, stops), life, share, *about)


def read_sensor(wire: SignalWire, ros_ahead_s: float, message: Any, received_s: float) -> SensedSample:
    """Read a message as the robot did; the ROS clock is ``ros_ahead_s`` ahead of the steady one."""
    return SensedSample(*wire.decode(message, received_s + ros_ahead_s, received_s))


def read_body(frame: str, name: str, message: Any, received_s: float) -> PoseReading:
    """Read the measured pose of a body; a stamp of another clock is replaced by the time of arrival."""
    reading = read_pose_stamped(message, frame, 2, name)
    own_clock = -_FUTURE_S <= received_s - reading.stamp_s <= _OLDEST_S
    return reading if own_clock else replace(reading, stamp_s=received_s)


def body_track(heard: Iterable[tuple[float, PoseReading]]) -> Track:
    """Return the poses of a body by stamp, each stamp once."""
    rows = [(reading.stamp_s, received_s, *reading.position_world, reading.yaw) for received_s, reading in heard]
    table = _by_stamp(rows, 5)
    still = np.zeros((len(table), 0))
    return Track(table[:, 0], table[:, 1], table[:, 2:4], np.unwrap(table[:, 4]), still).in_order()


def track_of(heard: Iterable[tuple[float, OdometryReading]], dimension: int) -> Track:
    """Return the poses of times of arrival and readings, by stamp."""
    readings = list(heard)
    turns = all(reading.quaternion_xyzw is not None for _, reading in readings)
    rows: list[Sequence[float]] = [
        (
            reading.stamp_s,
            received_s,
            *reading.position_world,
            reading.yaw,
            *reading.velocity,
            *((reading.quaternion_xyzw or ()) if turns else ()),
        )
        for received_s, reading in readings
    ]
    return track_of_rows(rows, dimension, with_turns=turns)


def track_of_rows(rows: Sequence[Sequence[float]] | np.ndarray, dimension: int, *, with_turns: bool) -> Track:
    """Return poses by stamp from rows: stamp, arrival, position (D,), yaw, velocity (D,), and quaternion."""
    table = _by_stamp(rows, 3 + 2 * dimension + 4 * with_turns)
    end, last = 2 + dimension, 3 + 2 * dimension
    return Track(
        table[:, 0],
        table[:, 1],
        table[:, 2:end],
        np.unwrap(table[:, end]),
        table[:, end + 1 : last],
        table[:, last:] if with_turns else None,
    )


def command_track(heard: Iterable[tuple[float, CommandReading]], dimension: int) -> CommandTrack:
    """Return the commands of times of arrival and readings, by stamp."""
    rows = [(reading.stamp_s, received_s, *reading.command, reading.yaw_rate) for received_s, reading in heard]
    return command_track_of_rows(rows, dimension)


def command_track_of_rows(rows: Sequence[Sequence[float]] | np.ndarray, dimension: int) -> CommandTrack:
    """Return commands by stamp from rows: stamp, arrival, command (D,), yaw rate."""
    table = _by_stamp(rows, 3 + dimension)
    return CommandTrack(table[:, 0], table[:, 1], table[:, 2:-1], table[:, -1])


def _by_stamp(rows: Sequence[Sequence[float]] | np.ndarray, columns: int) -> np.ndarray:
    """Return the rows (T, columns), ordered by their first column."""
    table = np.array(rows, float).reshape(len(rows), columns)
    return table[np.argsort(table[:, 0], kind="stable")]
