"""Reads text and binary logs as one recording."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from testudo_runs.importing.bags.clock_offsets import BagClock, ClockMarks, between
from testudo_runs.importing.bags.motion_matching import motion_of
from testudo_runs.importing.logs.crazyflie_sd_log import read_usd
from testudo_runs.importing.logs.log_discovery import LogFile
from testudo_runs.importing.logs.log_stamps import in_order, to_ns, with_unit
from testudo_runs.importing.logs.text_log import read_text
from testudo_runs.importing.logs.ulog_file import read_ulog
from testudo_runs.importing.mapping.column_conversion import (
    NO_ATTITUDE,
    FileLosses,
    LogTable,
    Loss,
    frame_of,
    missing_columns,
    values_of,
)
from testudo_runs.importing.mapping.mapping_file import AUTO, RoleMap, TextMap, UlogMap, check_type
from testudo_runs.recording.recording import ATTITUDE, PWM16, Recording, RecordingError, RobotRecording, Series

_NANO = 1_000_000_000
_APART_S = 600.0  # logs of one robot that are further apart belong to different runs
_SEEN = ("pose", "odometry")  # roles that show the motion of a robot


@dataclass(frozen=True)
class LogSegment:
    """Samples of one role of a robot from one file."""

    log: LogFile
    role: str
    way: RoleMap
    clock: str  # `unix` or `boot`
    time_ns: np.ndarray
    values: np.ndarray = field(repr=False)


@dataclass(frozen=True)
class Imported:
    """An imported recording and its provenance."""

    recording: Recording
    losses: tuple[Loss, ...]
    notes: tuple[str, ...]  # choices made during the import, as sentences
    origins: Mapping[str, Mapping[str, Mapping[str, object]]]
    """By robot and role: files, columns, units and frames of the source."""


def read_logs(
    logs: Sequence[LogFile],
    robot_types: Mapping[str, str],
    tell: Callable[[float], None] = lambda _: None,
    offsets: Mapping[str, float] | None = None,
) -> Imported:
    """Read logs of one run.

    ``logs`` are of one run; ``robot_types`` are by robot, where the empty name means all others, by default the type of
    the mapping; ``tell`` gets the completed fraction; ``offsets`` are seconds to add to all times of a robot, by its
    name.

    Raises:
        RecordingError: nothing in them can be used, two files overlap in one role of a robot, or an offset names no
            robot.
    """
    for log in logs:
        if log.robot not in robot_types and "" not in robot_types:
            check_type(log.map.robot_type, f"{log.map.file}: robot_type")
    total, done = sum(_size(log) for log in logs) or 1, 0
    losses: list[Loss] = []
    notes: list[str] = []
    segments: list[LogSegment] = []
    for log in logs:
        found = FileLosses(log.file)
        segments += _read(log, found, notes)
        losses += found.all()
        done += _size(log)
        tell(done / total)
    segments = [segment for segment in segments if len(segment.time_ns)]
    if not segments:
        raise RecordingError("nothing in the source can be used" + "".join(f"; {loss}" for loss in losses[:4]))
    return _assembled(_on_one_clock(segments, offsets or {}, notes), robot_types, tuple(losses), notes)


def _size(log: LogFile) -> int:
    try:
        return log.file.stat().st_size
    except OSError:
        return 0


def _read(log: LogFile, losses: FileLosses, notes: list[str]) -> list[LogSegment]:
    try:
        if isinstance(log.part, TextMap):
            table = read_text(log.file, log.part, losses)
            at = table.index(log.part.time.column)
            if at is None or not len(table):
                if len(table):
                    losses.add(f"the time column {log.part.time.column!r} is missing: nothing can be used")
                return []
            time = with_unit(table.columns[at], log.part.time, losses)
            if log.part.time.unit == AUTO:
                notes.append(f"{log.robot}: {log.file.name}: the stamps are taken as {time.unit}, by how far they step")
            tables, clock = [(table, to_ns(table.columns[at], time))], time.clock
        else:
            read = read_ulog if isinstance(log.part, UlogMap) else read_usd
            tables, clock = [(table, table.time_ns) for table in read(log.file, losses)], "boot"
    except OSError as error:
        losses.add(f"cannot be read: {error.strerror or error}")
        return []
    ordered = []
    for table, time_ns in tables:
        if time_ns is None:
            losses.add("no variable 'tick' is logged: the records have no time")
            continue
        keep = in_order(time_ns, table.places, losses)
        ordered.append((table.take(keep), time_ns[keep]))
    return _roles(log, ordered, clock, losses, notes)


def _roles(
    log: LogFile, tables: list[tuple[LogTable, np.ndarray]], clock: str, losses: FileLosses, notes: list[str]
) -> list[LogSegment]:
    """Return a segment for each role whose columns are all in one table."""
    segments = []
    for role, ways in log.part.roles.items():
        whole = [(way, table, time_ns) for way in ways for table, time_ns in tables if not missing_columns(way, table)]
        if not whole:
            if isinstance(log.part, TextMap) and tables and tables[0][0].count:
                absent = missing_columns(ways[0], tables[0][0])
                losses.add(f"{role}: the column {absent[0]!r} is missing: the role is left out")
            continue
        way, table, time_ns = whole[0]
        values, keep = values_of(role, way, table, losses)
        segments.append(LogSegment(log, role, way, clock, time_ns[keep], values))
        if role == "pose" and not set(ATTITUDE) & set(way.channels):
            notes.append(f"{log.robot}: {role}: {NO_ATTITUDE}")
        if any(channel.unit == PWM16 for channel in way.channels.values()):
            notes.append(f"{log.robot}: motors: thrust is the nominal curve of the PWM duty cycle, without the battery")
    if not segments and tables and not isinstance(log.part, TextMap):
        losses.add("logs none of the variables that the mapping names", (), ", ".join(tables[0][0].names[:4]))
    return segments


def _on_one_clock(segments: Sequence[LogSegment], offsets: Mapping[str, float], notes: list[str]) -> list[LogSegment]:
    """Return the segments on the clock with the time of day, or on the clock since boot without one.

    Raises:
        RecordingError: an offset names no robot.
    """
    robots = list(dict.fromkeys(segment.log.robot for segment in segments))
    unknown = sorted(set(offsets) - set(robots))
    if unknown:
        raise RecordingError(f"--offset {unknown[0]}: no such robot; there are {', '.join(sorted(robots))}")
    notes += [
        f"{robot}: put {'forward' if offset_s > 0 else 'back'} by {abs(offset_s):.3f} s, as given"
        for robot, offset_s in offsets.items()
    ]
    first = {
        clock: min(int(segment.time_ns[0]) for segment in segments if segment.clock == clock)
        for clock in {segment.clock for segment in segments}
    }
    aligned = _aligned_clocks(segments, notes) if len(first) > 1 else {}
    loose = sorted({segment.log.robot for segment in segments if segment.clock == "boot"} - set(aligned) - set(offsets))
    if len(loose) > 1:
        notes.append(
            f"{', '.join(loose)}: clocks since boot are treated as one, which is not checked; if they differ, give "
            f"the seconds to add: --offset {loose[-1]}=SECONDS"
        )
    if "unix" not in first:
        notes.append("the time of day is not known: the run begins at the stamp of the clock since boot")
    elif loose:
        notes.append(f"{', '.join(loose)}: clocks since boot are moved to begin with the others, which is not checked")
    moved = []
    for segment in segments:
        time_ns = segment.time_ns
        if segment.clock == "boot" and "unix" in first:
            clock = aligned.get(segment.log.robot)
            time_ns = clock.apply(time_ns) if clock else time_ns + (first["unix"] - first["boot"])
        moved.append(replace(segment, time_ns=time_ns + round(offsets.get(segment.log.robot, 0.0) * _NANO)))
    return moved


def _aligned_clocks(segments: Sequence[LogSegment], notes: list[str]) -> dict[str, BagClock]:
    """Return the clocks since boot, by robot, of robots whose motion is also in a log with the time of day."""
    found, nothing = {}, np.zeros(0, np.int64)
    for robot in sorted({segment.log.robot for segment in segments}):
        both = [
            ClockMarks(
                clock,
                nothing,
                nothing,
                {
                    robot: [
                        motion
                        for segment in segments
                        if (segment.log.robot, segment.clock) == (robot, clock)
                        and segment.role in _SEEN
                        and (motion := motion_of(segment.role, segment.time_ns / _NANO, segment.values))
                    ]
                },
            )
            for clock in ("boot", "unix")
        ]
        clock = between(*both)
        if clock is not None:
            found[robot] = clock
            notes.append(
                f"{robot}: its clock since boot is related to the time of day within "
                f"{1e3 * clock.within_s:.0f} ms (95 %), {clock.how}"
            )
    return found


def _assembled(
    segments: Sequence[LogSegment], robot_types: Mapping[str, str], losses: tuple[Loss, ...], notes: list[str]
) -> Imported:
    start_ns = min(int(segment.time_ns[0]) for segment in segments)
    by_series: dict[tuple[str, str], list[LogSegment]] = {}
    for segment in segments:
        by_series.setdefault((segment.log.robot, segment.role), []).append(segment)
    robots: dict[str, dict[str, Series]] = {}
    types, origins = {}, {}
    for (robot, role), found in sorted(by_series.items(), key=lambda item: item[0][0]):
        used = _agreed(robot, role, found, notes)
        time_ns = np.concatenate([segment.time_ns for segment in used])
        values = np.concatenate([segment.values for segment in used])
        frame = frame_of(role, used[0].way, robot)
        robots.setdefault(robot, {})[role] = Series((time_ns - start_ns) / _NANO, values, None, frame)
        types.setdefault(robot, robot_types.get(robot, robot_types.get("", used[0].log.map.robot_type)))
        origins.setdefault(robot, {})[role] = {
            "files": [segment.log.file.name for segment in used],
            "map": used[0].log.map.name,
            "clock": used[0].clock,
            "columns": {
                name: f"{channel.column}"
                + (f" [{channel.unit}]" if channel.unit else "")
                + (f" times {channel.scale:g}" if channel.scale != 1 else "")
                for name, channel in used[0].way.channels.items()
            },
            **({"velocity": used[0].way.velocity} if used[0].way.velocity else {}),
            **({"acceleration": used[0].way.acceleration} if role == "imu" else {}),
        }
    unknown = sorted(set(robot_types) - set(robots) - {""})
    if unknown:
        raise RecordingError(f"--robot-type: found the robot {unknown[0]!r}, expected one of {', '.join(robots)}")
    recording = Recording(
        {name: RobotRecording(name, types[name], series) for name, series in robots.items()},
        start_ns,
        None,
        {},
        not losses,
        tuple(str(loss) for loss in losses),
    )
    return Imported(recording, losses, tuple(dict.fromkeys(notes)), origins)


def _agreed(robot: str, role: str, segments: list[LogSegment], notes: list[str]) -> list[LogSegment]:
    """Return the segments of one series in order of time; a binary log replaces a text converted from it."""
    binary = [segment for segment in segments if not isinstance(segment.log.part, TextMap)]
    if binary and len(binary) < len(segments):
        other = next(segment for segment in segments if segment not in binary)
        notes.append(f"{robot}: series that are also in {other.log.file.name} are taken from {binary[0].log.file.name}")
        segments = binary
    segments = sorted(segments, key=lambda segment: int(segment.time_ns[0]))
    for one, other in pairwise(segments):
        if other.time_ns[0] < one.time_ns[-1]:
            raise RecordingError(
                f"{robot}: found {role} in {_path(one)} and in {_path(other)} at the same time; "
                "give the files of one run, or a mapping that separates the robots"
            )
        apart_s = float(other.time_ns[0] - one.time_ns[-1]) / _NANO
        if apart_s > _APART_S:
            raise RecordingError(
                f"{robot}: found {role} in {_path(one)} and, {apart_s:.0f} s later, in "
                f"{_path(other)}: these are two runs; give the files of one"
            )
    return segments


def _path(segment: LogSegment) -> str:
    """Return file name with folder name, as logs of several runs often have the same name."""
    return f"{segment.log.file.absolute().parent.name}/{segment.log.file.name}"
