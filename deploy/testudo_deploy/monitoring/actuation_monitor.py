"""Whether a robot follows its commands: detects blocked wheels, and actuators that are saturated or off.

For each direction of motion, the monitor integrates the least speed that any lag, delay and scale within the robot's
intervals allow under the commands that were sent; reports of the driver are not used. If the poses fall behind this
least distance by more than the error of two poses, no parameters explain it. The directions are forward, backward and
both turns of a differential drive, and both directions along each world axis of a base or a drone. A shortfall may
begin at any time: a robot that was ahead of the least distance before it was blocked is detected as early as any
other. A shortfall is the mean over two neighbouring poses, so that noise that rarely exceeds its bound raises no alarm.

The table has the detection time in seconds, from the blockage until the control loop brakes (mean and worst of 20):
from steady speed, all at nominal values, a pose in each control period, 20 ms old, with noise whose bound is three
sigma. The least speed is the one at which a blockage is detected within 0.3 s for any noise within its bounds,
2 e / (least scale * (0.3 s - age - 1.5 periods)), with the error bound e of the position; for drones the drift of
their velocity is added.

| robot | blocked at top speed | at half | one wheel at top | at half | least speed, of top speed [m/s] |
|---|---|---|---|---|---|
| crazyflie_2x | 0.10, 0.12 | 0.10, 0.12 | - | - | 0.09 of 1.0 |
| robomaster_s1 | 0.13, 0.15 | 0.13, 0.15 | - | - | 0.06 of 1.0 |
| irobot_create | 0.21, 0.25 | 0.27, 0.34 | 0.14, 0.18 | 0.17, 0.23 | 0.15 of 0.3 |
| gritsbot_x | 0.25, 0.32 | 0.42, 0.67 | 0.12, 0.14 | 0.17, 0.20 | 0.16 of 0.2 |
| turtlebot4 | 0.32, 0.39 | 0.45, 0.72 | 0.17, 0.21 | 0.26, 0.33 | 0.31 of 0.306: none |
| turtlebot3_burger | 0.49, 0.83 | 0.75, 1.64 | 0.17, 0.25 | 0.25, 0.33 | 0.31 of 0.22: none |

A blockage of all wheels of a TurtleBot is not detected within 0.3 s: 2 e is 0.060 m, and in the 0.205 s that remain
after the age and the period of the poses the least distance is 0.0596 m (turtlebot4) and 0.043 m (turtlebot3_burger).
Below the least speed the detection takes 2 e / (least scale * speed). A worst time above this bound comes from ticks
in which the shield brakes.

After a start, a gap in the poses, or a brake by the guard, the motion of the robot is unknown: at top speed it takes
0.2 s (gritsbot_x) to 1.5 s (crazyflie_2x) until the least speed is half of the top speed, less if the robot stood.

The residual motion of a file with `[motion_noise]` counts as a speed and an error of the poses on top: the line
that touches the bound of its displacement after `_DETECTS_S`. Where that speed exceeds the command, a blockage is not
detected.

A robot that stands, or that its guard brakes, has no shortfall, so people may carry it. A robot that pushes against a
fixed object has a shortfall, and counts as broken.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from testudo_deploy.shield.residual_margin import residual_line
from testudo_hardware.arrays import Array, array_namespace, stacked
from testudo_hardware.motion import MotionState
from testudo_hardware.motion.motion_model import hover_drift_m_s, slip_ratio
from testudo_hardware.motion.motion_state import TINY, length
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import RobotSpec

_LARGEST_BEND_RAD = 0.6  # largest angle between the heading and the direction in which a forward path is measured
_DETECTS_S = 0.5  # time from a blockage to its detection at which the line over the residual motion is tight
LONGEST_GAP_S = 0.2  # paths between two poses further apart in time are not compared with the commands


@dataclass(frozen=True)
class ActuationLimits:
    """Limits of a robot; arrays (2 D, 1...), both directions of each channel."""

    turns: bool  # it is a differential drive
    lags_s: tuple[float, float]
    low: Array  # least scale of a command, over the nominal one
    high: Array  # greatest
    acceleration: Array  # [m/s^2], [rad/s^2]
    reach: Array
    """Acceleration times the greatest lag: the greatest difference from a command that it follows as a pure lag."""
    crosstalk: Array
    """Share of the speed asked for by which a channel may differ from its own command beside the scale: a twist that
    is turned by the error of the yaw, a wheel's scale at one end of the interval and the other's at the other end."""
    drift: Array
    """[m/s] by which a channel may differ from its command whatever that is: `hover_drift_m_s` and residual motion."""
    fastest: Array  # greatest speed
    allowed: Array  # error of two poses, and the start of the line over the residual motion
    yaw_error_rad: float
    turn_acceleration: float


@dataclass(frozen=True)
class ActuationMonitorState:
    """State of the monitor after a pose (...)."""

    position_world: Array  # (D, ...) [m] of that pose
    yaw: Array  # (...) [rad]
    located: Array  # (...) bool: it is valid
    direction_world: Array  # (2, ...): unit vector along which forward ways are measured
    bend: Array  # (...) [rad] from there to the heading
    speed: Array  # (2 D, ...): least speed of each direction
    late: Array  # (2 D, ...): by how much the last way fell short
    short: Array  # (2 D, ...) [m], [rad]: greatest sum of those up to now, from any pose on


def actuation_limits(spec: RobotSpec, like: Array) -> ActuationLimits:
    """Return the limits of a robot as arrays of the library, type and batch axes of ``like`` (...)."""
    xp, quantities = array_namespace(like), spec.quantities
    turns, size = spec.kind == DIFFERENTIAL_DRIVE, spec.dimension
    names = ("speed_scale", "turn_scale") if turns else ("speed_scale",) * size
    scales = [quantities[f"dynamics.{name}"] for name in names]
    slipping = list(zip(scales, (slip_ratio(spec), *((1.0, 1.0),) * (size - 1)), strict=True))
    speed = max(spec.speed_limit_m_s, spec.wheel_limit_m_s) if turns else spec.speed_limit_m_s
    swing = (scales[0].high - scales[0].low) / scales[0].value

    def both(values: Sequence[float]) -> Array:
        return xp.reshape(xp.asarray(np.array([*values, *values]), dtype=like.dtype), (2 * size,) + (1,) * like.ndim)

    def per_channel(first: float, second: float) -> Array:
        return both((first, second) if turns else (first,) * size)

    lag, residual = quantities["dynamics.velocity_lag"], residual_line(spec, _DETECTS_S)
    drift = both(residual.rate)
    acceleration = per_channel(spec.acceleration_limit_m_s2, spec.turn_acceleration_limit_rad_s2)
    return ActuationLimits(
        turns,
        (lag.low, lag.high),
        both([scale.low / scale.value * low for scale, (low, _) in slipping]),
        both([scale.high / scale.value * high for scale, (_, high) in slipping]),
        acceleration,
        lag.high * acceleration,
        both((0.0, swing / spec.wheel_base_m)) if turns else both((spec.yaw_error_rad,) * size),
        both(hover_drift_m_s(spec)) + drift,
        per_channel(speed * scales[0].high, spec.turn_rate_limit_rad_s * scales[-1].high) + drift,
        per_channel(2 * spec.position_error_m, 2 * spec.yaw_error_rad) + both(residual.start),
        spec.yaw_error_rad,
        spec.turn_acceleration_limit_rad_s2,
    )


def begin_actuation_monitor(limits: ActuationLimits, measured: MotionState, located: Array) -> ActuationMonitorState:
    """Return the state at a pose (...) of a robot that may move at any speed."""
    nothing = 0 * limits.fastest + 0 * measured.yaw
    return ActuationMonitorState(
        measured.position_world,
        measured.yaw,
        located,
        _heading(measured.yaw),
        0 * measured.yaw,
        nothing - limits.fastest,
        nothing,
        nothing,
    )


def update_actuation_monitor(
    limits: ActuationLimits,
    watch: ActuationMonitorState,
    measured: MotionState,
    located: Array,
    acting: Sequence[Array],
    elapsed_s: Array,
) -> tuple[ActuationMonitorState, Array]:
    """Return the state after a pose, and the robot's shortfall (2 D, ...); above zero it does not follow its commands.

    ``watch`` is the state after the pose before, ``elapsed_s`` (...) earlier; ``located`` (...) bool says whether the
    new pose (...) is valid; each of the effective commands ``acting`` (D, ...) may have acted in between at some time.
    """
    xp = array_namespace(measured.position_world)
    speed, least = _least_way(limits, watch.speed, acting, elapsed_s)
    step = measured.position_world - watch.position_world
    kept = located & watch.located & (elapsed_s < LONGEST_GAP_S)
    bend, direction, driven = watch.bend, watch.direction_world, least
    if limits.turns:
        turn = measured.yaw - watch.yaw
        turn = turn - 2 * math.pi * xp.round(turn / (2 * math.pi))
        bend = watch.bend + turn
        stray = xp.maximum(xp.abs(watch.bend), xp.abs(bend))
        kept = kept & (stray < _LARGEST_BEND_RAD)
        # between two poses it may bend beyond both of their headings
        cosine = xp.cos(stray + (limits.yaw_error_rad + limits.turn_acceleration / 8 * elapsed_s**2))
        one = 1 + 0 * cosine
        least = xp.minimum(least, least * stacked(cosine, one, cosine, one))
        # a blocked wheel turns a robot that is to drive straight on
        drives = xp.maximum(least[0, ...], least[2, ...])
        driven = xp.maximum(least, stacked(least[0, ...], drives, least[2, ...], drives))
        step = stacked(direction[0, ...] * step[0, ...] + direction[1, ...] * step[1, ...], turn)
        direction = xp.where(kept, direction, _heading(measured.yaw))
        bend = xp.where(kept, bend, 0 * bend)
    late = least - xp.concat([step, -step])
    mean = 0.5 * (late + watch.late)
    # without a command in that direction there is no shortfall: too long a path is for the brake monitor
    short = xp.maximum(watch.short + xp.where(driven > 0, mean, xp.minimum(mean, 0 * mean)), 0 * mean)
    short, late = (xp.where(kept, values, 0 * values) for values in (short, late))
    after = ActuationMonitorState(measured.position_world, measured.yaw, located, direction, bend, speed, late, short)
    return after, short - limits.allowed


def actuation_shortfall_text(spec: RobotSpec, watch: ActuationMonitorState, excess: np.ndarray) -> str:
    """Return the sentence about the shortfall ``excess`` (2 D,) of one robot."""
    row = int(np.argmax(excess))
    channel, backwards = row % spec.dimension, row >= spec.dimension
    what, unit = f"way along {'-' if backwards else ''}{'xyz'[channel]}", "m"
    if spec.kind == DIFFERENTIAL_DRIVE:
        what = (("way ahead", "way backwards"), ("turn to the left", "turn to the right"))[channel][backwards]
        unit = ("m", "rad")[channel]
    short, residual = float(watch.short[row]), " with residual motion" if spec.motion_noise else ""
    return (
        f"no_response: the {what} is {short:.3f} {unit} less than the commands leave at any lag, delay and scale "
        f"of its file, and the error of two poses{residual} is {short - float(excess[row]):.3f} {unit}"
    )


def _least_way(limits: ActuationLimits, speed: Array, acting: Sequence[Array], elapsed_s: Array) -> tuple[Array, Array]:
    """Return the least speed (2 D, ...) of each direction after a time, and the least way in it.

    The least of all commands is taken to act all the time: it costs little while they hardly change, and a third of
    the computing time of one command after the other.
    """
    xp = array_namespace(speed)
    asked, greatest = _asked(limits, acting)
    gap = asked - speed
    # below what an acceleration that is limited and then dies away with the lag makes of it
    if limits.turns:
        rise = xp.minimum(gap, limits.reach)
    else:
        # the limit is that of the whole change of velocity, in all axes
        change = length(_ends(xp.minimum(asked, speed)))
        change = xp.minimum(change, limits.high[0, ...] * greatest + limits.fastest[0, ...])
        rise = gap * xp.minimum(limits.reach / (change + TINY), 1 + 0 * gap)
    quick, slow = (-xp.expm1(-elapsed_s / lag) for lag in limits.lags_s)
    after = speed + xp.where(gap > 0, slow * rise, xp.maximum(quick * gap, -elapsed_s * limits.acceleration))
    # rising it is above the mean of both, falling above the later one
    return after, elapsed_s * xp.minimum(0.5 * (speed + after), after)


def _asked(limits: ActuationLimits, acting: Sequence[Array]) -> tuple[Array, Array]:
    """Return the least speed (2 D, ...) of each direction that one of the commands asks for, and the speed (...)."""
    xp = array_namespace(acting[0])
    low = high = acting[0]
    for command in acting[1:]:
        low, high = xp.minimum(low, command), xp.maximum(high, command)
    asked = xp.concat([low, -high])
    size = low.shape[0]
    if limits.turns:
        greatest = -xp.minimum(asked[0, ...], asked[2, ...])
    else:
        greatest = length(xp.minimum(asked[:size, ...], asked[size:, ...]))
    return xp.minimum(limits.low * asked, limits.high * asked) - limits.crosstalk * greatest - limits.drift, greatest


def _ends(rows: Array) -> Array:
    """Return the sum (D, ...) of both ways (2 D, ...) of each channel."""
    size = rows.shape[0] // 2
    return rows[:size, ...] + rows[size:, ...]


def _heading(yaw: Array) -> Array:
    xp = array_namespace(yaw)
    return stacked(xp.cos(yaw), xp.sin(yaw))
