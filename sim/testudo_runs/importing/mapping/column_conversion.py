"""Rows of a log file, and their conversion to the series of a role: units, attitudes and frames."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from testudo_hardware import frames
from testudo_hardware.links.wire import WORLD_FRAME, body_frame
from testudo_runs.importing.mapping.axes import in_rep103
from testudo_runs.importing.mapping.mapping_file import Channel, RoleMap
from testudo_runs.recording.recording import (
    ANGLES,
    PACKED,
    PWM16,
    QUATERNION,
    ROLES,
    STANDARD_GRAVITY,
    UNITS,
    pwm_force,
    units_of,
)

_SHOWN = 6


@dataclass(frozen=True)
class Loss:
    """One reason with all its places in one file."""

    file: str  # file name; empty where the reason contains it
    why: str
    count: int  # lines, records or files
    places: str  # text such as `lines 12-15, 80`; empty for a whole file
    example: str = ""

    def __str__(self) -> str:
        where = "".join(f"{part}: " for part in (self.file, self.places) if part)
        return f"{where}{self.why}" + (f", such as {self.example}" if self.example else "")


@dataclass
class _Place:
    numbers: list[int] = field(default_factory=list)
    example: str = ""


@dataclass
class FileLosses:
    """Collects the losses of one file by reason."""

    file: Path
    word: str = "line"  # unit that is counted: line or record
    _by_reason: dict[str, _Place] = field(default_factory=dict, repr=False)

    def add(self, why: str, numbers: Iterable[int] = (), example: str = "") -> None:
        """Add lines or records, counted from 1; no number means the whole file."""
        place = self._by_reason.setdefault(why, _Place())
        place.numbers.extend(int(number) for number in numbers)
        place.example = place.example or example

    def add_where(self, why: str, numbers: Iterable[int]) -> None:
        """Add lines or records if there are any."""
        found = list(numbers)
        if found:
            self.add(why, found)

    def all(self) -> list[Loss]:
        """Return one loss for each reason."""
        return [
            Loss(self.file.name, why, len(place.numbers) or 1, ranges(place.numbers, self.word), place.example)
            for why, place in self._by_reason.items()
        ]


def ranges(numbers: Iterable[int], word: str) -> str:
    """Return numbers as text with ranges: ``lines 12-15, 80 and 3 more``."""
    found = np.unique(np.fromiter(numbers, np.int64))
    if not len(found):
        return ""
    breaks = np.flatnonzero(np.diff(found) > 1)
    first, last = found[np.r_[0, breaks + 1]], found[np.r_[breaks, len(found) - 1]]
    texts = [f"{a}" if a == b else f"{a}-{b}" for a, b in zip(first[:_SHOWN], last[:_SHOWN], strict=True)]
    more = int((last[_SHOWN:] - first[_SHOWN:] + 1).sum())
    return f"{word}{'s' if len(found) > 1 else ''} {', '.join(texts)}" + (f" and {more} more" if more else "")


def losses_text(text: bytes) -> str:
    """Return the first bytes of a text in printable form."""
    plain = text[:24].strip().decode("ascii", "backslashreplace")
    return "'" + "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in plain) + "'" + "..." * (len(text) > 24)


@dataclass(frozen=True)
class LogTable:
    """Rows of one file, or of one kind of record in it."""

    names: tuple[str, ...]  # names of the columns; empty where the file has none
    count: int  # number of columns in the file
    columns: dict[int, np.ndarray] = field(repr=False)  # columns that were read, each (R,), by index from 0
    places: np.ndarray = field(repr=False)  # (R,) line or record of each row, from 1
    time_ns: np.ndarray | None = field(default=None, repr=False)  # (R,) stamps [ns], where the file format has them
    absent: dict[int, np.ndarray] = field(default_factory=dict, repr=False)
    """Masks (R,) of empty fields by column index; only columns with empty fields."""

    def __len__(self) -> int:
        return len(self.places)

    def take(self, rows: np.ndarray) -> "LogTable":
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

    def needed_index(self, column: int | str) -> int:
        """Return the index of a column that the table has.

        Raises:
            KeyError: it has not.
        """
        if (index := self.index(column)) is None:
            raise KeyError(column)
        return index


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
    """Return the rows (R', C) of a role in its units and frames, and the indices (R',) of their samples.

    The table has all columns of ``way``; ``losses`` collects unusable samples.
    """
    channels = {name: _si(role, name, channel, table) for name, channel in way.channels.items()}
    stacked = np.stack(list(channels.values()), axis=1)
    marks = [table.absent.get(table.needed_index(channel.column)) for channel in way.channels.values()]
    # where all fields of a role are empty, the log has no sample, so that none is lost
    empty = np.all([np.zeros(len(table), bool) if mark is None else mark for mark in marks], axis=0)
    sound = np.isfinite(stacked).all(axis=1)
    sizes = np.where(np.isfinite(stacked), np.abs(stacked), 0.0)
    sizes[:, [k for k, name in enumerate(channels) if name == PACKED]] = 0.0
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
    """Return quaternions (R, 4), x y z w, from the compression of the Crazyflie; NaN where invalid.

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
    return frames.from_angles(np.stack([roll, pitch, yaw])).T


def into_body(vectors: np.ndarray, attitude: np.ndarray) -> np.ndarray:
    """Return world vectors (R, 3) in body frames with attitudes (R, 4), x y z w."""
    return frames.rotate_back(attitude.T, vectors.T).T


def rotated(vectors: np.ndarray, attitude: np.ndarray) -> np.ndarray:
    """Return vectors (R, 3) rotated by unit quaternions (R, 4), x y z w."""
    return frames.rotate(attitude.T, vectors.T).T


def _si(role: str, name: str, channel: Channel, table: LogTable) -> np.ndarray:
    return in_si(role, name, channel, table.columns[table.needed_index(channel.column)])


def in_si(role: str, name: str, channel: Channel, column: np.ndarray) -> np.ndarray:
    """Return logged numbers (R,) of a channel of a role in its SI unit."""
    with np.errstate(over="ignore", invalid="ignore"):
        if channel.unit == PWM16:
            return pwm_force(column) * channel.scale
        unit = units_of(role)[name]
        return column * (UNITS[unit][channel.unit or unit] * channel.scale)


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
    native = {"odometry": "body", "setpoint": "world"}.get(role)
    channels, attitude = in_rep103(
        channels,
        attitude,
        way.axes,
        velocity_in_world=(way.velocity or native) == "world",
        force_in_world=way.acceleration != "body",
    )
    channels = {**channels, **dict(zip(QUATERNION, attitude.T, strict=True))}
    nothing = np.zeros(len(attitude))

    def vector(*names: str) -> np.ndarray:
        return np.stack([channels.get(name, nothing) for name in names], axis=1)

    if native and way.velocity not in (None, native):
        turn = into_body if native == "body" else rotated
        channels.update(zip(("vx", "vy", "vz"), turn(vector("vx", "vy", "vz"), attitude).T, strict=True))
    if role == "imu" and way.acceleration != "body":
        force = vector("ax", "ay", "az")
        if way.acceleration == "world_without_gravity":
            force = force + np.array([0.0, 0.0, STANDARD_GRAVITY])
        channels.update(zip(("ax", "ay", "az"), into_body(force, attitude).T, strict=True))
    return vector(*ROLES[role].channels)
