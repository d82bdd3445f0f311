"""Reads and checks mapping files, which assign files, columns and topics of external recordings to robots and roles.

A mapping is YAML with the schema ``testudo/map/1`` and up to four sections: ``text`` for text and CSV logs, ``usd`` for
binary logs of the Crazyflie's SD card, ``ulog`` for logs of PX4, ``topics`` for bags.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal

from testudo_deploy.files.strict_yaml import parse_yaml, read_text
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_hardware.strict_files import OPTIONAL, read_as
from testudo_runs.importing.mapping.axes import REP103, Axes
from testudo_runs.recording.recording import (
    ANGLES,
    ATTITUDE,
    PACKED,
    PWM16,
    QUATERNION,
    ROLES,
    UNITS,
    needed_of,
    units_of,
)

SCHEMA = "testudo/map/1"
MAPS = Path(__file__).parent / "maps"
"""Folder of the mappings provided by Testudo."""
AUTO = "auto"
"""The unit of time is derived from the stamps."""
_NOT_IN_A_NAME = re.compile(r"[^a-z0-9_]+")
_FIELD = re.compile(r"\{(\w*)\}")
_DELIMITER = re.compile(r"[\t !#$%&*,/:;<=>?@^_|~]")
_FIELDS = ("robot", "run")
_LOGS = ("text", "usd", "ulog")


class MapError(TestudoError):
    """Invalid mapping file: the text gives file, key, found and expected."""


@dataclass(frozen=True)
class Channel:
    """Column of one channel."""

    column: int | str
    """Number from 1, or name in the header; variable name in a binary log; path in a message of a bag."""
    unit: str = field(default="", metadata=OPTIONAL)  # unit of the logged number; empty for SI
    scale: float = field(default=1.0, metadata=OPTIONAL)  # additional factor, such as -1 for an opposite axis


@dataclass(frozen=True)
class RoleMap:
    """Columns of one role."""

    channels: dict[str, Channel]
    """By channel of the role; `roll`, `pitch`, `yaw` or `packed` may replace the quaternion."""
    velocity: Literal["body", "world"] | None = field(default=None, metadata=OPTIONAL)
    """Frame of vx, vy, vz; None for that of the role. A command may be in the world."""
    acceleration: Literal["body", "world", "world_without_gravity"] = field(default="body", metadata=OPTIONAL)
    """Of an IMU: specific force in the body, or the same in the world (+9.81 upwards at rest), or without gravity."""
    axes: Axes = field(default=REP103, metadata=OPTIONAL)
    """Convention of the logged axes, see `axes.CONVENTIONS`; units and scales apply first."""


@dataclass(frozen=True)
class TimeMap:
    """Time column of a log."""

    column: int | str
    unit: Literal["s", "ms", "us", "ns", "auto"]
    """`auto`: the one of s, ms and us that gives 2 to 2,000 records per second."""
    clock: Literal["unix", "boot"]  # epoch: 1970, or power-on of the robot
    bits: int | None = field(default=None, metadata=OPTIONAL)  # width of a counter that wraps to zero


@dataclass(frozen=True)
class TextMap:
    """Text logs of one kind."""

    files: str
    """File name pattern with * and ?; `{robot}` and `{run}` match the parts that differ between robots and runs."""
    time: TimeMap
    roles: dict[str, tuple[RoleMap, ...]]  # by role; of several alternatives the first whose columns all exist
    delimiter: str = field(default="whitespace", metadata=OPTIONAL)  # `whitespace`, or one character
    decimal: Literal[".", ","] = field(default=".", metadata=OPTIONAL)  # sign before the fraction of a number
    comment: str = field(default="", metadata=OPTIONAL)  # prefix of comment lines
    header: Literal["none", "line", "comment"] = field(default="none", metadata=OPTIONAL)
    """Place of the column names: none, the first line, or the last comment before the numbers (without a comment, the
    first line)."""
    columns: int | None = field(default=None, metadata=OPTIONAL)
    """Numbers per line; None to take the count of the header or of the first line of numbers."""
    detect: str = field(default="", metadata=OPTIONAL)
    """Text in the header that identifies such files; empty for no automatic detection."""


@dataclass(frozen=True)
class BinaryMap:
    """Binary logs with variables by name and a time of their own."""

    files: str
    roles: dict[str, tuple[RoleMap, ...]]
    """By role; of several alternatives the first whose variables are all in one record."""


@dataclass(frozen=True)
class UsdMap(BinaryMap):
    """Binary logs of the Crazyflie's SD card."""


@dataclass(frozen=True)
class UlogMap(BinaryMap):
    """ULog files of PX4; a variable is `message.field`, such as `vehicle_odometry.q[0]`."""


@dataclass(frozen=True)
class MapFile:
    """Content of a mapping file."""

    schema: str
    name: str
    about: str
    robot_type: str = field(default="", metadata=OPTIONAL)
    """A registered robot or the path of a robot file; empty if given at import."""
    robot_name: str = field(default="{robot}", metadata=OPTIONAL)
    """Robot name, built from the text that matched `{robot}`."""
    text: tuple[TextMap, ...] = field(default=(), metadata=OPTIONAL)
    usd: tuple[UsdMap, ...] = field(default=(), metadata=OPTIONAL)
    ulog: tuple[UlogMap, ...] = field(default=(), metadata=OPTIONAL)
    topics: Any = field(default=None, metadata=OPTIONAL)  # parsed by `topic_mapping.parse_topics`


@dataclass(frozen=True)
class ReadMap(MapFile):
    """A mapping with its file and text."""

    file: str = ""
    raw: str = field(default="", repr=False)

    @property
    def logs(self) -> tuple["TextMap | BinaryMap", ...]:
        """Return the entries for files that are no bags."""
        return (*self.text, *self.usd, *self.ulog)


def shipped_maps() -> dict[str, Path]:
    """Return the files of the mappings provided by Testudo, by name."""
    return {file.stem: file for file in sorted(MAPS.glob("*.yaml"))}


def load_map(name_or_path: str | Path) -> ReadMap:
    """Read and check a mapping provided by Testudo, or in a .yaml file.

    Raises:
        MapError: no such mapping, or an invalid one.
    """
    known, file = shipped_maps(), Path(name_or_path)
    return _shipped(known[str(name_or_path)]) if str(name_or_path) in known else _load(file, known)


@cache
def _shipped(file: Path) -> ReadMap:
    return _load(file, ())


def _load(file: Path, known: Iterable[str]) -> ReadMap:
    if file.suffix not in (".yaml", ".yml"):
        raise MapError(
            f"--map: {str(file)!r} is not known; known are {', '.join(known)}, or give the path of a .yaml file"
        )
    return parse_map(read_text(file, "mapping file", MapError, "a mapping file"), str(file))


def parse_map(text: str, file: str) -> ReadMap:
    """Read the text of a mapping; ``file`` names it in errors.

    Raises:
        MapError: not YAML; an unknown, missing or repeated key; a wrong type; an unknown unit or channel.
    """
    tables = parse_yaml(text, file, MapError)
    if not isinstance(tables, Mapping):
        keys = f"schema, name, about and one of {', '.join(_LOGS)}, topics"
        raise MapError(f"{file}: found {tables!r:.60}, expected the keys {keys}")
    if tables.get("schema") != SCHEMA:
        raise MapError(f"{file}: schema: found {tables.get('schema')!r}, expected {SCHEMA!r}")
    tables = {**tables, **{key: _without_short_forms(tables[key]) for key in _LOGS if key in tables}}
    entry: MapFile = read_as(MapFile, tables, f"{file}: map", MapError)
    found = ReadMap(**{key.name: getattr(entry, key.name) for key in fields(entry)}, file=file, raw=text)
    if not (found.logs or found.topics):
        raise MapError(f"{file}: found none of {', '.join(_LOGS)} and topics, expected at least one")
    _check_pattern(found.robot_name, ("robot",), f"{file}: robot_name")
    for section in _LOGS:
        for index, part in enumerate(getattr(found, section)):
            _check_part(part, f"{file}: {section}[{index}]")
    return found


def _without_short_forms(parts: Any) -> Any:
    """Return a section without short forms: each role as a list of alternatives, each channel as a mapping."""
    if not isinstance(parts, list):
        return parts
    return [
        {**part, "roles": {role: _ways(ways) for role, ways in part["roles"].items()}}
        if isinstance(part, Mapping) and isinstance(part.get("roles"), Mapping)
        else part
        for part in parts
    ]


def _ways(ways: Any) -> Any:
    ways = ways if isinstance(ways, list) else [ways]
    return [
        {
            **way,
            "channels": whole_channels(way["channels"]),
        }
        if isinstance(way, Mapping) and isinstance(way.get("channels"), Mapping)
        else way
        for way in ways
    ]


def whole_channels(channels: Mapping[str, Any]) -> dict[str, Any]:
    """Return channels, of which one may be given by its column alone, each as a mapping."""
    return {name: {"column": one} if type(one) in (int, str) else one for name, one in channels.items()}


def _check_text(part: TextMap, where: str) -> None:
    _check_column(part.time.column, part, f"{where}.time.column")
    if part.time.bits is not None and not 8 <= part.time.bits <= 64:
        raise MapError(f"{where}.time.bits: found {part.time.bits}, expected 8 to 64")
    if part.delimiter != "whitespace" and not _DELIMITER.fullmatch(part.delimiter):
        raise MapError(
            f"{where}.delimiter: found {part.delimiter!r}, expected 'whitespace' or one character, "
            "such as ',', ';', '|' or a tab"
        )
    if part.decimal == part.delimiter:
        raise MapError(f"{where}.decimal: found ',', which is the delimiter, too; expected another delimiter")
    if part.columns is not None and part.columns < 1:
        raise MapError(f"{where}.columns: found {part.columns}, expected at least 1")
    if part.header == "comment" and not part.comment:
        raise MapError(f"{where}.comment: missing; expected the sign of the comment that holds the header")


def _check_part(part: TextMap | BinaryMap, where: str) -> None:
    _check_pattern(part.files, _FIELDS, f"{where}.files")
    if isinstance(part, TextMap):
        _check_text(part, where)
    if not part.roles:
        raise MapError(f"{where}.roles: found none, expected some of {', '.join(ROLES)}")
    for role, ways in part.roles.items():
        if role not in ROLES:
            raise MapError(f"{where}.roles.{role}: unknown role; known are {', '.join(ROLES)}")
        for index, way in enumerate(ways):
            _check_way(role, way, part, f"{where}.roles.{role}" + (f"[{index}]" if len(ways) > 1 else ""))


def _check_way(role: str, way: RoleMap, part: TextMap | BinaryMap, where: str) -> None:
    units = units_of(role)
    for name, channel in way.channels.items():
        here = f"{where}.channels.{name}"
        if name not in units:
            raise MapError(f"{here}: unknown channel; a {role} has {', '.join(units)}")
        check_unit(role, name, channel, here)
        _check_column(channel.column, part, f"{here}.column")
    missing = [name for name in needed_of(role) if name not in way.channels]
    if missing:
        raise MapError(f"{where}.channels.{missing[0]}: missing; a {role} has {', '.join(units)}")
    # refuse an incomplete quaternion, two attitudes, and a rotated frame without an attitude
    given = [name for name in ATTITUDE if name in way.channels]
    kinds = [kind for kind in (QUATERNION, ANGLES, (PACKED,)) if set(kind) & set(given)]
    if len(kinds) > 1 or (kinds == [QUATERNION] and len(given) < len(QUATERNION)):
        raise MapError(
            f"{where}.channels: found {', '.join(given)}, expected all of {', '.join(QUATERNION)}, or some "
            f"of {', '.join(ANGLES)}, or {PACKED}"
        )
    native = {"odometry": "body", "setpoint": "world", "command": "body"}.get(role)
    if way.velocity is not None and native is None:
        raise MapError(f"{where}.velocity: found {way.velocity!r}, but a {role} has none")
    if role != "imu" and way.acceleration != "body":
        raise MapError(f"{where}.acceleration: found {way.acceleration!r}, but a {role} has none")
    turned = role in ("odometry", "setpoint") and way.velocity not in (None, native)
    if not given and (role in ("pose", "odometry") or turned or (role == "imu" and way.acceleration != "body")):
        raise MapError(
            f"{where}.channels: no attitude; expected {', '.join(QUATERNION)}, or some of "
            f"{', '.join(ANGLES)}, or {PACKED}"
        )


def check_unit(role: str, name: str, channel: Channel, where: str) -> None:
    """Refuse a unit that a channel of a role cannot have.

    Raises:
        MapError: unknown unit; ``where`` names the entry.
    """
    known = (*UNITS[units_of(role)[name]], *((PWM16,) if role == "motors" else ()))
    if channel.unit and channel.unit not in known:
        raise MapError(f"{where}.unit: found {channel.unit!r}, expected one of {', '.join(known)}")


def _check_column(column: int | str, part: TextMap | BinaryMap, where: str) -> None:
    names = isinstance(part, BinaryMap) or part.header != "none"
    if isinstance(column, str) and not names:
        raise MapError(f"{where}: found the name {column!r}, but `header: none` has no names; expected a number from 1")
    if isinstance(column, int) and (column < 1 or isinstance(part, BinaryMap)):
        raise MapError(
            f"{where}: found {column}, expected "
            + ("the name of a variable" if isinstance(part, BinaryMap) else "a number from 1")
        )


def _check_pattern(pattern: str, known: tuple[str, ...], where: str) -> None:
    found = _FIELD.findall(pattern)
    if not pattern or set(found) - set(known) or len(found) != len(set(found)):
        raise MapError(
            f"{where}: found {pattern!r}, expected a name in which "
            f"{' and '.join('{' + name + '}' for name in known)} may occur once"
        )


def check_type(kind: str, where: str) -> None:
    """Refuse a robot type that is neither registered nor a robot file; an empty one passes.

    Raises:
        MapError: unknown type; ``where`` names the key.
    """
    try:
        if kind:
            load_robot(kind)
    except TestudoError as error:
        raise MapError(f"{where}: {error}") from error


def plain_name(text: str) -> str:
    """Return a valid robot name: lower-case letters, digits and _, a letter first."""
    name = _NOT_IN_A_NAME.sub("_", text.lower()).strip("_")
    return name if name[:1].isalpha() else f"r{name}"
