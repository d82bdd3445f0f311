"""Third link of a command's way: what the driver applied is a command that it received, within the robot's limits."""

from collections.abc import Sequence

import numpy as np

from testudo_analysis.replay.link_findings import SAME_COMMAND, SAME_STAMP_S, LinkFindings
from testudo_hardware.motion import motion_model
from testudo_hardware.schema import VELOCITY_POINT
from testudo_hardware.spec import RobotSpec
from testudo_runs.tracks import CommandTrack

_SLACK_S = 0.05  # a command reaches the driver, and its application the recorder, this much later


def check_driver(
    findings: LinkFindings,
    spec: RobotSpec,
    sent: CommandTrack,
    applied: CommandTrack,
    unknown: Sequence[tuple[float, float]] = (),
) -> None:
    """Compare the applied commands of a ground robot with the sent ones; a drone's firmware has its own set-points.

    In real time messages may be lost on their way to the recorder: then there are times [s] of ``unknown`` decisions,
    and ``sent`` contains what was decided beside what was recorded.
    """
    lock_step = not unknown
    if lock_step:  # in real time a command acts a moment before it is known to
        findings.check_order("driver", "applied_cmd_vel", applied)
    if spec.kind == VELOCITY_POINT or not len(sent.stamp_s):
        return
    model = motion_model(spec)
    stamps, first = np.unique(sent.stamp_s, return_index=True)  # of equal stamps the driver takes the first
    if not lock_step:
        stamps, first = sent.stamp_s, np.arange(len(sent.stamp_s))
    limited = np.array([model.limit_command(command) for command in sent.command[first]])
    oldest_s = spec.dead_man_s + spec.command_delay_s + _SLACK_S
    last = -1
    order = np.argsort(applied.received_s, kind="stable")
    for stamp_s, command in zip(applied.stamp_s[order].tolist(), applied.command[order], strict=True):
        findings.compared["driver"] += 1
        begin = int(np.searchsorted(stamps, stamp_s - oldest_s))
        end = int(np.searchsorted(stamps, stamp_s + SAME_STAMP_S))
        same = begin + np.flatnonzero(np.max(np.abs(limited[begin:end] - command), axis=1, initial=0.0) <= SAME_COMMAND)
        later = same[same >= last]
        if len(later):
            row = int(later[0])
            if lock_step and row > last + 1 and last >= 0 and _moves(limited[last + 1 : row], limited[last]):
                text = f"applied_cmd_vel skips the command of {stamps[last + 1]:.3f} s"
                findings.add("driver", "missing", stamp_s, text)
            last = row
        elif len(same) or any(first_s <= stamp_s and stamp_s - oldest_s <= end_s for first_s, end_s in unknown):
            if not lock_step:
                continue
            findings.add("driver", "moved", stamp_s, "applied_cmd_vel goes back to an earlier command of cmd_vel")
        elif np.any(command):
            findings.add("driver", "changed", stamp_s, "applied_cmd_vel is no command of cmd_vel within the limits")
        elif _is_fed(stamps, stamp_s, spec):
            findings.add("driver", "changed", stamp_s, "applied_cmd_vel is zero, though cmd_vel was not silent")


def _moves(skipped: np.ndarray, last: np.ndarray) -> bool:
    """Return whether a skipped command differs from the one before, so that its application must show."""
    return bool(np.any(np.abs(skipped - last) > SAME_COMMAND))


def _is_fed(stamps: np.ndarray, stamp_s: float, spec: RobotSpec) -> bool:
    """Return whether a command was recorded at every moment at which the driver could have become silent."""
    near = stamps[(stamps > stamp_s - spec.dead_man_s - _SLACK_S) & (stamps < stamp_s)]
    return len(near) > 1 and bool(np.all(np.diff(near) < spec.dead_man_s / 2)) and stamps[0] < stamp_s - spec.dead_man_s
