"""Markers as plain values: what is drawn is what the shield and the records say, and any viewer can take it."""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.deploy.run_messages import peer_message, tick_record
from tests.deploy.tiny_fleet import make_tiny_fleet

from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.control.control_loop import ControlLoop
from testudo_deploy.shield.arena import Arena, Ball, Block, Capsule
from testudo_deploy.shield.stop_tube import stop_tube_parameters
from testudo_deploy.shield.velocity_projection import ShieldStatus
from testudo_deploy.station.markers import (
    GoalView,
    Marker,
    Shape,
    arena_markers,
    body_marker,
    capsule,
    fill_marker,
    goal_markers,
    hull_outline,
    read_goals,
    upright_to,
)
from testudo_deploy.station.robot_markers import (
    STATUS_COLOURS,
    UNKNOWN_COLOUR,
    RobotView,
    fleet_markers,
    label,
    tube_of,
)
from testudo_hardware.spec import load_robot

SPEC = load_robot("gritsbot_x")
ROBOTS = ("gritsbot_x", "crazyflie_2x")


def driven(folder, robot, ticks=30):
    """Return the views of two robots that have driven for some ticks, where their last commands left them."""
    fleet = make_tiny_fleet(
        folder, 2, robot, lane_m=2 * stop_tube_parameters(load_robot(robot)).clearance_m, walls=False
    )
    artefact = PolicyArtefact.load(fleet.policy)
    loops = {
        robot.name: ControlLoop(
            artefact,
            robot.spec,
            robot=robot.name,
            peers=fleet.peers(robot.name),
            goal_world=robot.goal_world,
            epoch="one",
        )
        for robot in fleet.robots
    }
    for loop in loops.values():
        loop.on_guard(passes=False, received_s=0.0)  # they are where the test says, whatever they are sent
    period_s = fleet.robots[0].spec.control_period_s
    records, messages = {}, {}
    for tick in range(ticks):
        now_s = 5.0 + tick * period_s
        for item in fleet.robots:
            x, *rest = item.initial_position_world
            place = (x + 0.002 * tick, *rest)
            loops[item.name].on_odometry(now_s - 0.005, now_s, place, 0.0, (0.05,) + (0.0,) * (item.spec.dimension - 1))
            records[item.name] = loops[item.name].tick(now_s)
            messages[item.name] = loops[item.name].announcement(now_s)
            for peer in fleet.peers(item.name):
                loops[peer].on_peer(messages[item.name], now_s)
    return [
        RobotView(
            item.name,
            item.spec,
            records[item.name].measured_position_world,
            0.3,
            0.02,
            records[item.name],
            0.02,
            messages[item.name],
            "active",
        )
        for item in fleet.robots
    ]


@pytest.fixture(scope="module", params=ROBOTS)
def views(request, tmp_path_factory):
    return driven(tmp_path_factory.mktemp("markers"), request.param)


def by_namespace(markers):
    found = {}
    for marker in markers:
        found.setdefault(marker.namespace, []).append(marker)
    return found


def corners_of(marker):
    return np.array(marker.points_world)[:, :2]


def numbers_of(marker):
    return (
        *marker.position_world,
        *marker.quaternion_xyzw,
        *marker.size_m,
        *marker.colour,
        *itertools.chain.from_iterable(marker.points_world),
    )


def test_every_marker_is_unique_finite_and_has_a_unit_quaternion(views):
    arena = Arena((-2.0,) * views[0].spec.dimension, (2.0,) * views[0].spec.dimension)
    goals = [GoalView(view.name, view.record.goal_world, 0.1, True) for view in views]
    markers = (*arena_markers(arena), *goal_markers(goals), *fleet_markers(views))
    keys = [(marker.namespace, marker.number) for marker in markers]
    assert len(set(keys)) == len(keys)
    for marker in markers:
        assert np.isfinite(numbers_of(marker)).all()
        assert math.hypot(*marker.quaternion_xyzw) == pytest.approx(1.0)
        assert all(0 <= part <= 1 for part in marker.colour)
        assert (marker.shape in (Shape.TRIANGLES, Shape.LINE_LIST, Shape.LINE_STRIP, Shape.ARROW)) == bool(
            marker.points_world
        )
        if marker.shape is Shape.TRIANGLES:
            assert len(marker.points_world) % 3 == 0


def test_a_driving_robot_shows_body_lanes_tube_velocities_and_its_way(views):
    for view in views:
        assert view.status in ("passed", "projected")
    found = by_namespace(fleet_markers(views))
    for view in views:
        for kind in ("robots", "labels", "owned", "tubes", "velocities", "ways"):
            assert f"{kind}/{view.name}" in found
        body = found[f"robots/{view.name}"][0]
        assert body.shape is Shape.CYLINDER
        assert body.size_m == (2 * view.spec.body_radius_m, 2 * view.spec.body_radius_m, view.spec.body_height_m)
        assert body.colour[:3] == STATUS_COLOURS[view.status]
        assert body.position_world[:2] == view.position_world[:2]
        arrow = found[f"velocities/{view.name}"][-1]
        way = np.subtract(*arrow.points_world[::-1])[:2]
        assert way == pytest.approx(np.array(view.record.shielded_world[:2]), abs=1e-9)


def test_the_tube_is_the_one_of_the_shield_and_lies_in_the_owned_lane(views):
    for view in views:
        space = stop_tube_parameters(view.spec)
        points = tube_of(view.record, view.spec, space)
        assert points.shape == (view.spec.dimension, 2 * space.hold_ticks + (3 if view.spec.coast_s == 0 else 6))
        assert points[:, 0] == pytest.approx(np.array(view.record.measured_position_world))
        lane = view.peer.reserved_segment_world  # owned from this tick on
        along = np.array(lane[1]) - np.array(lane[0])
        share = np.clip((points - np.array(lane[0])[:, None]).T @ along / (along @ along + 1e-12), 0, 1)
        off = np.linalg.norm(points - np.array(lane[0])[:, None] - along[:, None] * share, axis=0)
        assert off.max() <= space.lane_m + 1e-9


@pytest.mark.parametrize("apart_m", [-0.001, 0.001])
def test_owned_areas_meet_only_if_lanes_are_closer_than_the_clearance(apart_m):
    """The picture shows the guarantee: areas of robots that keep it do not overlap."""
    space = stop_tube_parameters(SPEC)
    lanes = [((0.0, 0.0), (0.3, 0.0)), ((0.0, space.clearance_m + apart_m), (0.3, space.clearance_m + apart_m))]
    tops = []
    for lane in lanes:
        message = peer_message(SimpleNamespace(name="r0", spec=SPEC, initial_position_world=(0.0, 0.0)), 0, 0.0)
        message = type(message)(**{**vars(message), "reserved_segment_world": lane, "requested_segment_world": lane})
        outline = by_namespace(fleet_markers([RobotView("r0", SPEC, peer=message)]))["owned/r0"][1]
        tops.append(corners_of(outline)[:, 1])
    assert (tops[0].max() < tops[1].min()) == (apart_m > 0)


def test_every_status_of_the_shield_has_a_colour():
    assert set(STATUS_COLOURS) == {status.name.lower() for status in ShieldStatus}
    assert len(set(STATUS_COLOURS.values())) == len(STATUS_COLOURS)


def test_a_robot_that_was_never_heard_is_not_drawn_and_an_old_one_is_grey(tmp_path):
    assert fleet_markers([RobotView("r0", SPEC)]) == ()
    old = RobotView("r0", SPEC, (0.5, 0.0), 0.0, 3.2, mode="active")
    found = by_namespace(fleet_markers([old]))
    assert set(found) == {"robots/r0", "labels/r0"}
    assert found["robots/r0"][0].colour == (*UNKNOWN_COLOUR, 0.4)
    assert found["labels/r0"][0].text == "r0: no pose for 3 s"


def test_a_tick_that_braked_without_a_pose_shows_what_is_known():
    robot = SimpleNamespace(name="r0", spec=SPEC, goal_world=(1.0, 0.0))
    record = tick_record(robot, 3, 7.0)
    view = RobotView("r0", SPEC, (0.0, 0.0), 0.0, 0.1, record, 0.1)
    found = by_namespace(fleet_markers([view]))
    assert found["robots/r0"][0].colour[:3] == STATUS_COLOURS["braked"]
    assert "tubes/r0" not in found


@pytest.mark.parametrize(
    ("mode", "code", "status", "reason", "text"),
    [
        ("active", "", "passed", "", "r0"),
        ("active", "", "gated", "", "r0 gated"),
        ("", "", "waiting", "", "r0 waiting"),
        ("", "", "braked", "peer_unheard: r1", "r0 braked: peer_unheard"),
        ("holding", "stale_pose", "braked", "holding: stale_pose", "r0 holding: stale_pose"),
        ("stopped", "estop", "braked", "stopped", "r0 stopped: estop"),
        ("idle", "", "braked", "idle", "r0 idle"),
    ],
)
def test_a_label_tells_why_a_robot_does_not_drive_as_it_wants(mode, code, status, reason, text):
    record = tick_record(SimpleNamespace(name="r0", spec=SPEC, goal_world=(1.0, 0.0)), 3, 7.0)
    record = type(record)(**{**vars(record), "status": status, "reason": reason})
    assert label(RobotView("r0", SPEC, (0.0, 0.0), 0.0, 0.1, record, 0.1, mode=mode, code=code)) == text


@given(st.lists(st.tuples(st.floats(-2, 2), st.floats(-2, 2)), min_size=1, max_size=6), st.floats(0.01, 0.5))
def test_an_outline_holds_the_places_within_the_radius_and_no_others(points, radius):
    cloud = np.array(points).T
    corners = hull_outline(cloud, radius)
    edges = np.roll(corners, -1, axis=1) - corners
    assert (edges[0] * np.roll(edges[1], -1) - edges[1] * np.roll(edges[0], -1) > -1e-6).all()  # convex, left turns
    angles = np.linspace(0, 2 * np.pi, 50)
    rims = cloud[:, :, None] + 0.98 * radius * np.stack([np.cos(angles), np.sin(angles)])[:, None]
    for rim in rims.reshape(2, -1).T:
        side = edges[0] * (rim[1] - corners[1]) - edges[1] * (rim[0] - corners[0])
        assert (side >= -1e-6).all()
    assert np.abs(corners).max() <= np.abs(cloud).max() + radius + 1e-9


@pytest.mark.parametrize("direction", [(0, 0, 1), (0, 0, -1), (1, 0, 0), (0, -1, 0), (0.6, 0.0, -0.8)])
def test_a_cylinder_is_turned_to_its_direction(direction):
    x, y, z, w = upright_to(np.array(direction, float))
    turned = (2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y))
    assert turned == pytest.approx(direction, abs=1e-6)


def test_walls_stand_outside_of_the_arena_and_obstacles_where_they_are():
    obstacles = (Ball((0.5, 0.5), 0.1), Capsule((-0.5, 0.0), (-0.3, 0.2), 0.05), Block((0.0, -0.5), (0.2, 0.1), 0.4))
    found = by_namespace(arena_markers(Arena((-1.6, -1.0), (1.6, 1.0), obstacles)))
    sides = [marker for marker in found["arena"] if marker.size_m[0] > marker.size_m[1]]
    assert sorted(marker.position_world[1] for marker in sides) == pytest.approx([-1.01, 1.01])
    assert found["obstacles/0"][0].shape is Shape.CYLINDER
    assert found["obstacles/0"][0].size_m[:2] == (0.2, 0.2)
    assert corners_of(found["obstacles/1"][1]).min() == pytest.approx(-0.55, abs=0.005)
    assert found["obstacles/2"][0].size_m[:2] == (0.4, 0.2)
    assert arena_markers(None) == ()


def test_an_arena_in_space_is_shown_by_its_twelve_edges():
    (edges, ball, *rod) = arena_markers(
        Arena(
            (-1.0, -1.0, 0.0),
            (1.0, 1.0, 2.0),
            (Ball((0.0, 0.0, 1.0), 0.2), Capsule((0.5, 0.0, 0.0), (0.5, 0.0, 2.0), 0.1)),
        )
    )
    assert len(edges.points_world) == 24
    assert ball.shape is Shape.SPHERE
    assert [marker.shape for marker in rod] == [Shape.SPHERE, Shape.SPHERE, Shape.CYLINDER]
    assert len(capsule("x", (0, 0, 0), (0, 0, 0), 0.1, (1, 1, 1, 1))) == 1


def test_goals_turn_green_and_bodies_stand_on_the_floor():
    goals = [GoalView("r0", (1.0, 0.5), 0.1, False), GoalView("r1", (0.0, 0.5), 0.1, True)]
    made = by_namespace(goal_markers(goals, [body_marker("box", (0.3, 0.0), math.pi / 2, (0.4, 0.2, 0.1))]))
    blue, green = (made[f"goals/{name}"][0] for name in ("r0", "r1"))
    assert blue.size_m[:2] == (0.2, 0.2)
    assert green.colour[1] > green.colour[2] > green.colour[0] - 0.2
    assert made["goals/r1"][2].text == "r1"
    (box,) = made["bodies/box"]
    assert box.position_world == (0.3, 0.0, 0.05)
    assert box.quaternion_xyzw == pytest.approx((0, 0, math.sqrt(0.5), math.sqrt(0.5)))


def test_a_marker_is_written_into_a_message_by_its_fields():
    def blank():
        return SimpleNamespace(x=0.0, y=0.0, z=0.0, w=0.0)

    message = SimpleNamespace(
        header=SimpleNamespace(frame_id=""),
        ns="",
        id=0,
        type=0,
        scale=blank(),
        points=[],
        text="",
        pose=SimpleNamespace(position=blank(), orientation=blank()),
        lifetime=SimpleNamespace(sec=0, nanosec=0),
        color=SimpleNamespace(r=0.0, g=0.0, b=0.0, a=0.0),
    )
    marker = Marker(
        "ways/r0",
        4,
        Shape.LINE_STRIP,
        (0.1, 0.2, 0.3, 0.4),
        (1.0, 2.0, 3.0),
        (0.0, 0.0, 1.0, 0.0),
        (0.01, 0.0, 0.0),
        ((0.0, 0.0, 0.0), (1.0, 0.0, 0.5)),
        "text",
    )
    fill_marker(message, marker, SimpleNamespace, "map", 1.25)
    assert message.header.frame_id == "map"
    assert (message.ns, message.id, message.type, message.text) == ("ways/r0", 4, 4, "text")
    assert (message.pose.position.z, message.pose.orientation.z, message.scale.x, message.color.a) == (3, 1, 0.01, 0.4)
    assert (message.lifetime.sec, message.lifetime.nanosec) == (1, 250_000_000)
    assert [vars(point) for point in message.points] == [{"x": 0.0, "y": 0.0, "z": 0.0}, {"x": 1.0, "y": 0.0, "z": 0.5}]


def test_the_numbers_of_shapes_are_those_of_ros():
    marker = pytest.importorskip("visualization_msgs.msg", reason="visualization_msgs comes with ROS 2").Marker
    names = {Shape.TEXT: "TEXT_VIEW_FACING", Shape.TRIANGLES: "TRIANGLE_LIST"}
    for shape in Shape:
        assert getattr(marker, names.get(shape, shape.name)) == shape


def filled(markers):
    """Return markers as a message that is like those of ROS."""

    def empty():
        parts = ("header", "pose", "scale", "color", "lifetime")
        message = SimpleNamespace(**{name: SimpleNamespace() for name in parts})
        message.pose = SimpleNamespace(position=SimpleNamespace(), orientation=SimpleNamespace())
        return message

    return SimpleNamespace(markers=[fill_marker(empty(), one, SimpleNamespace, "world", 0.0) for one in markers])


def test_goals_are_read_back_from_their_markers_and_nothing_else_is():
    goals = (GoalView("r0", (0.5, -0.25), 0.05, reached=True), GoalView("r1", (1.0, 2.0), 0.1, reached=False))
    assert read_goals(filled(goal_markers(goals))) == goals
    assert read_goals(filled(goal_markers([GoalView("r0", (math.nan, 0.0), 0.05, reached=True)]))) == ()
    assert read_goals(filled([body_marker("box", (0.0, 0.0), 0.0, (1.0, 1.0, 1.0))])) == ()
