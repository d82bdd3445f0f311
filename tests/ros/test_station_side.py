"""What the station shows, over real DDS: scores of the task, goals, and markers, from robots that a test plays."""

import json
import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
from tests.deploy.run_messages import tick_record
from tests.deploy.tiny_fleet import make_tiny_fleet
from tests.deploy.tiny_policy import make_tiny_policy

from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.fleet.fleet import load_fleet
from testudo_deploy.fleet.fleet_writer import save_fleet
from testudo_deploy.fleet.robot_poses import PoseSource
from testudo_deploy.launch.child_processes import FleetProcesses
from testudo_deploy.launch.fleet_topics import body_topic
from testudo_deploy.launch.launch_plan import PACKAGE, ProcessPlan, node_module
from testudo_deploy.launch.topic_names import GOALS_TOPIC, MARKERS_TOPIC, SCORE_TOPIC
from testudo_hardware.links.wire import OdometryReading, fill_pose, fill_stamp

pytestmark = [
    pytest.mark.ros,
    pytest.mark.skipif(find_spec("rclpy") is None, reason="ROS 2 (rclpy) is not installed"),
    pytest.mark.xdist_group("ros-nodes"),
    pytest.mark.timeout(120),
]
PATIENCE_S = 40.0
SPEED_M_S = 0.1
ATTEMPTS = 3


def station_process(kind, of, **parameters):
    common = {"fleet": str(of.file), "policy": str(of.policy)}
    return ProcessPlan(
        kind, PACKAGE, f"{kind}_node", node_module(kind), "", common | parameters, ("--log-level", "warn")
    )


class PlayedFleet:
    """Robots that drive along x at a constant speed, and an ear for what the station says."""

    def __init__(self, fleet, processes, distance_m):
        import rclpy
        from diagnostic_msgs.msg import DiagnosticStatus
        from geometry_msgs.msg import PoseStamped
        from nav_msgs.msg import Odometry
        from std_msgs.msg import String, UInt8MultiArray
        from visualization_msgs.msg import MarkerArray

        from testudo_nodes.common.qos import OFFERED

        self.fleet, self.distance_m = fleet, distance_m
        self.scores, self.goals, self.markers = [], [], []
        self.mode, self.box_x = "armed", None
        self._start_s = None
        self._context = rclpy.Context()
        environment = processes.environment()
        os.environ.update({key: environment[key] for key in environment if key.startswith(("ROS_A", "FAST"))})
        rclpy.init(context=self._context, domain_id=processes.domain_id)
        self.node = rclpy.create_node("played", context=self._context)
        kinds = {"odom": Odometry, "tick": UInt8MultiArray, "mode": DiagnosticStatus}
        self._out = {
            (robot.name, topic): self.node.create_publisher(kind, f"/{robot.name}/{topic}", profile)
            for robot in fleet.robots
            for topic, kind in kinds.items()
            for profile in [OFFERED.get(topic, OFFERED["events"])]
        }
        self.node.create_subscription(String, SCORE_TOPIC, lambda m: self.scores.append(json.loads(m.data)), 10)
        self.node.create_subscription(MarkerArray, GOALS_TOPIC, self.goals.append, 10)
        self.node.create_subscription(MarkerArray, MARKERS_TOPIC, self.markers.append, 10)
        self._box = self.node.create_publisher(PoseStamped, body_topic("box"), 5)
        self.node.create_timer(0.03, self._play)
        self._thread = threading.Thread(target=self._spin, daemon=True)
        self._thread.start()

    def close(self):
        self._context.try_shutdown()
        self._thread.join(5)

    def drive(self):
        """Become active, and drive."""
        self.mode = "active"
        self._start_s = time.monotonic()

    def wait(self, condition, what):
        end_s = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < end_s, f"waited {PATIENCE_S} s in vain: {what}"
            time.sleep(0.02)

    def _play(self):
        from diagnostic_msgs.msg import DiagnosticStatus, KeyValue

        from testudo_nodes.common.messages import envelope_message, odometry_message

        now_s = time.monotonic()
        way = 0.0 if self._start_s is None else min(SPEED_M_S * (now_s - self._start_s), self.distance_m)
        for robot in self.fleet.robots:
            x, *rest = robot.initial_position_world
            pose = OdometryReading(now_s, (x + way, *rest), 0.0, (SPEED_M_S, 0.0))
            self._out[robot.name, "odom"].publish(odometry_message(robot.name, robot.spec, pose))
            values = {"mode": self.mode, "code": ""}
            status = DiagnosticStatus(values=[KeyValue(key=k, value=v) for k, v in values.items()])
            self._out[robot.name, "mode"].publish(status)
            record = replace(
                tick_record(robot, 1, now_s),
                status="gated",
                reason="",
                reserved_segment_world=((x, 0), (x, 1)),
                pose_stamp_s=now_s,
                measured_position_world=(x + way, *rest),
                measured_yaw=0.0,
                measured_velocity=(SPEED_M_S, 0.0),
            )
            self._out[robot.name, "tick"].publish(envelope_message(record.encode()))
        if self.box_x is not None:
            self._publish_box(now_s, self.box_x + way)

    def _publish_box(self, now_s, x):
        from geometry_msgs.msg import PoseStamped

        message = PoseStamped()
        message.header.frame_id = self.fleet.frame
        fill_stamp(message.header.stamp, now_s)
        fill_pose(message.pose, (x, 0.0, 0.05), 0.0)
        self._box.publish(message)

    def _spin(self):
        from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor

        executor = SingleThreadedExecutor(context=self._context)
        executor.add_node(self.node)
        with suppress(ExternalShutdownException):
            executor.spin()


@contextmanager
def playing(folder):
    """Yield the played fleet, whose way takes a second and a half, with task and markers running."""
    fleet = make_tiny_fleet(folder, 2, start_x=0.4, goal_x=0.6)
    processes = FleetProcesses([station_process("task", fleet), station_process("markers", fleet)])
    robots = PlayedFleet(fleet, processes, 0.15)
    try:
        with processes:
            yield SimpleNamespace(robots=robots, processes=processes)
    finally:
        robots.close()


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """Return a played fleet that stays armed."""
    with playing(tmp_path_factory.mktemp("played")) as fleet:
        yield fleet


def drive_to_success(robots):
    """Drive once everything is measured and shown; return the scores of the decisions."""
    robots.wait(lambda: robots.scores, "the task says what it waits for")
    robots.wait(lambda: robots.scores[-1]["waits_for"] == ["r0: armed", "r1: armed"], "all are measured")
    robots.wait(lambda: robots.goals and robots.markers, "goals and markers")
    robots.drive()
    robots.wait(lambda: robots.scores[-1]["state"] == "success", "success")
    return [score for score in robots.scores if score["state"] != "waiting"]


def check_run(playing, drive, *checks):
    """Play until no pose was missing, then check the scores.

    Poses that a stalled machine sends too late leave a decision without reward; such a run is played again.
    """
    for _ in range(ATTEMPTS):
        with playing() as played:
            scores = drive(played.robots)
            missing = [score["missing"] for score in scores]
            if not any(missing):
                for check in checks:
                    check(played, scores)
                return
    pytest.fail(f"poses were missing in each of {ATTEMPTS} runs, in the last by decision: {missing}")


def test_the_task_is_scored_and_shown_from_the_first_drive_to_success(tmp_path):
    check_run(lambda: playing(tmp_path), drive_to_success, assert_scored, assert_shown)


def assert_scored(_, scores):
    assert [score["decision"] for score in scores] == list(range(1, len(scores) + 1))
    first, last = scores[0], scores[-1]
    # 3.3 cm of the 6.6 cm that a robot can drive in a decision
    assert first["terms"]["r0"]["progress"] == pytest.approx(0.5, abs=0.2)
    assert last["terms"]["r1"]["success"] == 5.0
    assert last["signals"]["r1"]["goal_world"] == pytest.approx([0.6, 0.5])
    assert last["times_of_arrival"] == []


def assert_shown(played, _):
    robots, kinds = played.robots, []
    robots.wait(
        lambda: (
            kinds.append(played.processes.next_event(0.1))
            or (kinds[-1] is not None and kinds[-1].kind == "task_finished")
        ),
        "the supervisor is told",
    )
    assert kinds[-1].values["outcome"] == "success"
    assert not [event for event in kinds if event is not None and event.kind == "error_line"]
    robots.wait(lambda: robots.goals[-1].markers[0].color.g > 0.7, "reached goals are green")
    names = {marker.ns for marker in robots.markers[-1].markers}
    assert {"arena", "robots/r0", "robots/r1", "labels/r0", "owned/r1"} <= names
    assert {marker.header.frame_id for marker in robots.markers[-1].markers} == {"world"}


@contextmanager
def pushing(folder):
    """Yield played robots that push a box; motion capture sees them, and the box once it is told to."""
    fleet = make_tiny_fleet(folder, 2, start_x=-0.5)
    make_tiny_policy(fleet.policy, fleet.robots[0].spec, edit=lambda values: values.update(scenario="push_box"))
    seen = PoseSource("mocap", "room", 0.0, fleet.robots[0].spec.pose_max_age_s)
    robots = tuple(replace(robot, pose=seen) for robot in fleet.robots)
    save_fleet(replace(fleet, policy_sha256=PolicyArtefact.load(fleet.policy).sha256, robots=robots), fleet.file)
    process = station_process("task", fleet, task='{"goal_world": [0.4, 0.0]}', start_on="poses")
    processes = FleetProcesses([process])
    robots = PlayedFleet(load_fleet(fleet.file), processes, 0.1)
    try:
        with processes:
            yield SimpleNamespace(robots=robots, processes=processes)
    finally:
        robots.close()


def push_to_success(robots):
    """Show the box once it is waited for by name, push it; return the scores of the decisions."""
    wanted = ["box: no pose on /task/box/pose: rewards and success are unknown"]
    robots.wait(lambda: robots.scores and robots.scores[-1]["waits_for"] == wanted, "only the box is missing")
    robots.box_x = 0.25  # 15 cm from its goal, of which it comes 10 cm: 5 cm are within the tolerance
    robots.drive()
    robots.wait(lambda: robots.scores[-1]["state"] == "success", "success")
    return [score for score in robots.scores if score["state"] != "waiting"]


def assert_pushed(pushed, scores):
    # 3.3 cm of the 6.6 cm that a robot can drive in a decision, three times
    assert max(score["terms"]["r0"]["push"] for score in scores) == pytest.approx(1.5, abs=0.3)
    assert scores[-1]["terms"]["r1"]["success"] == 10.0
    assert scores[-1]["signals"]["r0"].keys() == {"goal_world", "box_position_world", "box_quarter_yaw"}
    robots = pushed.robots
    robots.wait(
        lambda: ("bodies/box", "room") in {(marker.ns, marker.header.frame_id) for marker in robots.goals[-1].markers},
        "the box is shown",
    )


def test_a_box_is_waited_for_by_name_and_scored_once_it_is_measured(tmp_path):
    check_run(lambda: pushing(tmp_path), push_to_success, assert_pushed)


def run_status(played, *words):
    return subprocess.run(
        [sys.executable, "-m", "testudo_deploy.cli", "status", "--wait", "4", *words],
        env=played.processes.environment() | {"COLUMNS": "160"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_status_shows_the_fleet_once(played, tmp_path):
    numbers = tmp_path / "status.json"
    result = run_status(played, "--once", "--json", str(numbers))
    assert result.returncode == 0, result.stderr
    assert f"ROS_DOMAIN_ID={played.processes.domain_id}" in result.stdout
    values = json.loads(numbers.read_text())["robots"]
    assert {name: robot["mode"] for name, robot in values.items()} == {"r0": "armed", "r1": "armed"}
    assert values["r0"]["guard"] is None


def test_status_says_where_it_listens_if_nothing_is_heard(played):
    other = str(played.processes.domain_id % 100 + 1)
    result = run_status(played, "--once", "--wait", "1", "--domain", other)
    assert result.returncode == 1
    assert f"ROS_DOMAIN_ID={other}" in result.stdout


slow = partial(pytest.param, marks=pytest.mark.slow)  # a process each; of the same refusal one is in `make test`


@pytest.mark.parametrize(
    ("kind", "parameters", "message"),
    [
        slow("task", {"task": "[1]"}, "parameter task: found [1], expected an object"),
        ("task", {"task": '{"gaol": 1}'}, "'gaol' is not known; known are goal_world"),
        slow("task", {"start_on": "monday"}, "start_on: found 'monday', expected active or poses"),
        slow("markers", {"fleet": "nowhere.yaml"}, "no such fleet file"),
    ],
)
def test_a_wrong_parameter_is_refused_in_one_line(tmp_path, kind, parameters, message):
    from tests.ros.test_nodes import run_node

    result = run_node(station_process(kind, make_tiny_fleet(tmp_path, 1), **parameters))
    assert result.returncode == 2
    (line,) = result.stderr.strip().splitlines()
    assert line.startswith("refused: ")
    assert message in line
