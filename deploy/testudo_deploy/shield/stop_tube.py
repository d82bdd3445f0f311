"""The stop tube: where the body can be from now until rest, and the margins by which the body can be outside of it.

A command can act for up to T_hold. The driver brakes after its dead-man time at the latest, but a newer command may
stop this one after any tick: the tube is the union over all of these (docs/shield.md, layer 2). It is given as points
whose convex hull holds the path: where the body was measured, where it is after each tick of the command, and where it
rests from each of them.
"""

import functools
import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from testudo_deploy.shield.margin_terms import MarginTerm, sample_ticks, stop_tube_terms
from testudo_deploy.shield.residual_margin import fastest_m_s
from testudo_hardware.arrays import Array, array_namespace, stacked
from testudo_hardware.motion import LagResponse, MotionModel, MotionState
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import RobotSpec

SEGMENT_SHARE_OF_BODY = 0.25
"""Half-width of a reserved segment over the radius that is kept free: room for turning. It is at least the position
error: the measured place has to stay in the segment, and a robot whose place leaves it by noise waits for another."""


@dataclass(frozen=True)
class StopTubeParameters:
    """Parameters of the stop-tube check and the reservations beyond the motion model; lengths m, times s."""

    hold_ticks: int  # number of samples of a tube during which a command can act: T_hold in `sample_ticks`, rounded up
    lane_m: float  # half-width of a reserved segment: the estimated body centre stays within it
    tube_error_m: float  # largest distance of the body from its tube: the sum of `terms`
    clearance_m: float  # least distance of the middle lines of two robots' segments
    beside_m: float  # largest distance of a peer's control point from the middle line of its segment
    wall_m: float  # least distance of a tube, and of the middle line of a requested segment, from walls and obstacles
    untrusted_m: float  # least distance of a tube from the places where the centre of an untrusted body can be
    untrusted_speed_m_s: float  # highest speed of an untrusted neighbour
    noise_m: float  # by how much two estimates of one place can differ
    silence_s: float  # after this time without a message a peer counts as silent
    terms: tuple[MarginTerm, ...]
    height_ratio: float = 1.0
    """Heights between robots count 1/this (`geometry.z_scaled`): in segments, clearances and distances."""
    sample_ticks: int = 1  # control ticks from one point of a tube to the next

    @property
    def segment_reach_m(self) -> float:
        """Return the largest distance of a body's centre from the middle line of its reserved segment."""
        return self.lane_m + self.tube_error_m

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return asdict(self) | {"terms": [asdict(term) for term in self.terms]}


def stop_tube_parameters(own: RobotSpec, peer: RobotSpec | None = None) -> StopTubeParameters:
    """Return the parameters of a robot among peers of one kind (its own by default)."""
    peer = peer or own
    terms = stop_tube_terms(own)
    error = sum(term.value_m for term in terms)
    peer_error = sum(term.value_m for term in stop_tube_terms(peer))
    segment, peer_segment = (
        max(spec.keep_radius_m * SEGMENT_SHARE_OF_BODY, spec.position_error_m) for spec in (own, peer)
    )
    hold_ticks = math.ceil(max(own.hold_s, peer.hold_s) / own.control_period_s - 1e-9)
    sample = sample_ticks(own)
    return StopTubeParameters(
        hold_ticks=math.ceil(hold_ticks / sample),
        lane_m=segment,
        tube_error_m=error,
        clearance_m=own.keep_radius_m + peer.keep_radius_m + segment + peer_segment + error + peer_error,
        beside_m=peer_segment + peer_error + (peer.look_ahead_m if peer.kind == DIFFERENTIAL_DRIVE else 0.0),
        wall_m=own.body_radius_m + error,
        untrusted_m=own.keep_radius_m + peer.keep_radius_m + error + own.position_error_m,
        untrusted_speed_m_s=fastest_m_s(peer),
        noise_m=2 * own.position_error_m,
        silence_s=max(1.0, 10 * peer.control_period_s),
        terms=terms,
        height_ratio=max(own.height_ratio, peer.height_ratio),
        sample_ticks=sample,
    )


def with_untrusted_speed(space: StopTubeParameters, speed_m_s: float) -> StopTubeParameters:
    """Return the parameters among untrusted bodies that may be so fast, where that is more than before (rule R5)."""
    return replace(space, untrusted_speed_m_s=max(space.untrusted_speed_m_s, speed_m_s))


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
        measured_position_world: last measured place (D, ...); the path from there to the estimate is already decided.
        estimate: the state when the command begins to act; arrays (D, ...).
        effective: the effective command (D, ...).
        ticks: number of samples during which the command can act.
        sample_ticks: control ticks in one sample.
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
    """Return points (3, 3, ...) whose hull with the last held place holds the path of a drone that lost its link.

    It levels out: horizontally it moves at most at its speed until the end of its fall, while it climbs or sinks at the
    set-point that it keeps until its motors are cut. From then on it falls and takes no commands.
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

    ``ticks`` is the number of samples of the tube.
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
    # plain numbers, which combine with the arrays of every library
    return LagResponse(period_s, float(response.gain), float(response.mean_share))
