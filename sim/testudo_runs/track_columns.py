"""Commands and odometry of a track from the columns of many serialised messages at once.

Messages of equal length and frames have their numbers at the same places. Where one message differs in any way from
what is expected, the caller reads all of its topic one by one, and says what is wrong: nothing is judged here.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rosbags.typesys.store import Typestore

from testudo_hardware.frames import turned, yaw_from_quaternion_xyzw
from testudo_hardware.links.link_profile import ODOMETRY, TWIST_STAMPED
from testudo_hardware.schema import DIFFERENTIAL_DRIVE, VELOCITY_POINT
from testudo_hardware.spec import RobotSpec
from testudo_runs.bags.cdr import CdrGroup, groups

_NANO = 1_000_000_000
_STAMP = ("header.stamp.sec", "header.stamp.nanosec")
_PADDING = 3  # bytes that may stand behind a message


@dataclass(frozen=True)
class ColumnReader:
    """Reads messages of one type and robot; results are those of `testudo_hardware.links.wire`, number by number."""

    store: Typestore
    spec: RobotSpec
    frames: tuple[str, ...]  # of the header, and of the body in odometry

    def commands(self, messages: Sequence[bytes]) -> np.ndarray | None:
        """Return stamp, command (D,) and yaw rate of each `geometry_msgs/TwistStamped`; None if one is odd."""
        flies = self.spec.kind == VELOCITY_POINT
        paths = (*_velocities(self.spec, "twist"), *(("twist.angular.z",) if flies else ()))
        found = self._rows(TWIST_STAMPED, messages, paths)
        return found if flies or found is None else np.column_stack([found, np.zeros(len(found))])

    def odometry(self, messages: Sequence[bytes], *, with_turns: bool) -> np.ndarray | None:
        """Return stamp, position (D,), yaw and velocity (D,) of each `nav_msgs/Odometry`; None if one is odd.

        ``with_turns`` adds the quaternion (x, y, z, w).
        """
        size = self.spec.dimension
        places = (f"pose.pose.position.{axis}" for axis in "xyz"[:size])
        turned_by = (f"pose.pose.orientation.{axis}" for axis in "xyzw")
        found = self._rows(ODOMETRY, messages, (*places, *_velocities(self.spec, "twist.twist"), *turned_by))
        if found is None:
            return None
        end, last = 1 + size, 1 + 2 * size
        velocity, turns = found[:, end:last], found[:, last:]
        try:  # number by number: functions of NumPy differ in the last digit
            yaws = [yaw_from_quaternion_xyzw(*turn) for turn in turns.tolist()]
        except ValueError:
            return None
        if self.spec.kind != DIFFERENTIAL_DRIVE:
            rows = [turned(row, yaw) for row, yaw in zip(velocity.tolist(), yaws, strict=True)]
            velocity = np.array(rows, float).reshape(len(rows), size)
        return np.column_stack([found[:, :end], yaws, velocity, *([turns] if with_turns else [])])

    def _rows(self, kind: str, messages: Sequence[bytes], paths: Sequence[str]) -> np.ndarray | None:
        """Return stamp and numbers (M, ...) of each message; None if one is not as expected."""
        table, read = np.empty((len(messages), 1 + len(paths))), 0
        for group in groups(self.store, kind, messages):
            if not self._is_expected(group):
                return None
            seconds, nanoseconds = (group.column(path) for path in _STAMP)
            table[group.index, 0] = seconds + nanoseconds / _NANO
            for k, path in enumerate(paths):
                table[group.index, 1 + k] = group.column(path)
            read += len(group.index)
        return table if read == len(messages) else None

    def _is_expected(self, group: CdrGroup) -> bool:
        """Return whether messages are in the frames, byte by byte, and end with their last number."""
        layout, first = group.layout, group.rows[0].tobytes()
        names = ("header.frame_id", "child_frame_id")
        expected = [text.encode() + b"\0" for text in self.frames]
        texts = [first[begin:end] for begin, end in layout.fixed if first[begin:end] in expected]
        last = max(at + np.dtype(kind).itemsize * count for at, kind, count in layout.numbers.values())
        right = layout.texts == dict(zip(names, self.frames, strict=False)) and texts == expected
        return right and len(first) - last <= _PADDING


def _velocities(spec: RobotSpec, twist: str) -> tuple[str, ...]:
    """Return the paths of the velocity (D,) of a robot."""
    if spec.kind == DIFFERENTIAL_DRIVE:
        return f"{twist}.linear.x", f"{twist}.angular.z"
    return tuple(f"{twist}.linear.{axis}" for axis in "xyz"[: spec.dimension])
