"""Columns of numbers to and from serialised standard messages, vectorised over all samples."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from rosbags.interfaces import Nodetype
from rosbags.typesys import Stores, get_typestore
from rosbags.typesys.store import Typestore

from testudo_runs.bags.cdr import groups, walk
from testudo_runs.recording.recording import Role

NANO = 1_000_000_000
_STAMP = ("header.stamp.sec", "header.stamp.nanosec")
_MOTORS = ("m1", "m2", "m3", "m4")


@cache
def typestore() -> Typestore:
    """Return the standard message types."""
    return get_typestore(Stores.ROS2_KILTED)


class MessageLayout:
    """Serialised messages of one role with given frames: a template and the offsets of its numbers."""

    def __init__(self, role: Role, frame: str, child: str = "") -> None:
        """Serialise a message with `header.frame_id` and, where it has one, `child_frame_id`."""
        message = blank(role.type)
        message.header.frame_id = frame
        if hasattr(message, "child_frame_id"):
            message.child_frame_id = child
        if role.name == "motors":
            message.name, message.effort = list(_MOTORS), np.zeros(len(_MOTORS))
        if role.name == "imu":
            message.orientation_covariance[0] = -1.0  # marks a message without orientation
        data = bytes(typestore().serialize_cdr(message, role.type))
        layout = walk(typestore(), role.type, data)
        self._template = np.frombuffer(data, np.uint8)
        self._stamp = [layout.place(path)[0] for path in _STAMP]
        self._columns = [layout.place(path)[:2] for path in role.paths]

    def encode(self, stamp_ns: np.ndarray, values: np.ndarray) -> list[bytes]:
        """Return one serialised message for each stamp (T,) [ns of the epoch] and row of values (T, C)."""
        rows = np.tile(self._template, (len(stamp_ns), 1))
        for at, part in zip(self._stamp, np.divmod(stamp_ns, NANO), strict=True):
            rows[:, at : at + 4] = part.astype("<u4")[:, None].view(np.uint8)
        for k, (at, kind) in enumerate(self._columns):
            column = np.ascontiguousarray(values[:, k], f"<{kind}")
            rows[:, at : at + column.itemsize] = column[:, None].view(np.uint8)
        size, whole = len(self._template), rows.tobytes()
        return [whole[k : k + size] for k in range(0, len(whole), size)]


def decode(role: Role, messages: Sequence[bytes], damage: list[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray, str]:
    """Return stamps (T,) [ns], values (T, C), the indices (T,) of their messages, and the frame of the first one.

    ``damage`` collects unreadable messages as sentences.
    """
    frames: dict[int, str] = {}
    parts = [(np.zeros(0, np.int64), np.zeros((0, len(role.paths))), np.zeros(0, int))]
    for group in groups(typestore(), role.type, messages):
        try:
            seconds, rest = (group.column(path).astype(np.int64) for path in _STAMP)
            values = np.stack([group.column(path).astype(float) for path in role.paths], axis=1)
        except KeyError:  # a list without all of its numbers
            continue
        parts.append((seconds * NANO + rest, values, group.index))
        frames[int(group.index[0])] = group.layout.texts.get("header.frame_id", "")
    stamps, values, index = (np.concatenate([part[k] for part in parts]) for k in range(3))
    lost = np.setdiff1d(np.arange(len(messages)), index)
    damage += [f"{role.name}: message {k} of {len(messages)} cannot be decoded; left out" for k in lost]
    order = np.argsort(index)
    return stamps[order], values[order], index[order], frames[min(frames)] if frames else ""


def blank(name: str) -> Any:
    """Return a message of a standard type with every number zero and every text empty."""
    store = typestore()
    return store.types[name](**{field: _zero(node) for field, node in store.fielddefs[name][1]})


def _zero(node: Any) -> Any:
    kind, rest = node
    if kind == Nodetype.NAME:
        return blank(rest)
    if kind == Nodetype.BASE:
        return "" if rest[0] == "string" else False if rest[0] == "bool" else 0.0 if "float" in rest[0] else 0
    (inner, of), count = rest
    if inner == Nodetype.BASE and of[0] != "string":
        return np.zeros(count if kind == Nodetype.ARRAY else 0, of[0])
    return []
