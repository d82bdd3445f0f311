"""The raw signals that a policy reads: made here, and nowhere else, from what a robot knows."""

from __future__ import annotations

from collections.abc import Mapping

from testudo_deploy.shield.velocity_projection import PeerTable, extrapolated
from testudo_hardware.arrays import Array, array_namespace
from testudo_hardware.motion import MotionState, StoppingPoint

NEIGHBOUR_SIGNALS = ("neighbour_position_world", "neighbour_velocity_world", "neighbour_age", "neighbour_valid")


def policy_signals(
    estimate: MotionState, stop: StoppingPoint, table: PeerTable, hold_s: float, task: Mapping[str, Array]
) -> dict[str, Array]:
    """Return every signal by its name in the contract, component first: (D, ...) or (D, K, ...).

    Args:
        estimate: the delay-compensated own state.
        stop: its stopping point.
        table: the neighbours, slots (K, ...).
        hold_s: longest time for which an announced velocity is extrapolated.
        task: the scenario's own signals, for example ``goal_world`` (D, ...) [m].
    """
    xp = array_namespace(table.age_s)
    dtype = stop.position_world.dtype
    return {
        "position_world": estimate.position_world,
        "yaw": estimate.yaw[None, ...],
        "velocity": estimate.velocity,
        "control_point_world": stop.position_world,
        "neighbour_position_world": extrapolated(table, hold_s),
        "neighbour_velocity_world": table.control_velocity_world,
        "neighbour_age": table.age_s,
        "neighbour_valid": xp.astype(table.valid, dtype),
        **task,
    }
