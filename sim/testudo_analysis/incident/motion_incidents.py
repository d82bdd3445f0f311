"""What poses and commands alone tell: jumps, gaps, saturation, robots that do not follow, and stops."""

from __future__ import annotations

import numpy as np

from testudo_analysis.incident.incident import Incident, IncidentKind, IncidentThresholds
from testudo_analysis.incident.time_spans import spans
from testudo_hardware.motion import LagResponse, motion_model
from testudo_hardware.motion.motion_model import effective_command
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_runs.alignment import AlignedRobot, TeamRecording, Trajectory

_JOIN_S = 1.0
_SLACK = 1.2
"""Robots may be this much faster than their files say before a pose counts as out of reach."""
_WAY_M, _TURN_RAD = 0.01, 0.05
"""Beyond the errors of two poses, as in `plausibility.agrees`."""
_OFTEN = 4.0
"""A gap is so many times as long as poses are usually apart, and longer than the robot accepts."""
_BEYOND = 0.02
"""Share of a command that is clipped."""
_SATURATED_S, _OFF_S = 0.2, 0.5
_STILL_M_S = 0.01
_EDGE_S = 0.2
"""Shorter motion is the error of a velocity; at the ends of a recording it is largest."""


def find_jumps(robot: AlignedRobot) -> list[Incident]:
    """Return poses that the robot cannot have reached from those before, as its pose source told them."""
    motion, spec = robot.believed, robot.spec
    elapsed = np.diff(motion.stamp_s)
    way = np.linalg.norm(np.diff(motion.position_world, axis=0), axis=1)
    excess = way - _SLACK * _top_speed(robot) * elapsed
    bound = 2 * spec.position_error_m + _WAY_M
    beyond = excess > bound
    if spec.kind == DIFFERENTIAL_DRIVE:
        turn = np.abs(np.diff(motion.yaw)) - _SLACK * spec.turn_rate_limit_rad_s * elapsed
        beyond |= turn > 2 * spec.yaw_error_rad + _TURN_RAD
    found = []
    for begin, end in spans(beyond, motion.stamp_s[1:], _JOIN_S):
        worst = begin + int(np.argmax(excess[begin : end + 1]))
        turned = np.degrees(abs(motion.yaw[worst + 1] - motion.yaw[worst]))
        what = (
            f"{robot.name}'s pose jumped by {1e3 * way[worst]:.0f} mm and {turned:.0f} degrees in "
            f"{1e3 * elapsed[worst]:.0f} ms"
        )
        found.append(
            Incident(
                IncidentKind.POSE_JUMP,
                (robot.name,),
                float(motion.stamp_s[begin]),
                float(motion.stamp_s[end + 1]),
                float(motion.stamp_s[worst + 1]),
                float(way[worst]),
                bound,
                "m",
                what,
            )
        )
    return found


def find_gaps(robot: AlignedRobot) -> list[Incident]:
    """Return times without poses of the robot that are longer than it accepts."""
    stamps = robot.believed.stamp_s
    apart = np.diff(stamps)
    bound = max(robot.spec.pose_max_age_s, _OFTEN * float(np.median(apart)))
    found = []
    for begin, end in spans(apart > bound, stamps[1:], _JOIN_S):
        worst = begin + int(np.argmax(apart[begin : end + 1]))
        found.append(
            Incident(
                IncidentKind.POSE_GAP,
                (robot.name,),
                float(stamps[begin]),
                float(stamps[end + 1]),
                float(stamps[worst]),
                float(apart[worst]),
                bound,
                "s",
                f"no pose of {robot.name} for {apart[worst]:.2f} s",
            )
        )
    return found


def find_saturation(robot: AlignedRobot) -> list[Incident]:
    """Return times in which the robot was told more than its actuators can do."""
    if robot.commands is None:
        return []
    model, command = motion_model(robot.spec), robot.commands.values.T
    clipped = model.limit_command(command)
    size = np.linalg.norm(command, axis=0)
    share = np.linalg.norm(command - clipped, axis=0) / np.maximum(size, 1e-9)
    stamp_s, found = robot.commands.stamp_s, []
    for begin, end in spans(share > _BEYOND, stamp_s, _JOIN_S):
        if stamp_s[end] - stamp_s[begin] < _SATURATED_S:
            continue
        worst = begin + int(np.argmax(share[begin : end + 1]))
        found.append(
            Incident(
                IncidentKind.SATURATION,
                (robot.name,),
                float(stamp_s[begin]),
                float(stamp_s[end]),
                float(stamp_s[worst]),
                float(share[worst]),
                _BEYOND,
                "1",
                f"{robot.name} was told {_shown(command[:, worst])}, of which its actuators can do "
                f"{_shown(clipped[:, worst])}",
            )
        )
    return found


def find_not_following(robot: AlignedRobot, bounds: IncidentThresholds) -> list[Incident]:
    """Return times in which the robot's speed was not what its commands cause."""
    if robot.commands is None or len(robot.commands.stamp_s) < 2:
        return []
    at_s, expected = expected_speed(robot)
    if not len(at_s):
        return []
    actual = _speed(robot, robot.trajectory.at(at_s)[2])
    bound = bounds.slow_share * _top_speed(robot)
    off, found = np.where(robot.trajectory.observed(at_s), actual - expected, 0.0), []
    for begin, end in spans(np.abs(off) > bound, at_s):
        if at_s[end] - at_s[begin] < _OFF_S:
            continue
        worst = begin + int(np.argmax(np.abs(off[begin : end + 1])))
        found.append(
            Incident(
                IncidentKind.NOT_FOLLOWING,
                (robot.name,),
                float(at_s[begin]),
                float(at_s[end]),
                float(at_s[worst]),
                float(off[worst]),
                bound,
                "m/s",
                f"{robot.name} drove at {actual[worst]:.2f} m/s where its commands make {expected[worst]:.2f} m/s",
            )
        )
    return found


def expected_speed(robot: AlignedRobot) -> tuple[np.ndarray, np.ndarray]:
    """Return times (T,), a control period apart, and the speed (T,) [m/s] that the commands cause in the model."""
    spec, model = robot.spec, motion_model(robot.spec)
    begin = max(robot.commands.stamp_s[0], robot.trajectory.stamp_s[0])
    end = min(robot.commands.stamp_s[-1], robot.trajectory.stamp_s[-1])
    at_s = np.arange(begin, end, spec.control_period_s)
    longest_s = max(spec.dead_man_s, 2 * _median_gap(robot.commands.stamp_s))
    told, acts = robot.commands.held(at_s - spec.command_delay_s, longest_s)
    effective = np.where(acts, effective_command(model, told.T), 0.0)
    gain = float(LagResponse.create(np.array(spec.control_period_s), spec.velocity_lag_s).gain)
    velocity = np.empty_like(effective)
    now = effective[:, 0] if effective.shape[1] else None
    for k in range(effective.shape[1]):
        now = now + gain * (effective[:, k] - now)
        velocity[:, k] = now
    return at_s, _speed(robot, velocity.T)


def find_standing(robot: AlignedRobot, bounds: IncidentThresholds) -> list[Incident]:
    """Return times between two drives in which the robot stood: all that poses tell of a stop."""
    motion = robot.trajectory
    found, first_s, last_s = [], motion.stamp_s[0] + _EDGE_S, motion.stamp_s[-1] - _EDGE_S
    for begin, end in spans(still_samples(motion), motion.stamp_s, _EDGE_S):
        lasted = motion.stamp_s[end] - motion.stamp_s[begin]
        if lasted < bounds.stood_s or motion.stamp_s[begin] <= first_s or motion.stamp_s[end] >= last_s:
            continue
        found.append(
            Incident(
                IncidentKind.STOP,
                (robot.name,),
                float(motion.stamp_s[begin]),
                float(motion.stamp_s[end]),
                float(motion.stamp_s[begin]),
                float(lasted),
                bounds.stood_s,
                "s",
                f"{robot.name} stood for {lasted:.1f} s between two drives",
            )
        )
    return found


def still_samples(motion: Trajectory) -> np.ndarray:
    """Return (T,) bool: slower than a centimetre a second, and hardly turning where it could."""
    return motion.valid & (np.linalg.norm(motion.velocity, axis=1) < _STILL_M_S)


def find_in_motion(recording: TeamRecording, bounds: IncidentThresholds) -> list[Incident]:
    """Return everything that poses and commands of the robots tell."""
    found = []
    for robot in recording.robots:
        found += find_jumps(robot) + find_saturation(robot) + find_not_following(robot, bounds)
        if recording.run is None:  # the ticks of a run of ours say more
            found += find_gaps(robot) + find_standing(robot, bounds)
    return found


def _speed(robot: AlignedRobot, velocity: np.ndarray) -> np.ndarray:
    """Return speeds (T,) [m/s] of velocities (T, D); of a wheeled robot with the sign of its direction."""
    return velocity[:, 0] if robot.spec.kind == DIFFERENTIAL_DRIVE else np.linalg.norm(velocity, axis=1)


def _top_speed(robot: AlignedRobot) -> float:
    return robot.spec.speed_limit_m_s


def _median_gap(stamp_s: np.ndarray) -> float:
    return float(np.median(np.diff(stamp_s)))


def _shown(command: np.ndarray) -> str:
    return "(" + ", ".join(f"{value:.2f}" for value in command) + ")"
