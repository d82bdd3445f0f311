"""Markers of robots: bodies, shield status, reserved and requested segments, stop tubes, goals.

Segments are drawn as the space that the body may need: widened by half of the clearance between the segments of two
robots. The areas reserved by two robots of one kind therefore never overlap; an overlap in the picture means that the
shield's guarantee is broken or that the picture is out of date.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from testudo_deploy.contract.messages import PeerMessage, SegmentEnds, TickRecord
from testudo_deploy.shield.stop_tube import StopTubeParameters, stop_tube, stop_tube_parameters
from testudo_deploy.station.markers import Colour, Marker, Shape, area, capsule, circle, hull_outline, lifted, line
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
"""Shield status of the last tick: green: command passed, yellow: changed, orange: shortened, blue: waits for a
reservation, red: brakes."""
UNKNOWN_COLOUR = (0.55, 0.55, 0.58)  # no recent message of the robot
FRESH_S = 0.5  # older data is shown as unknown, except segments, which the robot still holds
_NOMINAL: Colour = (0.75, 0.75, 0.75, 0.8)
_TEXT: Colour = (0.95, 0.95, 0.95, 1.0)
_FLOOR_M, _STEP_M = 0.002, 0.002  # areas have different heights, so that viewers do not blend them
_TEXT_M = 0.07
_ARROW_M = (0.012, 0.03, 0.03)
_ARROW_S = 1.0  # the length of an arrow is the distance covered in this time
_SLOW_M_S = 1e-3


@dataclass(frozen=True)
class RobotView:
    """Data of one robot for one picture; None where no message came."""

    name: str
    spec: RobotSpec
    position_world: tuple[float, ...] | None = None  # measured position (D,) [m]
    yaw: float = 0.0  # [rad]
    pose_age_s: float = math.inf  # time since the pose arrived
    record: TickRecord | None = None
    record_age_s: float = math.inf  # time since the record of its last tick arrived
    peer: PeerMessage | None = None  # its last peer message, for a robot whose records are not received here
    mode: str = ""  # mode of its supervisor; empty without a message
    code: str = ""  # code of the reason for which it does not drive; empty if it drives

    @property
    def status(self) -> str:
        """Return the shield status of the last tick; empty if it is not known."""
        return self.record.status if self.record is not None and self.record_age_s <= FRESH_S else ""


def fleet_markers(views: Sequence[RobotView]) -> tuple[Marker, ...]:
    """Return the markers of all robots, robot by robot."""
    return tuple(marker for view in views for marker in _robot(view))


def _robot(view: RobotView) -> list[Marker]:
    space = stop_tube_parameters(view.spec)
    made = _segments(view, space)
    if view.position_world is None:
        return made
    made += _body(view, view.position_world)
    if view.record is not None and view.status:
        made += _tube(view, view.record, space)
        made += _velocities(view, view.record)
        if not view.record.task_contract:  # of such a robot the goal of the record is its start
            made += _goal_line(view, view.position_world, view.record.goal_world)
    return made


def _body(view: RobotView, position_world: Sequence[float]) -> list[Marker]:
    """Return the body with a heading line, and its label."""
    known = view.pose_age_s <= FRESH_S
    colour = (*(STATUS_COLOURS.get(view.status, UNKNOWN_COLOUR) if known else UNKNOWN_COLOUR), 0.9 if known else 0.4)
    radius, height, namespace = view.spec.body_radius_m, view.spec.body_height_m, f"robots/{view.name}"
    centre = lifted(position_world, height / 2)
    top = centre[2] + height / 2 + _STEP_M
    front = (centre[0] + radius * math.cos(view.yaw), centre[1] + radius * math.sin(view.yaw), top)
    turned, size = quaternion_xyzw_from_yaw(view.yaw), (2 * radius, 2 * radius, height)
    above = centre[2] + height / 2 + (_TEXT_M if view.spec.dimension == 2 else 1.5 * _TEXT_M)
    place, letters = (centre[0], centre[1], above), (0.0, 0.0, _TEXT_M)
    return [
        Marker(namespace, 0, Shape.CYLINDER, colour, centre, turned, size),
        line(namespace, 1, ((centre[0], centre[1], top), front), (0.1, 0.1, 0.1, colour[3]), 0.012),
        Marker(f"labels/{view.name}", 0, Shape.TEXT, _TEXT, place, size_m=letters, text=label(view)),
    ]


def label(view: RobotView) -> str:
    """Return the text above a robot: its name, then the reason for which it does not follow its policy."""
    if view.pose_age_s > FRESH_S:
        return f"{view.name}: no pose" + (f" for {view.pose_age_s:.0f} s" if math.isfinite(view.pose_age_s) else "")
    reason = view.code or (view.record.reason.partition(":")[0] if view.record is not None and view.status else "")
    words = [
        view.mode if view.mode not in ("", "active") else view.status.replace("passed", ""),
        reason if reason != view.mode else "",
    ]
    text = ": ".join(word for word in words if word)
    return f"{view.name} {text}".rstrip()


def _segments(view: RobotView, space: StopTubeParameters) -> list[Marker]:
    """Return the reserved space of a robot, and the outline of the requested one."""
    reserved, requested = segment_ends(view)
    colour, half_m = STATUS_COLOURS.get(view.status, UNKNOWN_COLOUR), space.clearance_m / 2
    made = (
        []
        if reserved is None
        else _capsule_or_area(f"owned/{view.name}", reserved, half_m, _FLOOR_M, (*colour, 0.18), (*colour, 0.9))
    )
    if requested is not None:
        made += _capsule_or_area(f"announced/{view.name}", requested, half_m, _FLOOR_M + _STEP_M, None, (*colour, 0.45))
    return made


def segment_ends(view: RobotView) -> tuple[SegmentEnds | None, SegmentEnds | None]:
    """Return the reserved and the requested segment, from the record or else from the peer message."""
    record, peer = view.record, view.peer
    if record is not None and record.reserved_segment_world is not None:
        return record.reserved_segment_world, record.requested_segment_world if record.request_pending else None
    if peer is None:
        return None, None
    first, last = peer.requested_segment_world
    return peer.reserved_segment_world, None if first == last else peer.requested_segment_world


def _capsule_or_area(
    namespace: str, segment: SegmentEnds, half_m: float, height_m: float, fill: Colour | None, edge: Colour
) -> list[Marker]:
    """Return all points within a distance of a segment: an area on the floor, or a capsule in space."""
    first, last = segment
    if len(first) == 2:
        return area(namespace, hull_outline(np.array([first, last]).T, half_m), height_m, fill, edge)
    return capsule(namespace, first, last, half_m, fill or (*edge[:3], 0.08))


def _tube(view: RobotView, record: TickRecord, space: StopTubeParameters) -> list[Marker]:
    """Return the stop tube, computed from the record by the function of the shield."""
    points = tube_of(record, view.spec, space)
    if points is None:
        return []
    colour: Colour = (*STATUS_COLOURS[view.status], 0.35)
    radius, namespace = view.spec.body_radius_m + space.tube_error_m, f"tubes/{view.name}"
    if view.spec.dimension == 2:
        return area(namespace, hull_outline(points, radius), _FLOOR_M + 2 * _STEP_M, colour, None)
    # the farthest two of its points: in space the tube is close to a straight line
    start = points[:, 0]
    end = points[:, np.argmax(np.sum((points - start[:, None]) ** 2, axis=0))]
    return capsule(namespace, start.tolist(), end.tolist(), radius, colour)


def tube_of(record: TickRecord, spec: RobotSpec, space: StopTubeParameters) -> np.ndarray | None:
    """Return the points (D, P) [m] of the stop tube of a record's command; None if the record has no estimate."""
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


def _velocities(view: RobotView, record: TickRecord) -> list[Marker]:
    """Return arrows from the control point: nominal velocity in grey, shielded one in the colour of the status."""
    made: list[Marker] = []
    arrows = ((record.nominal_world, _NOMINAL), (record.shielded_world, (*STATUS_COLOURS[view.status], 1.0)))
    for number, (velocity, colour) in enumerate(arrows):
        if velocity is None or record.control_point_world is None or math.hypot(*velocity) < _SLOW_M_S:
            continue
        start = lifted(record.control_point_world, view.spec.body_height_m + (1 + number) * _STEP_M)
        x, y, z = (a + _ARROW_S * b for a, b in zip(start, lifted(velocity), strict=True))
        ends, namespace = (start, (x, y, z)), f"velocities/{view.name}"
        made.append(Marker(namespace, number, Shape.ARROW, colour, size_m=_ARROW_M, points_world=ends))
    return made


def _goal_line(view: RobotView, position_world: Sequence[float], goal_world: Sequence[float]) -> list[Marker]:
    """Return a thin line from the robot to its goal, and a circle there."""
    ends, rim = (lifted(place, _FLOOR_M) for place in (position_world, goal_world)), view.spec.body_radius_m
    colour = (*UNKNOWN_COLOUR, 0.5)
    return [
        line(f"ways/{view.name}", 0, tuple(ends), colour, 0.004),
        line(f"ways/{view.name}", 1, circle(goal_world, rim, _FLOOR_M), colour, 0.004),
    ]
