"""Whether a robot brakes as well as its file says, from its poses and its commands.

While the commands ask a robot to slow down, its path since the braking began is compared with the longest path that any
parameters within its intervals allow. The shield's assumption on the brakes is wrong for a robot that gets further.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from testudo_deploy.shield.geometry import dot
from testudo_deploy.shield.margin_terms import MarginTerm
from testudo_deploy.shield.residual_margin import RESIDUAL, residual_drift_m
from testudo_hardware.arrays import Array, array_namespace, known_false
from testudo_hardware.motion import LagResponse, MotionState
from testudo_hardware.motion.motion_model import hover_drift_m_s, slip_ratio
from testudo_hardware.motion.motion_state import TINY, sum_terms
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import RobotSpec

_SLOWER, _STOPPED = 0.9, 0.1
"""A command brakes if it is below this share of the own speed, or of the speed at which the braking began."""
_LONGEST_TICKS = 2.5  # for more periods between two poses one step of the model is not the sum of its parts


_NOT_WATCHED_M_S = 1e6
Piece = tuple[Array, Sequence[Array]]
"""Share (...) of the time between two poses, and the effective commands (D, ...) of which one acted in it."""


@dataclass(frozen=True)
class BrakeMonitorState:
    """A braking that is monitored; of a robot that does not brake, the last pose."""

    position_world: Array  # (D, ...) [m]: where it began
    direction_world: Array  # (D, ...): unit vector of the velocity then; zero if the robot stood or was not located
    direction: Array  # (D, ...): the same in the channels of the commands
    began_m_s: Array  # (...): speed then
    speed_m_s: Array  # (...): highest speed along that direction that the robot can have now
    way_m: Array  # (...): longest way along it since then
    across_m_s: Array  # (...): highest speed across it that was asked for since then
    time_s: Array  # (...): since then


def brake_margin_terms(spec: RobotSpec) -> tuple[MarginTerm, ...]:
    """Return the margins beside lag, delay and scale, which the longest path contains."""
    terms = (
        MarginTerm("localisation", 2 * spec.position_error_m, "sensing.position_error, of two poses"),
        MarginTerm(
            "tick",
            spec.acceleration_limit_m_s2 * spec.control_period_s**2,
            "way of the change of speed within a tick, whose moment is not known",
        ),
    )
    if not spec.motion_noise:
        return terms
    moved_m = residual_drift_m(spec, longest_brake_monitor_s(spec))
    return (*terms, MarginTerm(RESIDUAL, moved_m, "motion_noise: bound of its displacement in the longest braking"))


def begin_brake_monitor(spec: RobotSpec, measured: MotionState, located: Array) -> BrakeMonitorState:
    """Return the state for a braking that begins at a measured pose (...)."""
    xp = array_namespace(measured.position_world)
    velocity = xp.where(located, measured.velocity, 0 * measured.velocity)
    if spec.kind == DIFFERENTIAL_DRIVE:
        sign = xp.sign(velocity[0, ...])
        speed = xp.abs(velocity[0, ...])
        direction = xp.stack([sign, 0 * sign])
        direction_world = sign * xp.stack([xp.cos(measured.yaw), xp.sin(measured.yaw)])
    else:
        speed = xp.sqrt(dot(velocity, velocity))
        direction = direction_world = velocity / (speed + TINY)
    zero = 0 * speed
    # odometry may be wrong by as much as the commanded speed
    speed = speed * (1 + spec.quantities["dynamics.speed_scale"].half_width)
    return BrakeMonitorState(measured.position_world, direction_world, direction, speed, speed, zero, zero, zero)


def update_brake_monitor(
    spec: RobotSpec,
    watch: BrakeMonitorState,
    measured: MotionState,
    located: Array,
    acting: Sequence[Piece],
    elapsed_s: Array,
) -> tuple[BrakeMonitorState, Array]:
    """Return the state after a pose, and by how much the robot is too far (...) [m]; zero or below is correct.

    The bound holds for any lag, delay and scale in the robot's intervals, also if they change from tick to tick:
    along the direction of the braking each of them is taken as it brakes least.

    ``watch`` is the state after the pose before, ``elapsed_s`` (...) earlier; ``located`` (...) bool says whether the
    new pose (...) is valid; ``acting`` holds the commands that may have acted in between, at any delay of the interval.
    """
    xp = array_namespace(measured.position_world)
    asked, across = _asked(spec, watch, acting)
    mean_asked = sum_terms([share * fastest for share, fastest in asked])
    # a robot that has stopped and reverses does not brake: its next braking starts the monitor again
    turns_back = (watch.speed_m_s <= 0) & (mean_asked < 0)
    continues = (
        (mean_asked < xp.maximum(_SLOWER * watch.speed_m_s, _STOPPED * watch.began_m_s))
        & located
        & ~turns_back
        & (watch.time_s < longest_brake_monitor_s(spec))
        & (elapsed_s < _LONGEST_TICKS * spec.control_period_s)
    )
    fresh = begin_brake_monitor(spec, measured, located)
    if known_false(continues):  # true for most ticks of a robot; the rest costs twice what came before
        return fresh, -math.inf + 0 * watch.speed_m_s
    across = xp.maximum(watch.across_m_s, across)
    change, way = (0 * watch.speed_m_s for _ in range(2))
    quick, slow = (LagResponse.create(elapsed_s, 0 * elapsed_s + lag) for lag in _interval(spec, "velocity_lag"))
    for share, fastest in asked:
        step = share * _slowest_braking(spec, watch.speed_m_s, fastest, across, quick, slow)
        change, way = change + step[0, ...], way + step[1, ...]
    way = watch.way_m + xp.maximum(way, 0 * way)
    covered = dot(watch.direction_world, measured.position_world - watch.position_world)
    allowed = way + sum(term.value_m for term in brake_margin_terms(spec))
    after = BrakeMonitorState(
        watch.position_world,
        watch.direction_world,
        watch.direction,
        watch.began_m_s,
        xp.maximum(watch.speed_m_s + change, 0 * change),
        way,
        across,
        watch.time_s + elapsed_s,
    )
    kept = BrakeMonitorState(
        *(xp.where(continues, old, new) for old, new in zip(vars(after).values(), vars(fresh).values(), strict=True))
    )
    return kept, xp.where(continues, covered - allowed, -math.inf + 0 * covered)


def weak_brakes_text(spec: RobotSpec, watch: BrakeMonitorState, excess_m: float) -> str:
    """Return the sentence about one robot's braking: found and expected."""
    allowed = float(watch.way_m) + sum(term.value_m for term in brake_margin_terms(spec))
    return (
        f"brakes_weak: {float(watch.time_s):.2f} s after it began to brake from {float(watch.began_m_s):.2f} m/s "
        f"the robot was {allowed + excess_m:.3f} m on, expected at most {allowed:.3f} m"
    )


def longest_brake_monitor_s(spec: RobotSpec) -> float:
    """Return the longest time [s] to monitor one braking: twice a stop from top speed, with 3 lags for its end."""
    speed = spec.control_point_speed_m_s
    return 2 * (
        speed / spec.acceleration_limit_m_s2
        + 3 * spec.quantities["dynamics.velocity_lag"].high
        + spec.quantities["dynamics.command_delay"].high
    )


def _slowest_braking(
    spec: RobotSpec, speed: Array, asked: Array, across: Array, quick: LagResponse, slow: LagResponse
) -> Array:
    """Return the change of the speed (...) along the direction that brakes least at any lag, and the way: (2, ...)."""
    xp = array_namespace(speed)
    elapsed_s = slow.duration_s
    limit, gap = spec.acceleration_limit_m_s2 * elapsed_s, asked - speed
    # what the limit leaves for braking shrinks if the robot changes its speed across, too
    braking = xp.minimum(slow.gain, limit / (xp.sqrt(gap**2 + 4 * across**2) + TINY))
    change = gap * xp.where(gap < 0, braking, xp.minimum(quick.gain, limit / (xp.abs(gap) + TINY)))
    mean = speed + xp.where(gap < 0, slow.mean_share, quick.mean_share) * change
    return xp.stack([change, elapsed_s * mean])


def _asked(
    spec: RobotSpec, watch: BrakeMonitorState, acting: Sequence[Piece]
) -> tuple[list[tuple[Array, Array]], Array]:
    """Return the highest speeds (...) along the direction that were asked for, with their shares, and that across."""
    xp = array_namespace(watch.speed_m_s)
    low, high = (scale * slip for scale, slip in zip(_interval(spec, "speed_scale"), slip_ratio(spec), strict=True))
    nominal = spec.quantities["dynamics.speed_scale"].value
    asked: list[tuple[Array, Array]] = []
    across = 0 * watch.speed_m_s
    drift = sum_terms([m_s * xp.abs(watch.direction_world[k, ...]) for k, m_s in enumerate(hover_drift_m_s(spec))])
    for share, commands in acting:
        fastest = -math.inf + 0 * watch.speed_m_s
        for command in commands:
            along = dot(watch.direction, command) / nominal
            back = low * along
            if spec.kind == DIFFERENTIAL_DRIVE:
                # backwards on a bend can be forwards in the world: such a braking is not monitored
                back = xp.where(along < 0, _NOT_WATCHED_M_S + 0 * along, back)
            else:
                rest = command - along * nominal * watch.direction
                across = xp.where(share > 0, xp.maximum(across, high / nominal * xp.sqrt(dot(rest, rest))), across)
            fastest = xp.maximum(fastest, xp.maximum(high * along, back))
        asked.append((share, fastest + drift))
    return asked, across


def _interval(spec: RobotSpec, name: str) -> tuple[float, float]:
    quantity = spec.quantities[f"dynamics.{name}"]
    return quantity.low, quantity.high
