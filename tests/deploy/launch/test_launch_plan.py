import ast
import importlib.util
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from tests.deploy.tiny_fleet import make_tiny_fleet

from testudo_deploy.fleet.link_topics import ROBOT_TOPICS
from testudo_deploy.fleet.robot_links import LinkChoice
from testudo_deploy.fleet.robot_poses import PoseSource
from testudo_deploy.launch.fleet_topics import topics
from testudo_deploy.launch.launch_plan import (
    ProcessPlan,
    plan,
    ros_arguments,
    with_button,
    with_emulation,
    with_hold_to_run,
)
from testudo_deploy.launch.process_interfaces import process_interfaces
from testudo_deploy.launch.signed_topics import signed_topics
from testudo_deploy.launch.topic_names import HEARTBEAT_TOPIC, SCORE_TOPIC
from testudo_hardware.errors import TestudoError
from testudo_hardware.links.link_profile import load_link


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    return make_tiny_fleet(tmp_path_factory.mktemp("fleet"), 3)


def test_the_plan_is_emergency_stop_recorder_plant_station_and_guard_and_policy_of_each_robot(fleet, tmp_path):
    processes = plan(fleet, run_folder=tmp_path / "run", seed=7, duration_s=30)
    labels = [process.label for process in processes]
    robots = [f"{name}/{kind}" for name in ("r0", "r1", "r2") for kind in ("guard", "policy")]
    assert labels == ["emergency_stop", "recorder", "plant", "station", *robots]
    assert len(set(labels)) == len(labels)
    _, recorder, plant, _, guard, policy, *_ = processes
    assert recorder.parameters["run_folder"] == str(tmp_path / "run")
    assert (plant.parameters["seed"], plant.parameters["duration_s"]) == (7, 30.0)
    assert policy.parameters == {
        "fleet": str(fleet.file),
        "policy": str(fleet.policy),
        "backend": "sim",
        "robot": "r0",
        "configure": True,
    }
    assert guard.parameters["robot"] == "r0"
    for process in processes:
        assert process.package == "testudo_nodes"
        assert process.module.rpartition(".")[2] == process.executable


def test_the_plan_of_one_fleet_is_always_the_same(fleet):
    assert plan(fleet, run_folder=None) == plan(fleet, run_folder=None)


@pytest.mark.parametrize(
    ("changes", "expected_s"), [({}, 60.0), ({"task": {}}, 3600.0), ({"task": {}, "orders": True}, 60.0)]
)
def test_a_task_that_ends_by_itself_is_not_cut_off_by_the_time_out(fleet, changes, expected_s):
    [plant] = [one for one in plan(replace(fleet, **changes), run_folder=None) if one.label == "plant"]
    assert plant.parameters["duration_s"] == expected_s


def test_a_task_starts_its_node_and_its_topics_are_known_signed_and_recorded(fleet, tmp_path):
    tasked = replace(fleet, task={})
    processes = {process.label: process for process in plan(tasked, run_folder=tmp_path / "run")}
    assert "task" in processes
    assert [process.name for process in plan(tasked, run_folder=None, watch=("task",))].count("task") == 1
    node, robot, plant = (process_interfaces(processes[label], tasked) for label in ("task", "r1/policy", "plant"))
    sent = {f"/{name}/task" for name in tasked.names}
    assert sent <= node.publishes
    assert "/r1/peer_state" in node.subscribes
    assert sent & robot.subscribes == {"/r1/task"}
    assert SCORE_TOPIC in plant.subscribes  # the run ends with the task
    assert sent <= {topic.name for topic in topics(tasked)}
    assert sent <= signed_topics(tasked, "hw")
    assert not sent & {topic.name for topic in topics(fleet)}
    assert SCORE_TOPIC not in process_interfaces(processes["plant"], fleet).subscribes


def test_real_robots_need_no_plant_and_recording_can_be_left_out(fleet):
    labels = [process.label for process in plan(fleet, run_folder=None, backend="hw")]
    robots = ["r0/guard", "r0/policy", "r1/guard", "r1/policy", "r2/guard", "r2/policy"]
    assert labels == ["emergency_stop", "station", *robots]


@pytest.mark.parametrize("backend", ["sim", "hw"])
def test_what_all_computers_start_is_the_whole_plan(fleet, tmp_path, backend):
    options = {"run_folder": tmp_path / "run", "backend": backend, "seed": 3, "log_level": "info"}
    station = plan(fleet, station=True, **options)
    own = [plan(fleet, robot=name, **options) for name in fleet.names]
    assert (*station, *(process for part in own for process in part)) == plan(fleet, **options)
    assert [process.label for process in own[1]] == ["r1/guard", "r1/policy"]
    assert {process.namespace for process in station} == {""}


def test_a_part_that_does_not_exist_is_refused(fleet):
    with pytest.raises(TestudoError, match="there is no 'r9'; known are r0, r1, r2"):
        plan(fleet, run_folder=None, robot="r9")
    with pytest.raises(TestudoError, match="station: found true with robot 'r0'"):
        plan(fleet, run_folder=None, robot="r0", station=True)


@pytest.mark.parametrize(
    "wrong",
    [
        {"backend": "gazebo"},
        {"duration_s": 0},
        {"duration_s": float("nan")},
        {"duration_s": 1e6},
        {"log_level": "x"},
        {"seed": -1},
        {"seed": 2**31},
    ],
)
def test_a_wrong_choice_is_refused(fleet, wrong):
    with pytest.raises(TestudoError, match=rf"{next(iter(wrong))}: found"):
        plan(fleet, run_folder=None, **wrong)


def test_every_planned_module_exists(fleet, tmp_path):
    # looked for as files: the modules import ROS
    package = Path(importlib.util.find_spec("testudo_nodes").origin).parent
    for process in plan(fleet, run_folder=tmp_path):
        file = package.parent / f"{process.module.replace('.', '/')}.py"
        names = [node.name for node in ast.parse(file.read_text()).body if hasattr(node, "name")]
        assert "main" in names


def test_every_topic_is_recorded_once(fleet):
    found = topics(fleet)
    assert len({topic.name for topic in found}) == len(found) == 3 * (len(ROBOT_TOPICS) + 2) + 3
    assert {topic.robot for topic in found} == {"r0", "r1", "r2", ""}
    types = {topic.name: topic.type for topic in found}
    assert types["/r1/odom"] == "nav_msgs/msg/Odometry"
    assert types["/r1/cmd_vel"] == "geometry_msgs/msg/TwistStamped"
    assert types["/estop"] == types["/r1/estop"] == "std_msgs/msg/Bool"


def test_transforms_by_which_a_robot_places_itself_are_recorded(fleet):
    placed = replace(fleet.robots[0], pose=PoseSource("tf", "map", 0.0, 0.1))
    found = {topic.name: topic for topic in topics(replace(fleet, robots=(placed, *fleet.robots[1:])))}
    assert (found["/tf"].type, found["/tf"].reliable) == ("tf2_msgs/msg/TFMessage", False)


def test_topics_of_other_drivers_are_recorded_as_these_call_and_offer_them(fleet):
    renamed = LinkChoice("turtlebot4", load_link("turtlebot4"), {"cmd_vel": "base/cmd", "pose": "/mocap/poses"})
    seen = PoseSource("mocap", "world", 0.0, 0.1)
    robots = [replace(robot, link=renamed, pose=seen) for robot in fleet.robots[:2]]
    robots.append(replace(fleet.robots[2], link=renamed, pose=replace(seen, source="odom+initial")))
    found = {topic.name: topic for topic in topics(replace(fleet, robots=tuple(robots)))}
    assert found["/r0/base/cmd"].type == "geometry_msgs/msg/Twist"
    assert found["/mocap/poses"].kind == "pose"
    assert not {"/r0/cmd_vel", "/r0/odom", "/r1/pose"} & set(found)
    assert (found["/r2/odom"].kind, found["/r2/odom"].reliable) == ("odom", False)


def test_parameters_keep_their_type_on_the_way_through_the_command_line():
    values = {
        "text": "it's 1: [a]",
        "digits": "123",
        "flag": True,
        "whole": 3,
        "number": 30.0,
    }
    process = ProcessPlan("n", "p", "e", "m", "r0", values, ("--log-level", "warn"))
    words = ros_arguments(process)
    assert words[:5] == ["--ros-args", "-r", "__node:=n", "-r", "__ns:=/r0"]
    assert words[-2:] == ["--log-level", "warn"]
    settings = [after for word, after in pairwise(words) if word == "-p"]
    read = {}
    for setting in settings:
        key, _, value = setting.partition(":=")
        read[key] = yaml.safe_load(value)
    assert read == values


def test_task_and_markers_are_started_where_asked_for_and_belong_to_the_station(fleet):
    labels = [process.label for process in plan(fleet, run_folder=None, watch=("markers", "task"), station=True)]
    assert labels == ["emergency_stop", "plant", "station", "task", "markers"]
    with pytest.raises(TestudoError, match="watch: found chess, expected some of task, markers"):
        plan(fleet, run_folder=None, watch=("chess",))


def test_in_lock_step_the_plant_waits_for_all_but_those_who_only_show(fleet, tmp_path):
    processes = plan(fleet, run_folder=tmp_path / "run", watch=("task", "markers"), lock_step=True)
    by_label = {process.label: process.parameters for process in processes}
    awaited = by_label["plant"]["lock_step_nodes"].split()
    assert sorted([*awaited, "emergency_stop", "markers", "plant"]) == sorted(by_label)
    assert all(by_label[label]["lock_step"] for label in (*awaited, "plant"))
    for label in ("emergency_stop", "markers"):  # a stop waits for no stage
        assert "lock_step" not in by_label[label]
        assert by_label[label]["use_sim_time"]
    part = {process.label: process.parameters for process in plan(fleet, run_folder=None, station=True, lock_step=True)}
    assert "r0/policy" in part["plant"]["lock_step_nodes"]  # which runs elsewhere


def test_a_button_belongs_to_the_emergency_stop(fleet):
    processes = with_button(plan(fleet, run_folder=None), "/joy:1")
    assert {process.label for process in processes if "button" in process.parameters} == {"emergency_stop"}
    (stop,) = (process for process in processes if process.label == "emergency_stop")
    assert "/joy" in process_interfaces(stop, fleet).subscribes


def test_a_hold_to_run_switch_belongs_to_the_emergency_stop_and_to_every_guard(fleet):
    processes = with_hold_to_run(plan(fleet, run_folder=None), "/joy:4")
    told = {process.label for process in processes if "hold_to_run" in process.parameters}
    assert told == {"emergency_stop", *(f"{name}/guard" for name in fleet.names)}
    hears = {process.label: process_interfaces(process, fleet).subscribes for process in processes}
    assert "/joy" in hears["emergency_stop"]
    assert HEARTBEAT_TOPIC in hears["r0/guard"]
    assert HEARTBEAT_TOPIC not in process_interfaces(plan(fleet, run_folder=None, robot="r0")[0], fleet).subscribes


def test_a_switch_that_a_guard_would_not_know_of_is_refused(fleet):
    part = plan(fleet, run_folder=None, station=True)
    with pytest.raises(TestudoError, match=r"hold_to_run: found '/joy:4' for a part .* expected it in the fleet file"):
        with_hold_to_run(part, "/joy:4", whole=False)
    with pytest.raises(TestudoError, match="with lock_step"):
        with_hold_to_run(plan(fleet, run_folder=None, lock_step=True), "/joy:4")
    with pytest.raises(TestudoError, match="expected TOPIC:NUMBER"):
        with_hold_to_run(part, "/dev/input/event3")


def test_real_robots_do_not_wait(fleet):
    with pytest.raises(TestudoError, match="lock_step: found backend 'hw', expected sim"):
        plan(fleet, run_folder=None, backend="hw", lock_step=True)


def test_an_emulated_drone_is_reached_as_the_real_one_and_the_plant_alone_emulates(tmp_path):
    drones = make_tiny_fleet(tmp_path, 2, "crazyflie_2x", walls=False)
    link = LinkChoice("crazyswarm2_logged", load_link("crazyswarm2_logged"))
    fleet = replace(drones, robots=tuple(replace(robot, link=link) for robot in drones.robots))
    before = plan(fleet, run_folder=None)
    assert {one.name for one in before if "plant_flies" in one.parameters} == {"guard", "policy"}
    assert with_emulation(before, emulates=False) == before
    after = with_emulation(before, emulates=True)
    assert not any("plant_flies" in one.parameters for one in after)
    assert [one.name for one in after if "emulate" in one.parameters] == ["plant"]
