"""Decodes the messages of one topic to samples of a role."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from testudo_hardware.links.wire import WORLD_FRAME, body_frame
from testudo_runs.bags.bag_contents import NANO, BagError, BagMessage, BagTopic
from testudo_runs.bags.cdr import CdrGroup, Types, groups
from testudo_runs.importing.mapping.column_conversion import from_angles, in_si
from testudo_runs.importing.mapping.mapping_file import Channel
from testudo_runs.importing.mapping.topic_mapping import TopicMap
from testudo_runs.recording.recording import ANGLES, QUATERNION, ROLES, TIME_UNITS

TF = "tf2_msgs/msg/TFMessage"
NAMED_POSES = "NamedPoseArray"
_MOTORS = ("m1", "m2", "m3", "m4")
_HEADER = "header"
_WORLD_FRAMES = ("world", "map", "odom", "earth")


@dataclass(frozen=True)
class StandardType:
    """Paths of the parts of a standard message; None for a part that it lacks."""

    header: str | None
    pose: str | None = None  # path of position and orientation, empty for the message itself
    position: tuple[str, str] = ("position", "orientation")
    twist: str | None = None


STANDARD: Mapping[str, StandardType] = {
    "nav_msgs/msg/Odometry": StandardType(_HEADER, "pose.pose", twist="twist.twist"),
    "geometry_msgs/msg/PoseStamped": StandardType(_HEADER, "pose"),
    "geometry_msgs/msg/PoseWithCovarianceStamped": StandardType(_HEADER, "pose.pose"),
    "geometry_msgs/msg/Pose": StandardType(None, ""),
    "geometry_msgs/msg/TransformStamped": StandardType(_HEADER, "transform", ("translation", "rotation")),
    "geometry_msgs/msg/Twist": StandardType(None, twist=""),
    "geometry_msgs/msg/TwistStamped": StandardType(_HEADER, twist="twist"),
    "sensor_msgs/msg/Imu": StandardType(_HEADER),
    "sensor_msgs/msg/JointState": StandardType(_HEADER),
    "sensor_msgs/msg/BatteryState": StandardType(_HEADER),
}
"""By message type."""


@dataclass(frozen=True)
class TopicSamples:
    """Samples of a topic in the order of their times."""

    stamp_ns: np.ndarray  # (T,) header stamps [ns], or times of recording without them
    log_ns: np.ndarray  # (T,) times of recording [ns]
    values: np.ndarray  # (T, C) in the order of `ROLES`
    frame: str
    has_stamp: bool  # whether the stamps are from headers
    ahead_ns: int = 0  # shift [ns] of the stamps to the clock of the recorder

    def __len__(self) -> int:
        return len(self.stamp_ns)


def frame_of(entry: TopicMap, samples: TopicSamples) -> str:
    """Return the frame of the samples of an entry: for a command that of its velocities."""
    if entry.role != "command":
        return samples.frame or WORLD_FRAME
    if entry.frame:
        return WORLD_FRAME if entry.frame == "world" else body_frame(entry.robot)
    return WORLD_FRAME if samples.frame in _WORLD_FRAMES else body_frame(entry.robot)


def roles_of(kind: str) -> tuple[str, ...]:
    """Return the possible roles of a message type, the most likely first."""
    if kind == TF or is_named_poses(kind):
        return ("pose", "setpoint")
    part = STANDARD.get(kind)
    if part is None:
        return ()
    found = {
        "sensor_msgs/msg/Imu": ("imu",),
        "sensor_msgs/msg/JointState": ("motors",),
        "sensor_msgs/msg/BatteryState": ("battery",),
    }.get(kind)
    if found:
        return found
    if part.pose is not None and part.twist is not None:
        return ("odometry", "pose", "setpoint", "command")
    return ("pose", "setpoint") if part.pose is not None else ("command",)


def is_named_poses(kind: str) -> bool:
    """Return whether a type is a list of named poses of motion capture."""
    return kind.rpartition("/")[2] == NAMED_POSES


def read_samples(
    topic: BagTopic, messages: Sequence[BagMessage], entry: TopicMap, types: Types, lost: list[str]
) -> TopicSamples:
    """Return the series of one topic; ``lost`` collects a sentence for each loss. For transforms see `read_links`.

    Raises:
        BagError: unknown type, or a type that cannot have the role.
    """
    store = types.store(topic)
    if not entry.fields and entry.role not in roles_of(topic.type):
        can = ", ".join(roles_of(topic.type))
        raise BagError(
            f"{topic.name}: a {topic.type} cannot be the {entry.role} of {entry.robot}; "
            + (f"it can be: {can}" if can else "name where its channels stand with `fields`")
        )
    log = np.array([message.log_ns for message in messages], np.int64)
    parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    frame, has_stamp, without = "", True, 0
    for group in groups(store, topic.type, [message.data for message in messages]):
        try:
            made = _values(topic.type, entry, group)
        except KeyError as error:
            if entry.fields:
                raise BagError(
                    f"{topic.name}: its messages have no number {error.args[0]!r}, which `fields` names; "
                    f"there are {', '.join(list(group.layout.numbers)[:12])}"
                ) from error
            without += len(group.index)
            continue
        if made is None:  # the message does not contain the named body
            continue
        values, stamp = made
        has_stamp = has_stamp and stamp is not None
        frame = frame or group.layout.texts.get(f"{_HEADER}.frame_id", "")
        parts.append((group.index, values, log[group.index] if stamp is None else stamp))
    index = np.concatenate([part[0] for part in parts]) if parts else np.zeros(0, int)
    unreadable = len(messages) - without - len(index)
    if unreadable and not is_named_poses(topic.type):
        lost.append(f"{topic.name}: {unreadable} of {len(messages)} messages cannot be decoded; left out")
    if without:
        lost.append(f"{topic.name}: {without} of {len(messages)} messages hold no {entry.role}; left out")
    if not parts:
        return TopicSamples(log[:0], log[:0], np.zeros((0, len(ROLES[entry.role].channels))), frame, has_stamp)
    order = np.argsort(index, kind="stable")
    values, stamp = (np.concatenate([part[k] for part in parts])[order] for k in (1, 2))
    return TopicSamples(stamp, log[index[order]], values, frame, has_stamp)


def _values(kind: str, entry: TopicMap, group: CdrGroup) -> tuple[np.ndarray, np.ndarray | None] | None:
    """Return values (T, C) and stamps (T,) [ns] of messages of one layout, None for no stamps.

    Raises:
        KeyError: a number is missing.
    """
    role = ROLES[entry.role]
    if entry.fields:
        stamp = _field_stamp(group, entry.fields["stamp"]) if "stamp" in entry.fields else _header_stamp(group)
        values = _fields(group, entry, role.channels)
        if set(QUATERNION) <= set(role.channels) and not set(QUATERNION) & set(entry.fields):
            at = [role.channels.index(name) for name in QUATERNION]  # level with heading 0 without an attitude
            values[:, at] = from_angles(*_fields(group, entry, ANGLES).T)
        return values, stamp
    if is_named_poses(kind):
        where = next(
            (path for path, text in group.layout.texts.items() if path.endswith(".name") and text == entry.child), None
        )
        if where is None:
            return None
        base = where.removesuffix(".name") + ".pose"
        return _table(group, _filled(_pose(base, ("position", "orientation")), role.channels)), _header_stamp(group)
    part = STANDARD[kind]
    stamp = None if part.header is None else _header_stamp(group)
    if entry.role == "motors":  # thrusts by the names m1 to m4 if given, else the first four
        names = {text: path for path, text in group.layout.texts.items() if path.startswith("name[")}
        named = [f"effort[{names[name].removeprefix('name[')}" for name in _MOTORS if name in names]
        return _table(group, named if len(named) == len(_MOTORS) else role.paths), stamp
    if entry.role in ("imu", "battery"):
        return _table(group, role.paths), stamp
    paths: list[str] = []
    if entry.role != "command":
        paths += _pose(part.pose or "", part.position)
    if entry.role != "pose" and part.twist is not None:
        paths += [_joined(part.twist, f"{half}.{axis}") for half in ("linear", "angular") for axis in "xyz"]
    return _table(group, _filled(paths, role.channels)), stamp


def _fields(group: CdrGroup, entry: TopicMap, channels: Sequence[str]) -> np.ndarray:
    """Return channels (T, C) from the fields that the mapping names, in SI units; zero without a field."""
    found = np.zeros((len(group.index), len(channels)))
    for k, name in enumerate(channels):
        if name in entry.fields:
            column = group.column(str(entry.fields[name].column)).astype(float)
            found[:, k] = in_si(entry.role, name, entry.fields[name], column)
    return found


def _table(group: CdrGroup, paths: Sequence[str | None]) -> np.ndarray:
    nothing = np.zeros(len(group.index))
    return np.stack([nothing if path is None else group.column(path).astype(float) for path in paths], axis=1)


def _filled(paths: Sequence[str], channels: Sequence[str]) -> list[str | None]:
    return [*paths, *[None] * (len(channels) - len(paths))]


def _pose(base: str, names: tuple[str, str]) -> list[str]:
    axes = [*(f"{names[0]}.{axis}" for axis in "xyz"), *(f"{names[1]}.{axis}" for axis in "xyzw")]
    return [_joined(base, axis) for axis in axes]


def _joined(base: str, rest: str) -> str:
    return f"{base}.{rest}" if base else rest


def _header_stamp(group: CdrGroup) -> np.ndarray | None:
    return _stamp(group, f"{_HEADER}.stamp") if f"{_HEADER}.stamp.sec" in group.layout.numbers else None


def _stamp(group: CdrGroup, path: str) -> np.ndarray:
    seconds, rest = (group.column(f"{path}.{part}").astype(np.int64) for part in ("sec", "nanosec"))
    return seconds * NANO + rest


def _field_stamp(group: CdrGroup, channel: Channel) -> np.ndarray:
    """Return the stamps (T,) [ns] of a `Time`, or of a number in the unit that the mapping names.

    Raises:
        KeyError: neither is there.
        BagError: an integer without a unit.
    """
    path = str(channel.column)
    if f"{path}.sec" in group.layout.numbers:
        return _stamp(group, path)
    number = group.column(path)
    if np.issubdtype(number.dtype, np.integer):
        if not channel.unit:
            raise BagError(f"fields.stamp: {path} is an integer; expected its unit, one of {', '.join(TIME_UNITS)}")
        return number.astype(np.int64) * TIME_UNITS[channel.unit]
    factor = TIME_UNITS[channel.unit or "s"]
    sound = np.isfinite(number)
    whole = np.floor(np.where(sound, number, 0.0))
    rest = np.where(sound, number, 0.0) - whole
    return whole.astype(np.int64) * factor + np.rint(rest * factor).astype(np.int64)


def texts_of(group: CdrGroup, ending: str) -> list[Any]:
    """Return path and text of the texts of a layout whose path has this ending."""
    return [(path, text) for path, text in group.layout.texts.items() if path.endswith(ending)]
