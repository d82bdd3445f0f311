"""Finds units, axes and frames that contradict the recorded motion, and names the correction of the mapping."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import RobotSpec
from testudo_runs.importing.mapping.column_conversion import rotated
from testudo_runs.importing.plausibility.motion_facts import Motion, channels_of, means_at, motion_of
from testudo_runs.recording.recording import STANDARD_GRAVITY, RobotRecording

_ENOUGH = 20  # grid times that a judgement needs
_TOO_FAST = 5.0  # times the top speed or turn rate of the robot file
_TURNS_RAD_S = 20.0  # turn rate that no vehicle reaches where the file has none
_RATIO, _COMMAND_RATIO = (
    4.0,
    8.0,
)  # two measures of one motion differ by less; a robot does not always do what it should
_MOVES_M_S, _TURNS_BY_RAD_S = 0.03, 0.15
_Y_UP = (
    "y may point up: give the role `axes: y_up`, or `unity` for left-handed axes; if only the place has them, give "
    "the column of z for y, with `scale: -1`, and that of y for z"
)
_ALIGNED, _SCATTERED = 0.8, 0.5  # mean of unit vectors
_OFF_RAD = math.radians(35)
_LEANS_RAD = {2: math.radians(20), 3: math.radians(60)}
_LEAST_G = 0.7  # least share of gravity that a mean specific force has
_DEGREE = math.degrees(1.0)


@dataclass(frozen=True)
class Implausible:
    """A series that cannot be as its mapping says."""

    robot: str
    role: str
    found: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.robot}: {self.role}: {self.found}; {self.remedy}"


def implausible(robot: RobotRecording, spec: RobotSpec | None) -> list[Implausible]:
    """Return what cannot be; ``spec`` is None for a robot of unknown kind.

    Only clear cases count: factors of four, angles of tens of degrees, over five seconds of motion.
    """
    motions = [found for role in ("pose", "odometry") if (found := motion_of(robot, role)) is not None]
    motions = [motion for motion in motions if len(motion.time_s) >= _ENOUGH]
    findings: list[Implausible] = []
    for motion in motions:
        said = [*_sizes(motion, spec), *_axes(motion, spec), *_heading(motion, spec)]
        findings += [Implausible(robot.name, motion.role, *one) for one in said[:1]]
    if motions:
        for role, said in _rates(robot, motions[0]):
            findings.append(Implausible(robot.name, role, *said))
    findings += [Implausible(robot.name, "imu", *said) for said in _gravity(robot)]
    return findings


def _sizes(motion: Motion, spec: RobotSpec | None) -> Iterator[tuple[str, str]]:
    """Yield speeds and turn rates that the robot does not reach."""
    fast, turns = np.percentile(motion.speed, 90), np.percentile(np.abs(motion.yaw_rate), 90)
    if spec is not None and fast > _TOO_FAST * spec.control_point_speed_m_s:
        top = f"{spec.name} reaches {spec.control_point_speed_m_s:.3g} m/s"
        yield (
            f"moves at {fast:.3g} m/s for a tenth of the time, where {top}",
            "positions may be in mm or cm: give their `unit`",
        )
    if turns > _turn_limit(spec):
        yield (
            f"turns at {math.degrees(turns):.0f} deg/s for a tenth of the time",
            "angles may be in degrees: give `unit: deg`",
        )


def _turn_limit(spec: RobotSpec | None) -> float:
    """Return the turn rate [rad/s] that a robot of this kind does not reach."""
    if spec is not None and spec.kind == DIFFERENTIAL_DRIVE:
        return _TOO_FAST * 2 * spec.wheel_limit_m_s / spec.wheel_base_m
    return _TURNS_RAD_S


def _axes(motion: Motion, spec: RobotSpec | None) -> Iterator[tuple[str, str]]:
    """Yield attitudes and heights that mean another vertical axis."""
    size = spec.dimension if spec is not None else 3
    leans = float(np.median(motion.tilt))
    if leans > _LEANS_RAD[size]:
        yield (
            f"leans by {math.degrees(leans):.0f} deg for half of the time",
            "angles may be in degrees (`unit: deg`), or another axis than z points up: name the columns by REP-103",
        )
    spread = np.percentile(motion.position_world, 95, axis=0) - np.percentile(motion.position_world, 5, axis=0)
    if size == 2 and spread[2] > max(0.2, 5 * spread[1]):
        yield (
            f"moves by {spread[2]:.2g} m in z and {spread[1]:.2g} m in y, though it drives on the floor",
            _Y_UP,
        )
    high = np.percentile(motion.position_world[:, 2], [10, 90])
    if spec is not None and size == 3 and high[0] < -0.3 and high[1] < 0.05:
        yield (
            f"flies between {high[0]:.2g} and {high[1]:.2g} m in z",
            "z may point down: give the role `axes: ned`",
        )


def _heading(motion: Motion, spec: RobotSpec | None) -> Iterator[tuple[str, str]]:
    """Yield headings that do not follow the way of a robot that only drives forwards and backwards."""
    if spec is None or spec.kind != DIFFERENTIAL_DRIVE:
        return
    moves = motion.speed > max(_MOVES_M_S, 0.1 * spec.control_point_speed_m_s)
    way = np.arctan2(motion.velocity_world[moves, 1], motion.velocity_world[moves, 0])
    if moves.sum() < 2 * _ENOUGH or np.abs(np.mean(np.exp(2j * way))) > _ALIGNED:  # straight: says too little
        return
    yaw = motion.yaw[moves]
    mean = np.mean(np.exp(2j * (way - yaw)))  # twice the angle, since it may drive backwards
    off = float(np.angle(mean)) / 2
    if np.abs(mean) > _ALIGNED and abs(off) > _OFF_RAD:
        yield (
            f"its heading is {abs(math.degrees(off)):.0f} deg off the way it drives",
            "x may be right or y forward: name the columns so that x is forward and y left (REP-103)",
        )
    if np.abs(mean) < _SCATTERED:
        mirrored = np.abs(np.mean(np.exp(2j * (way + yaw)))) > _ALIGNED
        yield (
            "its heading does not follow the way it drives",
            "one axis may be reversed, or the heading clockwise: give `scale: -1`"
            if mirrored
            else "the heading may be in degrees (`unit: deg`), or another column",
        )


def _rates(robot: RobotRecording, motion: Motion) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield velocities and rates that contradict the poses."""
    for role in ("odometry", "command", "imu"):
        series = robot.series.get(role)
        if series is None or not len(series):
            continue
        has_velocity = role != "imu"
        names = ("wz", "vx", "vy", "vz") if has_velocity else ("wz",)
        means = means_at(series, role, motion.time_s, *names)
        turning, velocity = means[:, 0], means[:, 1:]
        most = _COMMAND_RATIO if role == "command" else _RATIO
        ratio = _ratio(turning, motion.yaw_rate, _TURNS_BY_RAD_S)
        if ratio is not None and not 1 / most < ratio[0] < most:
            unit = "deg/s" if 0.3 * _DEGREE < ratio[0] < 3 * _DEGREE else "another one than rad/s"
            yield (
                role,
                (
                    f"its turn rate wz is {ratio[0]:.3g} times that of the poses",
                    f"its unit may be {unit}: give it, or correct that of the heading",
                ),
            )
        elif ratio is not None and ratio[1] < -_SCATTERED:
            yield (
                role,
                ("its turn rate wz is opposite to the turns of the poses", "give wz, or the heading, `scale: -1`"),
            )
        if not has_velocity:
            continue
        ratio = _ratio(np.linalg.norm(velocity[:, :2], axis=1), motion.speed, _MOVES_M_S)
        if ratio is not None and not 1 / most < ratio[0] < most:
            yield role, (f"its speed is {ratio[0]:.3g} times that of the poses", "give the `unit` of vx and vy")
        elif ratio is not None and role == "odometry" and _is_in_world(velocity, motion):
            yield role, ("its velocities fit the poses in the world, not in the body", "give `velocity: world`")


def _ratio(said: np.ndarray, seen: np.ndarray, least: float) -> tuple[float, float] | None:
    """Return the ratio of the sizes of two measures (T,), and their correlation; None with too little motion."""
    known = np.isfinite(said)
    moves = known & (np.maximum(np.abs(seen), np.abs(np.where(known, said, 0.0))) > least)
    if moves.sum() < _ENOUGH:
        return None
    said, seen = said[moves], seen[moves]
    sizes = [float(np.sqrt(np.mean(values**2))) for values in (said, seen)]
    if min(sizes) <= 0:  # a channel that is not recorded is zero
        return None
    return sizes[0] / sizes[1], float(np.mean(said * seen)) / (sizes[0] * sizes[1])


def _is_in_world(velocity: np.ndarray, motion: Motion) -> bool:
    known = np.isfinite(velocity).all(axis=1) & (motion.speed > _MOVES_M_S)
    if known.sum() < _ENOUGH:
        return False
    seen, said = motion.velocity_world[known, :2], velocity[known]
    errors = [
        float(np.mean(np.linalg.norm(seen - one[:, :2], axis=1)))
        for one in (rotated(said, motion.attitude[known]), said)
    ]
    return errors[0] > 0.5 * float(np.mean(motion.speed[known])) and errors[1] < 0.4 * errors[0]


def _gravity(robot: RobotRecording) -> Iterator[tuple[str, str]]:
    """Yield accelerations in which gravity is missing, of another size, or along another axis."""
    series = robot.series.get("imu")
    if series is None or len(series) < _ENOUGH:
        return
    force = channels_of("imu", series, "ax", "ay", "az")
    mean, size = np.median(force, axis=0), float(np.median(np.linalg.norm(force, axis=1)))
    if size < _LEAST_G:
        yield (
            f"its mean specific force is {size:.2f} m/s², without gravity",
            "give `acceleration: world_without_gravity`, or columns with gravity",
        )
    elif size < 1 / _LEAST_G:
        yield f"its mean specific force is {size:.2f} m/s²", "its unit may be g: give `unit: g`"
    elif not _LEAST_G < size / STANDARD_GRAVITY < 1 / _LEAST_G:
        yield f"its mean specific force is {size:.3g} m/s², expected 9.81", "give the `unit` of ax, ay, az"
    elif mean[2] < -_ALIGNED * size:
        yield "its z axis points down", "give the role `axes: ned` (its body is forward, right, down)"
    elif max(abs(mean[:2])) > _ALIGNED * size:
        axis = "xy"[int(abs(mean[1]) > abs(mean[0]))]
        yield f"its {axis} axis is vertical", "name the columns so that z is up (REP-103)"
