"""Registers the robot side's dataclasses as JAX pytrees, so that the same types run under jit."""

from __future__ import annotations

import jax

from testudo_deploy.neighbours import NeighbourTable
from testudo_deploy.shield.layer1 import ShieldResult
from testudo_deploy.shield.space import OwnSpace, PeerSpaces
from testudo_deploy.tracking import BrakingWatch
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
