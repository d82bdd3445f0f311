"""The stop tube: where the body can be from now until rest, if a command acts for up to T_hold and zero follows.

The driver brakes after its dead-man time at the latest, but a newer command may stop this one after any tick:
the tube is the union over all of these (shield.md, layer 2). It is given as points whose convex hull holds the
path: where the body was measured, where it is after each tick of the command, and where it rests from each of them.
"""

from __future__ import annotations

import functools

import numpy as np

from testudo_hardware.arrays import Array, array_namespace
from testudo_hardware.motion import LagResponse, MotionModel, MotionState


def stop_tube(model: MotionModel, measured_position_world: Array, estimate: MotionState, effective: Array,
              ticks: int) -> Array:
    """Return the points of the tube (D, 2 ticks + 3, ...) [m].

    Args:
        model: the robot's motion model.
        measured_position_world: last measured place (D, ...); the way from there to the estimate is driven anyhow.
        estimate: the state when the command begins to act; arrays (D, ...).
        effective: the effective command (D, ...).
        ticks: for so many control ticks the command can act.
    """
    xp = array_namespace(effective)
    response = _tick_response(model.spec.control_period_s, model.spec.velocity_lag_s)
    held = model.hold(estimate, effective, response, ticks)
    first = held.position_world[:, :1, ...]
    measured = xp.broadcast_to(measured_position_world[:, None, ...], first.shape)
    return xp.concat([measured, held.position_world, model.rest_position(held)], axis=1)


def tube_segments(tube_world: Array) -> tuple[Array, Array]:
    """Return starts and ends (D, 2 ticks + 2, ...) of the lines in a tube: along the command, and to each rest."""
    xp = array_namespace(tube_world)
    last = (tube_world.shape[1] - 1) // 2
    path, held, rest = tube_world[:, :last, ...], tube_world[:, 1:last + 1, ...], tube_world[:, last + 1:, ...]
    return xp.concat([path, held], axis=1), xp.concat([held, rest], axis=1)


@functools.cache
def _tick_response(period_s: float, lag_s: float) -> LagResponse:
    """Return how the lag follows a command over one control tick."""
    response = LagResponse.create(np.array(period_s), lag_s)
    # plain numbers, which go with the arrays of every library
    return LagResponse(period_s, float(response.gain), float(response.mean_share))
