"""Rows of a log file, and their conversion to the series of a role: units, attitudes and frames."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from testudo_hardware.links.wire import WORLD_FRAME, body_frame
from testudo_runs.importing.mapping.channels import ANGLES, PACKED, PWM16, QUATERNION, STANDARD_GRAVITY, UNITS, units_of
from testudo_runs.importing.mapping.import_losses import FileLosses
from testudo_runs.importing.mapping.mapping_file import Channel, RoleMap
from testudo_runs.recording.roles import ROLES


@dataclass(frozen=True)
class LogTable:
    """Rows of one file, or of one kind of record in it."""

    names: tuple[str, ...]
    """Names of the columns; empty where the file has none."""
    count: int
    """Number of columns in the file."""
    columns: dict[int, np.ndarray] = field(repr=False)
    """Columns that were read, each (R,), by index from 0."""
    places: np.ndarray = field(repr=False)
    """(R,) line or record of each row, from 1."""
    time_ns: np.ndarray | None = field(default=None, repr=False)
    """(R,) stamps [ns], where the file format has them."""
    absent: dict[int, np.ndarray] = field(default_factory=dict, repr=False)
    """Masks (R,) of empty fields by column index; only columns with empty fields."""

    def __len__(self) -> int:
        return len(self.places)

    def take(self, rows: np.ndarray) -> LogTable:
        """Return the table of the rows with these indices."""
        return LogTable(
            self.names,
            self.count,
            {k: column[rows] for k, column in self.columns.items()},
            self.places[rows],
            None if self.time_ns is None else self.time_ns[rows],
            {k: mark[rows] for k, mark in self.absent.items()},
        )

    def index(self, column: int | str) -> int | None:
        """Return the index from 0 of a column given by number from 1 or by name; None if there is none."""
        return index_of(column, self.names, self.count)


def index_of(column: int | str, names: tuple[str, ...], count: int) -> int | None:
    """Return the index from 0 of a column given by number from 1 or by name; None if there is none."""
    if isinstance(column, int):
        return column - 1 if column <= count else None
    return names.index(column) if column in names else None


NO_ATTITUDE = "no channel gives the attitude: it is taken as level, with heading 0"
LARGEST = 1e6
"""Upper bound of any measurement of a robot, in SI units."""
_NORM_ERROR = 0.05
_SHARE = np.sqrt(0.5)
_PACKED_BITS = 9


def missing_columns(way: RoleMap, table: LogTable) -> list[str]:
    """Return the columns that a role needs and the log lacks, as named in the mapping."""
    return [str(channel.column) for channel in way.channels.values() if table.index(channel.column) is None]


def values_of(role: str, way: RoleMap, table: LogTable, losses: FileLosses) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows (R', C) of a role in SI units and the role's frames, and the indices (R',) of their samples.

    Args:
        role: a key of `ROLES`.
        way: its columns; the table has all of them.
        table: the log.
        losses: collects unusable samples.
    """
    channels = {name: _si(role, name, channel, table) for name, channel in way.channels.items()}
    stacked = np.stack(list(channels.values()), axis=1)
    empty = _empty(way, table)
    sound = np.isfinite(stacked).all(axis=1)
    sizes = np.where(np.isfinite(stacked), np.abs(stacked), 0.0)
    packed = [k for k, name in enumerate(channels) if name == PACKED]
    sizes[:, packed] = 0.0
    huge = (sizes > LARGEST).any(axis=1)
    attitude = _attitude(channels, len(table))
    with np.errstate(invalid="ignore", over="ignore"):
        norm = np.linalg.norm(attitude, axis=1)
        skew = ~(np.abs(norm - 1.0) <= _NORM_ERROR)
    good = sound & ~huge & ~skew
    losses.add_where(f"{role}: a value is no finite number", table.places[~sound & ~empty])
    losses.add_where(f"{role}: a value is too large to be true", table.places[sound & huge])
    losses.add_where(f"{role}: the quaternion has not the length 1", table.places[sound & ~huge & skew])
    keep = np.flatnonzero(good)
    return _composed(role, way, {name: column[keep] for name, column in channels.items()}, attitude[keep]), keep


def frame_of(role: str, way: RoleMap, robot: str) -> str:
    """Return the frame of a series: the body frame for IMU, motors and most commands, else the world."""
    in_body = role in ("imu", "motors") or (role == "command" and way.velocity != "world")
    return body_frame(robot) if in_body else WORLD_FRAME


def unpacked(packed: np.ndarray) -> np.ndarray:
    """Return quaternions (R, 4), x y z w, unpacked from the compression of the Crazyflie; NaN where invalid.

    Two bits give the index of the largest element, which is positive and not stored. Each other element, the last
    one first, has nine bits of magnitude over sqrt(1/2) and one sign bit.
    """
    with np.errstate(invalid="ignore"):
        fits = np.isfinite(packed) & (packed >= 0) & (packed < 1 << 32) & (packed == np.floor(packed))
    bits = np.where(fits, packed, 0).astype(np.int64)
    largest = bits >> 30
    found = np.zeros((len(bits), 4))
    mask = (1 << _PACKED_BITS) - 1
    for k in (3, 2, 1, 0):
        here = largest != k
        size = (bits & mask) / mask * _SHARE
        sign = np.where((bits >> _PACKED_BITS) & 1, -1.0, 1.0)
        found[here, k] = (sign * size)[here]
        bits = np.where(here, bits >> (_PACKED_BITS + 1), bits)
    rest = 1.0 - (found**2).sum(axis=1)
    found[np.arange(len(found)), largest] = np.sqrt(np.maximum(rest, 0.0))
    found[~fits | (rest < 0)] = np.nan
    return found


def from_angles(roll: np.ndarray, pitch: np.ndarray, yaw: np.ndarray) -> np.ndarray:
    """Return quaternions (R, 4), x y z w, of rotations [rad] about the fixed axes x, then y, then z (REP-103)."""
    (cr, sr), (cp, sp), (cy, sy) = ((np.cos(a / 2), np.sin(a / 2)) for a in (roll, pitch, yaw))
    return np.stack(
        [
            sr * cp * cy - cr * sp * sy,
            cr * sp * cy + sr * cp * sy,
            cr * cp * sy - sr * sp * cy,
            cr * cp * cy + sr * sp * sy,
        ],
        axis=1,
    )


def into_body(vectors: np.ndarray, quaternions: np.ndarray) -> np.ndarray:
    """Return world vectors (R, 3) in body frames with attitudes (R, 4), x y z w."""
    return rotated(vectors, quaternions * np.array([-1.0, -1.0, -1.0, 1.0]))


def rotated(vectors: np.ndarray, quaternions: np.ndarray) -> np.ndarray:
    """Return vectors (R, 3) rotated by unit quaternions (R, 4), x y z w."""
    axis, w = quaternions[:, :3], quaternions[:, 3:]
    twice = 2.0 * np.cross(axis, vectors)
    return vectors + w * twice + np.cross(axis, twice)


def _si(role: str, name: str, channel: Channel, table: LogTable) -> np.ndarray:
    column = table.columns[table.index(channel.column)]
    with np.errstate(over="ignore", invalid="ignore"):
        if channel.unit == PWM16.unit:
            return PWM16.force(column) * channel.scale
        unit = units_of(role)[name]
        return column * (UNITS[unit][channel.unit or unit] * channel.scale)


def _empty(way: RoleMap, table: LogTable) -> np.ndarray:
    """Return where all fields of a role are empty: the log has no sample there, so none is lost."""
    marks = [table.absent.get(table.index(channel.column)) for channel in way.channels.values()]
    if any(mark is None for mark in marks):
        return np.zeros(len(table), bool)
    return np.logical_and.reduce(marks)


def _attitude(channels: dict[str, np.ndarray], count: int) -> np.ndarray:
    """Return quaternions (R, 4); the identity where no channel gives an attitude."""
    with np.errstate(invalid="ignore", over="ignore"):
        if PACKED in channels:
            return unpacked(channels[PACKED])
        if QUATERNION[0] in channels:
            return np.stack([channels[name] for name in QUATERNION], axis=1)
        return from_angles(*(channels.get(name, np.zeros(count)) for name in ANGLES))


def _composed(role: str, way: RoleMap, channels: dict[str, np.ndarray], attitude: np.ndarray) -> np.ndarray:
    attitude = attitude / np.linalg.norm(attitude, axis=1, keepdims=True)
    channels = {**channels, **dict(zip(QUATERNION, attitude.T, strict=True))}
    nothing = np.zeros(len(attitude))

    def vector(*names: str) -> np.ndarray:
        return np.stack([channels.get(name, nothing) for name in names], axis=1)

    native = {"odometry": "body", "setpoint": "world"}.get(role)
    if native and way.velocity not in (None, native):
        rotated_vector = (
            into_body(vector("vx", "vy", "vz"), attitude)
            if native == "body"
            else rotated(vector("vx", "vy", "vz"), attitude)
        )
        channels.update(zip(("vx", "vy", "vz"), rotated_vector.T, strict=True))
    if role == "imu" and way.acceleration != "body":
        force = vector("ax", "ay", "az")
        if way.acceleration == "world_without_gravity":
            force = force + np.array([0.0, 0.0, STANDARD_GRAVITY])
        channels.update(zip(("ax", "ay", "az"), into_body(force, attitude).T, strict=True))
    return vector(*ROLES[role].channels)
