"""Registers the robot side's dataclasses as JAX pytrees, so that the same types run under jit."""

from __future__ import annotations

import jax

from testudo_deploy.monitoring.brake_monitor import BrakeMonitorState
from testudo_deploy.shield.reservations import PeerReservations, ReservedSpace
from testudo_deploy.shield.velocity_projection import PeerTable, ShieldResult
from testudo_hardware.motion import LagResponse, MotionState, StoppingPoint

for _type in (
    BrakeMonitorState,
    LagResponse,
    MotionState,
    PeerTable,
    ReservedSpace,
    PeerReservations,
    ShieldResult,
    StoppingPoint,
):
    jax.tree_util.register_dataclass(_type)
