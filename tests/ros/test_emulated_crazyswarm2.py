"""Crazyswarm2 as the plant stands in for it: services, status and poses of drones, with objects for its messages."""

import tomllib
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
from tests.hardware import plain_messages as plain

pytestmark = [
    pytest.mark.ros,
    pytest.mark.skipif(find_spec("rclpy") is None, reason="ROS 2 (rclpy) is not installed"),
]

from testudo_deploy.fleet.fleet import FleetRobot  # noqa: E402
from testudo_deploy.fleet.pose_source import sensed_topics  # noqa: E402
from testudo_deploy.fleet.robot_links import LinkChoice  # noqa: E402
from testudo_deploy.fleet.robot_poses import PoseSource  # noqa: E402
from testudo_hardware.errors import TestudoError  # noqa: E402
from testudo_hardware.links.crazyswarm2 import CALLS, read_status  # noqa: E402
from testudo_hardware.links.flight_link import FlightAct, FlightRequest  # noqa: E402
from testudo_hardware.links.link_profile import NAMED_POSES, load_link  # noqa: E402
from testudo_hardware.links.wire import PoseReading, read_named_pose  # noqa: E402
from testudo_hardware.spec import parse_robot, robot_files  # noqa: E402
from testudo_plant.plant.link_emulation import LinkEmulation  # noqa: E402
from testudo_plant.plant.plant import Plant  # noqa: E402

if find_spec("rclpy") is not None:
    from testudo_nodes.plant import crazyflie_server_topics as topics

STATUS_S = 0.2
EMPTY = {
    NAMED_POSES: plain.named_poses,
    NAMED_POSES.removesuffix("Array"): lambda: SimpleNamespace(name="", pose=plain.pose()),
}


class Clock:
    """Notes what is published, by topic."""

    in_lock_step = False

    def __init__(self):
        self.sent = {}

    def publisher(self, _kind, topic, _quality):
        return SimpleNamespace(publish=lambda message: self.sent.setdefault(topic, []).append(message))


class Server:
    """Two drones of the plant behind the services of crazyflie_server."""

    def __init__(self):
        self.services, self.clock = {}, Clock()
        node = SimpleNamespace(create_service=lambda _, name, callback: self.services.update({name: callback}))
        text = robot_files()["crazyflie_2x"].read_text(encoding="utf-8")
        tables = tomllib.loads(text.replace("onboard_brake = { value = 1", "onboard_brake = { value = 0"))
        spec = parse_robot(tables, "a Crazyflie without an app on board")
        link = LinkChoice("crazyswarm2", load_link("crazyswarm2"))
        pose = PoseSource("mocap", "world", 0.001, spec.pose_max_age_s)
        self.robots = [
            FleetRobot(name, "crazyflie_2x", (x, 0.0, 1.0), 0.0, (x, 0.0, 1.0), spec, link=link, pose=pose)
            for name, x in (("cf1", 0.0), ("cf2", 2.0))
        ]
        links = [LinkEmulation(robot, emulates=True) for robot in self.robots]
        self.plant = Plant([link.plant_robot() for link in links], None, 0)
        self.drones = [
            topics.CrazyflieServerTopics(node, self.clock, self.plant, robot, link.status_s)
            for robot, link in zip(self.robots, links, strict=True)
        ]
        topics.serve_all(node, self.drones)

    def ask(self, whom, act, **values):
        call = CALLS[act]
        request = SimpleNamespace(arm=None, group_mask=0, height=0.0, duration=plain.stamp())
        call.fill(request, FlightRequest(act, **values))
        assert self.services[f"/{whom}/{call.name}"](request, "answer") == "answer"

    def fly(self, seconds, *, command=None):
        """Advance the plant, with set-points for cf1 if ``command`` is one; return what its status says then."""
        end_s = self.plant.time_s + seconds
        while self.plant.time_s < end_s:
            now_s = self.plant.time_s + 0.02
            if command is not None:
                self.plant.command("cf1", command, now_s, now_s)
            self.plant.step_to(now_s)
            for drone in self.drones:
                drone.publish(now_s)
        return read_status(self.clock.sent["/cf1/status"][-1], now_s)

    def height_m(self, name):
        return self.plant.truth(name).position_world[2]


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(topics, "message_class", lambda name: EMPTY.get(name, SimpleNamespace))
    return Server()


def test_services_take_off_and_land_a_drone_and_its_status_tells(server):
    assert not server.fly(0.1).armed
    server.ask("cf1", FlightAct.ARM)
    server.fly(0.2)
    server.ask("cf1", FlightAct.TAKE_OFF, height_m=0.5, duration_s=1.0)
    state = server.fly(1.1)
    assert (state.armed, state.flying, state.planner_active) == (True, True, True)
    assert server.height_m("cf1") == pytest.approx(0.5, abs=0.15)
    assert not server.fly(0.3, command=(0.1, 0.0, 0.0)).planner_active
    # set-points have priority: the server refuses a take-off, and a landing waits for their end
    server.ask("cf1", FlightAct.TAKE_OFF, height_m=2.0, duration_s=1.0)
    server.ask("cf1", FlightAct.LAND, height_m=0.0, duration_s=1.0)
    server.ask("cf1", FlightAct.NOTIFY_SETPOINTS_STOP)
    assert not server.fly(1.5).flying
    assert server.height_m("cf1") < 0.1
    assert len(server.clock.sent["/cf1/status"]) == pytest.approx(server.plant.time_s / STATUS_S, abs=2)


def test_silence_levels_out_and_cuts_the_motors_and_the_emergency_of_all_reaches_each(server):
    for name in ("cf1", "cf2"):
        server.ask(name, FlightAct.ARM)
    server.fly(0.2)
    for name in ("cf1", "cf2"):
        server.ask(name, FlightAct.TAKE_OFF, height_m=0.5, duration_s=0.8)
    server.fly(0.9)
    server.fly(0.1, command=(0.0, 0.0, 0.0))
    assert not server.fly(1.5).locked
    assert server.fly(0.8).locked  # the watchdog of the firmware, 2 s after the last set-point
    assert server.plant.vehicle("cf2").flying
    server.ask("all", FlightAct.EMERGENCY)
    server.fly(0.1)
    assert server.plant.vehicle("cf2").locked


def test_poses_of_one_moment_are_in_one_message_and_a_late_one_in_another(server):
    shared = topics.SharedPoses(server.clock)
    [topic] = sensed_topics(server.robots[0])
    for robot in server.robots:
        shared.open(sensed_topics(robot)[0])
    for name, stamp_s in (("cf1", 5.0), ("cf2", 5.0), ("cf1", 5.01)):
        shared.add(name, topic, PoseReading(stamp_s, (stamp_s, 0.0, 1.0), 0.0))
    shared.publish()
    shared.publish()
    found = server.clock.sent["/poses"]
    assert [[body.name for body in message.poses] for message in found] == [["cf1", "cf2"], ["cf1"]]
    reading = read_named_pose(found[1], "cf1", "world", 3, "test")
    assert (reading.stamp_s, reading.position_world[0]) == (pytest.approx(5.01), pytest.approx(5.01))


def test_lock_step_has_no_services(server):
    server.clock.in_lock_step = True
    with pytest.raises(TestudoError, match="cf1: link: found 'crazyswarm2' emulated in lock-step, expected real time"):
        topics.CrazyflieServerTopics(SimpleNamespace(), server.clock, server.plant, server.robots[0], STATUS_S)
