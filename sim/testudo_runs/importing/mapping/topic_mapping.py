"""The section `topics` of a mapping file: the robot and role of each topic of a bag.

Example::

    topics:
      - {topic: /r0/odom, robot: r0, role: odometry}
      - {topic: /tf, robot: r0, role: pose, parent: map, child: r0/base_link}
      - {topic: /cmd_vel, bag: r0, robot: r0, role: command, frame: body}
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import yaml

from testudo_hardware.strict_files import OPTIONAL, read_as
from testudo_runs.bags.bag_contents import BagError
from testudo_runs.importing.mapping.axes import REP103, Axes
from testudo_runs.importing.mapping.mapping_file import Channel, MapError, ReadMap, check_unit, whole_channels
from testudo_runs.recording.recording import ANGLES, QUATERNION, ROLES, TIME_UNITS, needed_of

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


@dataclass(frozen=True, eq=False)
class TopicMap:
    """One topic as one role of one robot."""

    topic: str
    robot: str
    role: str
    bag: str = field(default="", metadata=OPTIONAL)
    """Name of the bag among several: folder, or file without suffix; empty for all."""
    parent: str = field(default="", metadata=OPTIONAL)
    """For transforms: reference frame of the pose; empty for the root of the tree."""
    child: str = field(default="", metadata=OPTIONAL)
    """For transforms the frame, for named poses the name of this robot."""
    frame: Literal["", "body", "world"] = field(default="", metadata=OPTIONAL)
    """Frame of a command; empty for the frame in the message, or body if it has none."""
    stamp: Literal["message", "record"] = field(default="message", metadata=OPTIONAL)
    """Time source: header stamp, or time of recording."""
    axes: Axes = field(default=REP103, metadata=OPTIONAL)
    """Convention of the axes in the messages, see `axes.CONVENTIONS`."""
    fields: dict[str, Channel] = field(default_factory=dict, metadata=OPTIONAL)
    """For other message types or units: path of each channel, such as `m1: motors.thrust[0]`, or
    `yaw: {column: heading, unit: deg, scale: -1}`; `roll pitch yaw` may replace the quaternion; `stamp` is the path of
    the time, of a `Time` or of one number, with its unit s, ms, us or ns."""
    robot_type: str = field(default="", metadata=OPTIONAL)
    """A registered robot or the path of a robot file; empty for the type of the whole mapping."""


def parse_topics(found: ReadMap) -> tuple[TopicMap, ...]:
    """Return the entries of the section `topics` of a mapping.

    Raises:
        MapError: invalid entry.
        BagError: the mapping has no such section.
    """
    if not found.topics:
        raise BagError(f"{found.file}: topics: missing; a bag needs this section: `testudo inspect BAG` proposes one")
    where = f"{found.file}: topics"
    if not isinstance(found.topics, list):
        raise MapError(f"{where}: found {found.topics!r:.60}, expected a list of entries with topic, robot and role")
    entries = read_as(tuple[TopicMap, ...], [_whole(entry) for entry in found.topics], where, MapError)
    for index, entry in enumerate(entries):
        _check(entry, f"{where}[{index}]")
    for index, entry in enumerate(entries):
        for other in entries[:index]:
            if (entry.robot, entry.role) == (other.robot, other.role) and (
                entry.bag == other.bag or not (entry.bag and other.bag)
            ):
                raise MapError(
                    f"{where}[{index}]: {entry.robot} has its {entry.role} from {other.topic} already; "
                    "expected each role of a robot once in each bag"
                )
    return entries


def _whole(entry: Any) -> Any:
    """Return an entry in which each field is a mapping."""
    if isinstance(entry, Mapping) and isinstance(entry.get("fields"), Mapping):
        return {**entry, "fields": whole_channels(entry["fields"])}
    return entry


def topics_text(
    name: str, about: str, robot_type: str, entries: Sequence[TopicMap], why: Mapping[TopicMap, str] | None = None
) -> str:
    """Return the text of a mapping file with these entries, each with its reason from ``why`` as a comment."""
    head = {"schema": "testudo/map/1", "name": name, "about": about}
    lines = [
        yaml.safe_dump(head | ({"robot_type": robot_type} if robot_type else {}), sort_keys=False, width=1000),
        "topics:\n",
    ]
    defaults = TopicMap("", "", "")
    for entry in entries:
        given: dict[str, Any] = {
            key: value
            for key, value in asdict(entry).items()
            if key in ("topic", "robot", "role") or value != getattr(defaults, key)
        }
        if entry.fields:
            plain = Channel("")
            given["fields"] = {
                name: one.column if (one.unit, one.scale) == (plain.unit, plain.scale) else asdict(one)
                for name, one in entry.fields.items()
            }
        text = yaml.safe_dump(given, sort_keys=False, default_flow_style=True, width=1000).strip()
        reason = (why or {}).get(entry)
        lines += [f"  # {reason}\n"] if reason else []
        lines.append(f"  - {text}\n")
    return "".join(lines)


def _check(entry: TopicMap, where: str) -> None:
    if entry.role not in ROLES:
        raise MapError(f"{where}.role: found {entry.role!r}, expected one of {', '.join(ROLES)}")
    if not _NAME.fullmatch(entry.robot):
        raise MapError(f"{where}.robot: found {entry.robot!r}, expected letters, digits and _, a letter first")
    if not entry.topic:
        raise MapError(f"{where}.topic: found an empty name, expected one such as /{entry.robot}/odom")
    if entry.frame and entry.role != "command":
        raise MapError(
            f"{where}.frame: found {entry.frame!r}, but only a command has one; a {entry.role} is "
            f"{ROLES[entry.role].sense}"
        )
    if entry.fields:
        _check_fields(entry, where)


def _check_fields(entry: TopicMap, where: str) -> None:
    # refuse unknown channels, and a role without its required channels, which would be zero
    channels = ROLES[entry.role].channels
    angles = ANGLES if set(QUATERNION) <= set(channels) else ()
    unknown = set(entry.fields) - {*channels, *angles, "stamp"}
    if unknown:
        raise MapError(
            f"{where}.fields.{min(unknown)}: unknown channel; a {entry.role} has "
            f"{', '.join((*channels, *angles))}, and stamp"
        )
    named = [name for name in (*QUATERNION, *ANGLES) if name in entry.fields]
    if set(named) & set(QUATERNION) and set(named) & set(ANGLES):
        raise MapError(f"{where}.fields: found {', '.join(named)}, expected those of a quaternion or angles")
    for name, channel in entry.fields.items():
        here = f"{where}.fields.{name}"
        if not isinstance(channel.column, str):
            raise MapError(f"{here}.column: found {channel.column!r}, expected a path such as `pose.position.x`")
        if name != "stamp":
            check_unit(entry.role, name, channel, here)
        elif channel.unit and channel.unit not in TIME_UNITS:
            raise MapError(f"{here}.unit: found {channel.unit!r}, expected one of {', '.join(TIME_UNITS)}")
    missing = [name for name in needed_of(entry.role) if name not in entry.fields]
    if missing:
        raise MapError(f"{where}.fields: {missing[0]} is missing; a {entry.role} needs it")
