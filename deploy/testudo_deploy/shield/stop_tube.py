"""The stop tube: where the body can be from now until rest, if a command acts for up to T_hold and zero follows.

The driver brakes after its dead-man time at the latest, but a newer command may stop this one after any tick:
the tube is the union over all of these (shield.md, layer 2). It is given as points whose convex hull holds the
path: where the body was measured, where it is after each tick of the command, and where it rests from each of them.
"""

from __future__ import annotations

import functools

import numpy as np

from testudo_hardware.arrays import Array, array_namespace, stacked
from testudo_hardware.motion import LagResponse, MotionModel, MotionState
from testudo_hardware.spec import RobotSpec


def stop_tube(
    model: MotionModel,
    measured_position_world: Array,
    estimate: MotionState,
    effective: Array,
    ticks: int,
    sample_ticks: int = 1,
) -> Array:
    """Return the points of the tube (D, 2 ticks + 3, ...) [m]; three more where a silent robot coasts.

    Args:
        model: the robot's motion model.
        measured_position_world: last measured place (D, ...); the way from there to the estimate is driven anyhow.
        estimate: the state when the command begins to act; arrays (D, ...).
        effective: the effective command (D, ...).
        ticks: for so many samples the command can act.
        sample_ticks: control ticks in one of them.
    """
    xp = array_namespace(effective)
    response = _tick_response(sample_ticks * model.spec.control_period_s, model.spec.velocity_lag_s)
    held = model.hold(estimate, effective, response, ticks)
    first = held.position_world[:, :1, ...]
    measured = xp.broadcast_to(measured_position_world[:, None, ...], first.shape)
    points = [measured, held.position_world, model.rest_position(held)]
    if model.spec.coast_s > 0:
        points.append(_coasting(model.spec, held, effective))
    return xp.concat(points, axis=1)


def _coasting(spec: RobotSpec, held: MotionState, effective: Array) -> Array:
    """Return points (3, 3, ...) whose hull with the last held place holds the way of a drone that has gone silent.

    It levels out: along the floor it goes on at its speed at most, to the end of its fall, while it climbs or sinks at
    the set-point that it keeps, until its motors are cut. From then on it falls, and nothing can be asked of it.
    """
    xp = array_namespace(effective)
    level, cut = (spec.silence[f"silence.{name}_after"] for name in ("level", "cut"))
    place, velocity = held.position_world[:, -1, ...], held.velocity[:, -1, ...]
    rate = xp.where(xp.abs(effective) > xp.abs(velocity), effective, velocity)[2, ...]
    still = 0 * rate
    along = spec.coast_s * stacked(velocity[0, ...], velocity[1, ...], still)
    up = (cut.high - level.low) * stacked(still, still, rate)
    return xp.concat([(place + way)[:, None, ...] for way in (up, along, along + up)], axis=1)


def tube_segments(tube_world: Array, ticks: int) -> tuple[Array, Array]:
    """Return starts and ends (D, S, ...) of the lines in a tube: along the command, to each rest, and along a coasting.

    Args:
        tube_world: of `stop_tube`.
        ticks: that it was made for.
    """
    xp = array_namespace(tube_world)
    last = ticks + 1
    path, held = tube_world[:, :last, ...], tube_world[:, 1 : last + 1, ...]
    rest, coast = tube_world[:, last + 1 : 2 * last + 1, ...], tube_world[:, 2 * last + 1 :, ...]
    begin = xp.broadcast_to(held[:, -1:, ...], coast.shape)
    return xp.concat([path, held, begin], axis=1), xp.concat([held, rest, coast], axis=1)


@functools.cache
def _tick_response(period_s: float, lag_s: float) -> LagResponse:
    """Return how the lag follows a command over one control tick."""
    response = LagResponse.create(np.array(period_s), lag_s)
    # plain numbers, which go with the arrays of every library
    return LagResponse(period_s, float(response.gain), float(response.mean_share))
