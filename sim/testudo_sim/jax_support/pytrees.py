"""Registers the robot side's dataclasses as JAX pytrees, so that the same types run under jit."""

from __future__ import annotations

import jax

from testudo_deploy.monitoring.brake_monitor import BrakingWatch
from testudo_deploy.shield.peer_table import NeighbourTable
from testudo_deploy.shield.reserved_space import OwnSpace, PeerSpaces
from testudo_deploy.shield.velocity_projection import ShieldResult
from testudo_hardware.motion import LagResponse, MotionState, StoppingPoint

for _type in (
    BrakingWatch,
    LagResponse,
    MotionState,
    NeighbourTable,
    OwnSpace,
    PeerSpaces,
    ShieldResult,
    StoppingPoint,
):
    jax.tree_util.register_dataclass(_type)
