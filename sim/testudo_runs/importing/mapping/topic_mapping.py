"""The section `topics` of a mapping file: what the topics of a bag mean.

Each entry says which role of which robot a topic holds::

    topics:
      - {topic: /r0/odom, robot: r0, role: odometry}
      - {topic: /tf, robot: r0, role: pose, parent: map, child: r0/base_link}
      - {topic: /cmd_vel, bag: r0, robot: r0, role: command, frame: body}
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import yaml

from testudo_hardware.files.strict_json import OPTIONAL, read_as
from testudo_runs.bags.bag_contents import BagError
from testudo_runs.importing.mapping.channels import ANGLES, QUATERNION, needed_of
from testudo_runs.importing.mapping.mapping_file import MapError, ReadMap
from testudo_runs.recording.roles import ROLES

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


@dataclass(frozen=True, eq=False)
class TopicMap:
    """What one topic holds of one robot."""

    topic: str
    robot: str
    role: str
    bag: str = field(default="", metadata=OPTIONAL)
    """Of several bags the one that is meant: its folder or file without the ending; empty for every one."""
    parent: str = field(default="", metadata=OPTIONAL)
    """Of transforms: the frame in which the pose is wanted; empty for the root of their tree."""
    child: str = field(default="", metadata=OPTIONAL)
    """Of transforms the frame, of named poses the name that is this robot."""
    frame: Literal["", "body", "world"] = field(default="", metadata=OPTIONAL)
    """Of a command: empty for what the message says, the body if it says nothing."""
    stamp: Literal["message", "record"] = field(default="message", metadata=OPTIONAL)
    """Whose time counts: that of the header, or when it was recorded."""
    fields: dict[str, str] = field(default_factory=dict, metadata=OPTIONAL)
    """For a message of another type: where each channel stands in it, such as `m1: motors.thrust[0]`, in SI units;
    `roll pitch yaw` may stand for the quaternion; `stamp` names its time."""
    robot_type: str = field(default="", metadata=OPTIONAL)
    """A registered robot or the path of a robot file, where robots differ; else that of the whole mapping."""


def parse_topics(found: ReadMap) -> tuple[TopicMap, ...]:
    """Return the entries of the section `topics` of a mapping.

    Raises:
        MapError: an entry does not hold.
        BagError: the mapping has no such section.
    """
    if not found.topics:
        raise BagError(f"{found.file}: topics: missing; a bag needs this section: `testudo inspect BAG` proposes one")
    where = f"{found.file}: topics"
    if not isinstance(found.topics, list):
        raise MapError(f"{where}: found {found.topics!r:.60}, expected a list of entries with topic, robot and role")
    entries = read_as(tuple[TopicMap, ...], found.topics, where, MapError)
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


def topics_text(
    name: str, about: str, robot_type: str, entries: Sequence[TopicMap], why: Mapping[TopicMap, str] | None = None
) -> str:
    """Return a mapping file that holds these entries, each with a comment on it."""
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
    """Refuse channels that the role has not, and a role without those that it needs: they would be zero."""
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
    missing = [name for name in needed_of(entry.role) if name not in entry.fields]
    if missing:
        raise MapError(f"{where}.fields: {missing[0]} is missing; a {entry.role} has no sense without it")
