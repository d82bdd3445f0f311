"""Checks of one robot's poses: jumps, and motion that does not follow the commands.

A localisation that corrects itself by more than its error bounds causes a jump. The robot brakes immediately. While it
stands, all poses of `STEADY_S` have to agree with the first of them, propagated by odometry. Then the new place is
valid, and the robot starts from there. After repeated jumps an operator has to check the robot.
"""

import math
from collections import deque
from collections.abc import Callable

import numpy as np

from testudo_deploy.control.state_prediction import PendingCommands
from testudo_deploy.monitoring.actuation_monitor import (
    actuation_limits,
    actuation_shortfall_text,
    begin_actuation_monitor,
    update_actuation_monitor,
)
from testudo_deploy.monitoring.assumption_monitor import AssumptionMonitor
from testudo_deploy.monitoring.brake_monitor import begin_brake_monitor, update_brake_monitor, weak_brakes_text
from testudo_hardware.arrays import Array, array_namespace
from testudo_hardware.motion import MotionState
from testudo_hardware.motion.motion_state import length
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import RobotSpec

STEADY_S = 1.0  # a new place is valid after poses agree for this time
JUMPS, JUMPS_S = 3, 10.0  # after this many jumps within this time an operator has to check the robot
_STANDS_M_S, _STANDS_RAD_S = 0.05, 0.2
"""A slower robot counts as standing; velocities filtered from poses are as noisy as this."""
_WAY_M, _TURN_RAD = 0.01, 0.05  # error of path and turn in one tick computed from the mean of two velocities
_FORGET_S = 0.5  # after a gap this long between two poses the commands of the time between are not all kept
_GUARD_FRESH_S = 0.15
"""After a longer silence the guard, which reports ten times a second, may be gone and the robot braked."""


class PoseValidator:
    """The place of one robot; stamps are seconds on the steady clock and rise."""

    def __init__(self, spec: RobotSpec, pose_max_age_s: float, *, turns: bool = False) -> None:
        """Begin without a place; poses farther apart than the age do not make a place steady.

        ``turns`` marks a drone with yaw rate commands, which odometry does not measure.
        """
        self._spec, self._longest_gap_s = spec, pose_max_age_s
        self._turn_rad_s = spec.yaw_rate_limit_rad_s if turns else 0.0
        # without poses the yaw rate command ends: for any gap the turn stays well below half a turn
        self._longest_turn_s = pose_max_age_s + spec.hold_s + spec.quantities["dynamics.command_delay"].high
        self.anchor: MotionState | None = None
        """The valid place, propagated by odometry while poses are not valid."""
        self.located = False
        """The newest pose is valid."""
        self.jumps_often = False
        """It jumped too often; reset by `reset_jumps`."""
        self._stamp_s = 0.0
        self._rest: MotionState | None = None
        """The first pose at a new place, propagated by odometry."""
        self._rest_since_s = 0.0
        self._jumps: deque[float] = deque()

    def forget(self) -> None:
        """Start again: the next pose is valid."""
        self.anchor, self.located, self._rest = None, False, None
        self._jumps.clear()

    def lose(self) -> None:
        """Take that the localisation dropped its place: no pose is valid before one follows, or is steady."""
        if self.located:
            self._count_jump(self._stamp_s)
        self.located, self._rest = False, None

    def reset_jumps(self) -> None:
        """Forget the jumps so far, after an operator has checked the robot."""
        self.jumps_often = False
        self._jumps.clear()

    def take(self, measured: MotionState, stamp_s: float) -> bool:
        """Take a pose of the robot, later than the one before; returns True for one that begins a new place."""
        elapsed_s, self._stamp_s = stamp_s - self._stamp_s, stamp_s
        if self.anchor is None:
            self.anchor, self.located = measured, True
            return True
        before = self.anchor.velocity
        turned_rad = self._turn_rad_s * min(elapsed_s, self._longest_turn_s)
        follows, self.anchor = follow_pose(self._spec, self.anchor, measured, elapsed_s, turned_rad)
        if follows:
            self.located, self._rest = True, None
            return False
        if self.located:
            self._count_jump(stamp_s)
        self.located = False
        if not self._is_steady(measured, before, elapsed_s, stamp_s):
            return False
        self.anchor, self.located, self._rest = measured, True, None
        return True

    def _count_jump(self, stamp_s: float) -> None:
        self._jumps.append(stamp_s)
        while stamp_s - self._jumps[0] > JUMPS_S:
            self._jumps.popleft()
        self.jumps_often |= len(self._jumps) >= JUMPS

    def _is_steady(self, measured: MotionState, before: np.ndarray, elapsed_s: float, stamp_s: float) -> bool:
        """Return whether all poses of the last `STEADY_S` agree while the robot stood and was measured."""
        if self._rest is not None and self._stands(measured) and elapsed_s <= self._longest_gap_s:
            start = MotionState(self._rest.position_world, self._rest.yaw, before)
            self._rest = propagated_by_odometry(self._spec, start, measured.velocity, elapsed_s)
            if poses_agree(self._spec, self._rest, measured):
                return stamp_s - self._rest_since_s >= STEADY_S
        self._rest, self._rest_since_s = measured, stamp_s
        return False

    def _stands(self, measured: MotionState) -> bool:
        velocity = np.asarray(measured.velocity, float)
        if self._spec.kind == DIFFERENTIAL_DRIVE:
            return bool(abs(velocity[0]) <= _STANDS_M_S and abs(velocity[1]) <= _STANDS_RAD_S)
        return float(np.linalg.norm(velocity)) <= _STANDS_M_S


def follow_pose(
    spec: RobotSpec,
    anchor: MotionState,
    measured: MotionState,
    elapsed_s: Array | float,
    turned_rad: Array | float = 0.0,
) -> tuple[Array, MotionState]:
    """Return whether the measured pose (...) follows from the one before, and the pose to compare the next one with.

    Wheel or inertial odometry propagates the anchor while the pose is not valid. Beyond the odometry two poses may
    differ by twice the error bound of the robot's localisation, and by ``turned_rad`` for a drone that may have turned
    on command, which odometry does not measure.
    """
    xp = array_namespace(measured.position_world)
    expected = propagated_by_odometry(spec, anchor, measured.velocity, elapsed_s)
    follows = poses_agree(spec, expected, measured, turned_rad)
    return follows, MotionState(
        xp.where(follows, measured.position_world, expected.position_world),
        xp.where(follows, measured.yaw, expected.yaw),
        measured.velocity,
    )


def propagated_by_odometry(
    spec: RobotSpec, anchor: MotionState, velocity: Array, elapsed_s: Array | float
) -> MotionState:
    """Return the place of a robot by odometry, from a place (...) and with the velocity (D, ...) now."""
    xp = array_namespace(velocity)
    mean = 0.5 * (anchor.velocity + velocity)
    turned = mean[1, ...] * elapsed_s if spec.kind == DIFFERENTIAL_DRIVE else 0 * anchor.yaw
    if spec.kind == DIFFERENTIAL_DRIVE:
        middle = anchor.yaw + 0.5 * turned
        mean = mean[0, ...] * xp.stack([xp.cos(middle), xp.sin(middle)])
    return MotionState(anchor.position_world + elapsed_s * mean, anchor.yaw + turned, velocity)


def poses_agree(
    spec: RobotSpec, expected: MotionState, measured: MotionState, turned_rad: Array | float = 0.0
) -> Array:
    """Return whether two poses (...) of one moment differ by no more than the errors of localisation, and this turn."""
    xp = array_namespace(measured.position_world)
    turn = xp.abs(measured.yaw - expected.yaw)
    turn = xp.abs(turn - 2 * math.pi * xp.round(turn / (2 * math.pi)))
    away = length(measured.position_world - expected.position_world)
    return (away <= 2 * spec.position_error_m + _WAY_M) & (turn <= 2 * spec.yaw_error_rad + _TURN_RAD + turned_rad)


class MotionMonitor:
    """Compares one robot's poses with the commands it was sent; times on the steady clock [s]."""

    def __init__(self, spec: RobotSpec, sent: PendingCommands) -> None:
        """Begin without a pose; the caller adds to the commands ``sent`` at every tick."""
        self._spec, self._sent = spec, sent
        delay = spec.quantities["dynamics.command_delay"]
        self._delays_s, self._zero = (delay.low, delay.high), np.zeros(spec.dimension)
        self._limits = actuation_limits(spec, np.array(0.0))
        self._passes, self._guard_s, self._vehicle_passes = True, math.inf, True
        self.assumptions = AssumptionMonitor(spec)
        self.touches: Callable[[MotionState], bool] = lambda _: False
        """Whether a robot at a pose may touch a body that it pushes: it may be slower than any command then."""
        self.weak = self.unresponsive = ""
        """The finding, ``code: details``; it is permanent, so that only a new process drives again."""

    @property
    def finding(self) -> str:
        """Return why the robot must not drive; empty if nothing was found."""
        return self.weak or self.unresponsive

    def hear_guard(self, *, passes: bool, received_s: float) -> None:
        """Take whether the guard passes commands on; otherwise the robot brakes whatever is sent."""
        self._passes, self._guard_s = passes, received_s

    def hear_vehicle(self, *, passes: bool) -> None:
        """Take whether the driver behind the guard passes commands on."""
        self._vehicle_passes = passes

    def begin(self, measured: MotionState) -> None:
        """Take the first pose."""
        self._braking = begin_brake_monitor(self._spec, measured, np.array(True))
        self._response = begin_actuation_monitor(self._limits, measured, np.array(True))
        self.assumptions.interrupt()

    def follow(self, measured: MotionState, located: bool, before_s: float, stamp_s: float, received_s: float) -> None:
        """Take a pose, whether it is valid, its stamp, and the stamp of the pose before."""
        acting = self._sent.may_act(before_s, stamp_s, self._delays_s, self._zero)
        elapsed_s, valid = np.array(stamp_s - before_s), np.array(located)
        self._braking, excess_m = update_brake_monitor(self._spec, self._braking, measured, valid, acting, elapsed_s)
        if excess_m > 0 and not self.weak:
            self.weak = weak_brakes_text(self._spec, self._braking, float(excess_m))
        heard = received_s - self._guard_s <= _GUARD_FRESH_S
        follows = self._passes and self._vehicle_passes and elapsed_s <= _FORGET_S and not self.touches(measured)
        self._compare(measured, before_s, stamp_s, drives=bool(follows and heard and located))
        if not follows:
            self._response = begin_actuation_monitor(self._limits, measured, valid)
            return
        commands = list({id(command): command for _, piece in acting for command in piece}.values())
        self._response, excess = update_actuation_monitor(
            self._limits, self._response, measured, valid, commands, elapsed_s
        )
        if excess.max() > 0 and not self.unresponsive and heard:
            self.unresponsive = actuation_shortfall_text(self._spec, self._response, excess)

    def _compare(self, measured: MotionState, before_s: float, stamp_s: float, *, drives: bool) -> None:
        """Compare the motion with the intervals of the file; ``drives`` says whether it follows the commands."""
        if self._sent.newest_s < self.assumptions.newest_s:
            self.assumptions.forget()
        for sent_s, command in self._sent.newer_than(self.assumptions.newest_s):
            self.assumptions.send(sent_s, command)
        if drives:
            self.assumptions.follow(measured, before_s, stamp_s)
        else:
            self.assumptions.pause(measured, stamp_s)
