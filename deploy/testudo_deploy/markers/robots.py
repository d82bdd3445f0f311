"""The robots of a fleet: bodies, what the shield does, owned and announced lanes, stop tubes, where they head.

Lanes are drawn as the space that the robot's body may need: its lane, widened by half of the clearance that two lanes
keep. The areas that two robots of one kind own therefore never overlap; if they do in a picture, the shield's guarantee
is broken or what is shown is old.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from testudo_deploy.contract.messages import PeerMessage, SegmentEnds, TickRecord
from testudo_deploy.markers.marker import Colour, Marker, Shape
from testudo_deploy.markers.shapes import area, capsule, circle, hull_outline, lifted, line
from testudo_deploy.shield.stop_tube import StopTubeParameters, stop_tube, stop_tube_parameters
from testudo_hardware.frames import quaternion_xyzw_from_yaw
from testudo_hardware.motion import MotionState, motion_model
from testudo_hardware.motion.motion_model import effective_command
from testudo_hardware.spec import RobotSpec

STATUS_COLOURS: dict[str, tuple[float, float, float]] = {
    "passed": (0.20, 0.75, 0.35),
    "projected": (0.98, 0.80, 0.15),
    "gated": (0.98, 0.55, 0.10),
    "waiting": (0.25, 0.55, 0.95),
    "braked": (0.90, 0.20, 0.20),
}
"""What the shield did in the last tick: green let the command through, yellow changed it, orange shortened it, blue
waits for space, red brakes."""
UNKNOWN_COLOUR = (0.55, 0.55, 0.58)
"""Nothing young was heard of the robot."""
FRESH_S = 0.5
"""What is older than this is shown as unknown; lanes stay, since the robot still owns them."""
_WISH: Colour = (0.75, 0.75, 0.75, 0.8)
_TEXT: Colour = (0.95, 0.95, 0.95, 1.0)
_FLOOR_M, _STEP_M = 0.002, 0.002
"""Areas lie above each other, so that viewers do not mix them."""
_TEXT_M = 0.07
_ARROW_M = (0.012, 0.03, 0.03)
_ARROW_S = 1.0
"""An arrow is as long as the way in this time."""
_SLOW_M_S = 1e-3


@dataclass(frozen=True)
class RobotView:
    """What is known of one robot when a picture is made; None where nothing was heard."""

    name: str
    spec: RobotSpec
    position_world: tuple[float, ...] | None = None
    """(D,) [m]: as measured."""
    yaw: float = 0.0
    """[rad]."""
    pose_age_s: float = math.inf
    """Since the pose arrived."""
    record: TickRecord | None = None
    record_age_s: float = math.inf
    """Since the record of its last tick arrived."""
    peer: PeerMessage | None = None
    """Its last announcement, for a robot whose records do not come this far."""
    mode: str = ""
    """Of its supervisor; empty if it was not heard."""
    code: str = ""
    """Why it does not drive; empty if it does."""

    @property
    def status(self) -> str:
        """Return what the shield did in the last tick; empty if that is not known."""
        return self.record.status if self.record is not None and self.record_age_s <= FRESH_S else ""


def fleet_markers(views: Sequence[RobotView]) -> tuple[Marker, ...]:
    """Return all markers of the robots, those of one robot after the other."""
    return tuple(marker for view in views for marker in _robot(view))


def _robot(view: RobotView) -> list[Marker]:
    space = stop_tube_parameters(view.spec)
    made = _lanes(view, space)
    if view.position_world is None:
        return made
    made += _body(view)
    if view.status:
        made += [*_tube(view, space), *_velocities(view), *_way(view)]
    return made


def _body(view: RobotView) -> list[Marker]:
    """Return the body with a line to its front, and its label."""
    known = view.pose_age_s <= FRESH_S
    colour = (*(STATUS_COLOURS.get(view.status, UNKNOWN_COLOUR) if known else UNKNOWN_COLOUR), 0.9 if known else 0.4)
    radius, height = view.spec.body_radius_m, view.spec.body_height_m
    flat = view.spec.dimension == 2
    centre = lifted(view.position_world, height / 2)
    top = centre[2] + height / 2 + _STEP_M
    front = (centre[0] + radius * math.cos(view.yaw), centre[1] + radius * math.sin(view.yaw), top)
    made = [
        Marker(
            f"robots/{view.name}",
            0,
            Shape.CYLINDER,
            colour,
            centre,
            quaternion_xyzw_from_yaw(view.yaw),
            (2 * radius, 2 * radius, height),
        ),
        line(f"robots/{view.name}", 1, ((centre[0], centre[1], top), front), (0.1, 0.1, 0.1, colour[3]), 0.012),
    ]
    above = centre[2] + height / 2 + (_TEXT_M if flat else 1.5 * _TEXT_M)
    return [
        *made,
        Marker(
            f"labels/{view.name}",
            0,
            Shape.TEXT,
            _TEXT,
            (centre[0], centre[1], above),
            size_m=(0.0, 0.0, _TEXT_M),
            text=label(view),
        ),
    ]


def label(view: RobotView) -> str:
    """Return the text above a robot: name, then what keeps it from driving as it wants."""
    if view.pose_age_s > FRESH_S:
        return f"{view.name}: no pose" + (f" for {view.pose_age_s:.0f} s" if math.isfinite(view.pose_age_s) else "")
    reason = view.code or (view.record.reason.partition(":")[0] if view.status else "")
    words = [
        view.mode if view.mode not in ("", "active") else view.status.replace("passed", ""),
        reason if reason != view.mode else "",
    ]
    text = ": ".join(word for word in words if word)
    return f"{view.name} {text}".rstrip()


def _lanes(view: RobotView, space: StopTubeParameters) -> list[Marker]:
    """Return the space that the robot owns, and in outline the one that it asks for."""
    owned, announced = _lanes_of(view)
    colour, half_m = STATUS_COLOURS.get(view.status, UNKNOWN_COLOUR), space.clearance_m / 2
    made = (
        [] if owned is None else _swept(f"owned/{view.name}", owned, half_m, _FLOOR_M, (*colour, 0.18), (*colour, 0.9))
    )
    if announced is not None:
        made += _swept(f"announced/{view.name}", announced, half_m, _FLOOR_M + _STEP_M, None, (*colour, 0.45))
    return made


def _lanes_of(view: RobotView) -> tuple[SegmentEnds | None, SegmentEnds | None]:
    """Return the owned lane and the one that is asked for, by what is newest of record and announcement."""
    record, peer = view.record, view.peer
    if record is not None and record.reserved_segment_world is not None:
        return record.reserved_segment_world, record.requested_segment_world if record.request_pending else None
    if peer is None:
        return None, None
    first, last = peer.requested_segment_world
    return peer.reserved_segment_world, None if first == last else peer.requested_segment_world


def _swept(
    namespace: str, lane: SegmentEnds, half_m: float, height_m: float, fill: Colour | None, edge: Colour
) -> list[Marker]:
    """Return all places within a distance of a lane: an area on the floor, or a body in space."""
    first, last = lane
    if len(first) == 2:
        return area(namespace, hull_outline(np.array([first, last]).T, half_m), height_m, fill, edge)
    return capsule(namespace, first, last, half_m, fill or (*edge[:3], 0.08))


def _tube(view: RobotView, space: StopTubeParameters) -> list[Marker]:
    """Return where the body can be until it rests, worked out from the record by the shield's own function."""
    points = tube_of(view.record, view.spec, space)
    if points is None:
        return []
    colour: Colour = (*STATUS_COLOURS[view.status], 0.35)
    radius = view.spec.body_radius_m + space.tube_error_m
    if view.spec.dimension == 2:
        return area(f"tubes/{view.name}", hull_outline(points, radius), _FLOOR_M + 2 * _STEP_M, colour, None)
    # the farthest two of its points: in space the tube is close to a straight line
    start = points[:, 0]
    return capsule(
        f"tubes/{view.name}",
        start,
        points[:, np.argmax(np.sum((points - start[:, None]) ** 2, axis=0))],
        radius,
        colour,
    )


def tube_of(record: TickRecord, spec: RobotSpec, space: StopTubeParameters) -> np.ndarray | None:
    """Return the points (D, P) [m] of the stop tube of the command that a record tells; None if it had no estimate."""
    if record.estimate_position_world is None or record.measured_position_world is None:
        return None
    model = motion_model(spec)
    estimate = MotionState(
        np.array(record.estimate_position_world), np.array(record.estimate_yaw), np.array(record.estimate_velocity)
    )
    return stop_tube(
        model,
        np.array(record.measured_position_world),
        estimate,
        effective_command(model, np.array(record.sent_command)),
        space.hold_ticks,
        space.sample_ticks,
    )


def _velocities(view: RobotView) -> list[Marker]:
    """Return arrows from the control point: what the policy wants in grey, what is sent in the colour of the shield."""
    record = view.record
    made = []
    for number, (velocity, colour) in enumerate(
        ((record.nominal_world, _WISH), (record.shielded_world, (*STATUS_COLOURS[view.status], 1.0)))
    ):
        if velocity is None or record.control_point_world is None or math.hypot(*velocity) < _SLOW_M_S:
            continue
        height = view.spec.body_height_m + (1 + number) * _STEP_M
        start = lifted(record.control_point_world, height)
        end = tuple(a + _ARROW_S * b for a, b in zip(start, lifted(velocity), strict=True))
        made.append(
            Marker(f"velocities/{view.name}", number, Shape.ARROW, colour, size_m=_ARROW_M, points_world=(start, end))
        )
    return made


def _way(view: RobotView) -> list[Marker]:
    """Return a thin line from the robot to where its policy heads."""
    goal = view.record.goal_world
    ends = (lifted(view.position_world, _FLOOR_M), lifted(goal, _FLOOR_M))
    colour = (*UNKNOWN_COLOUR, 0.5)
    return [
        line(f"ways/{view.name}", 0, ends, colour, 0.004),
        line(f"ways/{view.name}", 1, circle(goal, view.spec.body_radius_m, _FLOOR_M), colour, 0.004),
    ]
