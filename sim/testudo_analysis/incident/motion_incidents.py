"""Incidents from poses and commands: jumps, gaps, saturation, robots that do not follow commands, and stops."""

import numpy as np

from testudo_analysis.incident.incident import Incident, IncidentKind, IncidentThresholds, largest, spans
from testudo_hardware.motion import LagResponse, motion_model
from testudo_hardware.motion.motion_model import effective_command
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_runs.alignment import AlignedRobot, Commands, TeamRecording, Trajectory

_JOIN_S = 1.0
_SLACK = 1.2  # factor on the robot file's speed limit before a pose counts as out of reach
_WAY_M, _TURN_RAD = 0.01, 0.05  # allowance beyond the errors of two poses, as in the pose validator
_OFTEN = 4.0  # a gap is longer than so many median pose periods, and than the robot's maximum pose age
_BEYOND = 0.02  # clipped share of a command
_SATURATED_S, _OFF_S = 0.2, 0.5
_STILL_M_S = 0.01
_EDGE_S = 0.2  # shorter motion is a velocity error; it is largest at the ends of a recording


def find_in_motion(recording: TeamRecording, bounds: IncidentThresholds) -> list[Incident]:
    """Return all incidents that poses and commands of the robots show."""
    found = []
    for robot in recording.robots:
        found += find_jumps(robot) + find_saturation(robot) + find_not_following(robot, bounds)
        if recording.run is None:  # the ticks of a Testudo run show these in more detail
            # times between two drives in which the robot stood; poses show no more of a stop
            stamps = robot.trajectory.stamp_s
            stops = []
            for begin, end in spans(still_samples(robot.trajectory), stamps, _EDGE_S):
                lasted = stamps[end] - stamps[begin]
                inside = stamps[begin] > stamps[0] + _EDGE_S and stamps[end] < stamps[-1] - _EDGE_S
                if lasted >= bounds.stood_s and inside:
                    what, span = f"{robot.name} stood for {lasted:.1f} s between two drives", (begin, end, begin)
                    stops.append(
                        Incident.over(IncidentKind.STOP, (robot.name,), stamps, span, lasted, bounds.stood_s, "s", what)
                    )
            found += find_gaps(robot) + stops
    return found


def find_jumps(robot: AlignedRobot) -> list[Incident]:
    """Return poses of the pose source that the robot cannot have reached from the poses before."""
    motion, spec = robot.believed, robot.spec
    stamps, elapsed = motion.stamp_s, np.diff(motion.stamp_s)
    way = np.linalg.norm(np.diff(motion.position_world, axis=0), axis=1)
    excess = way - _SLACK * spec.speed_limit_m_s * elapsed
    bound = 2 * spec.position_error_m + _WAY_M
    beyond = excess > bound
    if spec.kind == DIFFERENTIAL_DRIVE:
        turn = np.abs(np.diff(motion.yaw)) - _SLACK * spec.turn_rate_limit_rad_s * elapsed
        beyond |= turn > 2 * spec.yaw_error_rad + _TURN_RAD
    found = []
    for begin, end in spans(beyond, stamps[1:], _JOIN_S):
        worst = largest(excess, begin, end)
        turned = np.degrees(abs(motion.yaw[worst + 1] - motion.yaw[worst]))
        what = (
            f"the pose of {robot.name} jumped by {1e3 * way[worst]:.0f} mm and {turned:.0f} degrees in "
            f"{1e3 * elapsed[worst]:.0f} ms"
        )
        span = begin, end + 1, worst + 1
        found.append(Incident.over(IncidentKind.POSE_JUMP, (robot.name,), stamps, span, way[worst], bound, "m", what))
    return found


def find_gaps(robot: AlignedRobot) -> list[Incident]:
    """Return times without poses that are longer than the robot's maximum pose age."""
    stamps = robot.believed.stamp_s
    apart = np.diff(stamps)
    bound = max(robot.spec.pose_max_age_s, _OFTEN * float(np.median(apart)))
    found = []
    for begin, end in spans(apart > bound, stamps[1:], _JOIN_S):
        worst = largest(apart, begin, end)
        span, what = (begin, end + 1, worst), f"no pose of {robot.name} for {apart[worst]:.2f} s"
        found.append(Incident.over(IncidentKind.POSE_GAP, (robot.name,), stamps, span, apart[worst], bound, "s", what))
    return found


def find_saturation(robot: AlignedRobot) -> list[Incident]:
    """Return times of commands beyond the actuator limits."""
    if robot.commands is None:
        return []
    command = robot.commands.values.T
    clipped = motion_model(robot.spec).limit_command(command)
    share = np.linalg.norm(command - clipped, axis=0) / np.maximum(np.linalg.norm(command, axis=0), 1e-9)
    stamps, kind, found = robot.commands.stamp_s, IncidentKind.SATURATION, []
    for begin, end in spans(share > _BEYOND, stamps, _JOIN_S):
        if stamps[end] - stamps[begin] < _SATURATED_S:
            continue
        worst = largest(share, begin, end)
        what = f"{robot.name} had the command {_shown(command[:, worst])}, within limits {_shown(clipped[:, worst])}"
        found.append(Incident.over(kind, (robot.name,), stamps, (begin, end, worst), share[worst], _BEYOND, "1", what))
    return found


def find_not_following(robot: AlignedRobot, bounds: IncidentThresholds) -> list[Incident]:
    """Return times in which the robot's speed differs from the speed that its commands cause in the model.

    A robot that pushes a body may be slower than that.
    """
    if robot.commands is None or len(robot.commands.stamp_s) < 2:
        return []
    at_s, expected = expected_speed(robot, robot.commands)
    if not len(at_s):
        return []
    actual = _speed(robot, robot.trajectory.at(at_s)[2])
    bound, kind = bounds.slow_share * robot.spec.speed_limit_m_s, IncidentKind.NOT_FOLLOWING
    nearest = np.searchsorted(robot.trajectory.stamp_s, at_s).clip(max=len(robot.trajectory) - 1)
    compared = robot.trajectory.observed(at_s) & robot.trajectory.free(nearest, nearest)
    off, found = np.where(compared, actual - expected, 0.0), []
    for begin, end in spans(np.abs(off) > bound, at_s):
        if at_s[end] - at_s[begin] < _OFF_S:
            continue
        worst = largest(np.abs(off), begin, end)
        what = f"{robot.name} drove at {actual[worst]:.2f} m/s; its commands cause {expected[worst]:.2f} m/s"
        found.append(Incident.over(kind, (robot.name,), at_s, (begin, end, worst), off[worst], bound, "m/s", what))
    return found


def expected_speed(robot: AlignedRobot, commands: Commands) -> tuple[np.ndarray, np.ndarray]:
    """Return times (T,), one control period apart, and the speed (T,) [m/s] that the commands cause in the model."""
    spec, model = robot.spec, motion_model(robot.spec)
    begin = max(commands.stamp_s[0], robot.trajectory.stamp_s[0])
    end = min(commands.stamp_s[-1], robot.trajectory.stamp_s[-1])
    at_s = np.arange(begin, end, spec.control_period_s)
    if not len(at_s):
        return at_s, at_s
    longest_s = max(spec.dead_man_s, 2 * float(np.median(np.diff(commands.stamp_s))))
    values, acts = commands.held(at_s - spec.command_delay_s, longest_s)
    effective = np.where(acts, effective_command(model, values.T), 0.0)
    gain = float(LagResponse.create(np.array(spec.control_period_s), spec.velocity_lag_s).gain)
    velocity, now = np.empty_like(effective), effective[:, 0]
    for k in range(effective.shape[1]):
        now = now + gain * (effective[:, k] - now)
        velocity[:, k] = now
    return at_s, _speed(robot, velocity.T)


def still_samples(motion: Trajectory) -> np.ndarray:
    """Return (T,) bool: the speed is valid and below 1 cm/s."""
    return motion.valid & (np.linalg.norm(motion.velocity, axis=1) < _STILL_M_S)


def _speed(robot: AlignedRobot, velocity: np.ndarray) -> np.ndarray:
    """Return speeds (T,) [m/s] of velocities (T, D); those of wheeled robots are signed."""
    return velocity[:, 0] if robot.spec.kind == DIFFERENTIAL_DRIVE else np.linalg.norm(velocity, axis=1)


def _shown(command: np.ndarray) -> str:
    return "(" + ", ".join(f"{value:.2f}" for value in command) + ")"
