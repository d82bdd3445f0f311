"""Whether what a robot is told can be true: a pose that jumps, and a peer that is not where it says it is."""

from __future__ import annotations

import math

from testudo_deploy.shield.reserved_space import PeerReservations, stays_in_reserved_segments
from testudo_deploy.shield.segment_distance import point_distance, squeezed
from testudo_deploy.shield.tube_margins import StopTubeParameters
from testudo_hardware.arrays import Array, array_namespace
from testudo_hardware.motion import MotionState
from testudo_hardware.motion.motion_state import length
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import RobotSpec

_WAY_M, _TURN_RAD = 0.01, 0.05
"""What the mean of two velocities leaves of the way and the turn in one tick."""


def follow_pose(
    spec: RobotSpec,
    anchor: MotionState,
    measured: MotionState,
    elapsed_s: Array | float,
    turned_rad: Array | float = 0.0,
) -> tuple[Array, MotionState]:
    """Return whether the measured pose (...) follows from the one before, and the pose to compare the next one with.

    Wheel or inertial odometry moves the anchor on while the pose is not believed. What two poses may differ by
    beyond the odometry is twice the error bound of the robot's localisation, and ``turned_rad`` for a drone that may
    have been told to turn, of which odometry says nothing.
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
    """Return where odometry says that a robot has come from a place (...), now with a velocity (D, ...)."""
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


def left_reserved_segments(
    space: StopTubeParameters,
    peers: PeerReservations,
    seen_world: Array,
    seen_age_s: Array,
    age_s: Array,
    speed_m_s: float,
) -> Array:
    """Return which peers (K, ...) were seen (D, K, ...) where they said they would not be.

    Args:
        space: margins.
        peers: what each said last.
        seen_world: where its body was seen.
        seen_age_s: how long ago (K, ...).
        age_s: of its message, by echo (K, ...).
        speed_m_s: the peer's highest speed.
    """
    xp = array_namespace(seen_world)
    seen = squeezed(seen_world, space.height_ratio)
    lanes = (squeezed(lane, space.height_ratio, 1) for lane in (peers.owned_world, peers.announced_world))
    distance = xp.minimum(*(point_distance(seen, lane[0, ...], lane[1, ...]) for lane in lanes))
    moving_s = xp.where(
        stays_in_reserved_segments(peers, age_s, space.silence_s), seen_age_s, xp.maximum(seen_age_s, age_s)
    )
    return ~(distance <= space.lane_m + space.tube_error_m + space.noise_m + speed_m_s * moving_s)
