"""Bodies of a fleet file that are no robots: read, written, recorded and published by whom they may be."""

import re

import pytest
from tests.deploy.tiny_fleet import make_tiny_fleet

from testudo_deploy.fleet.fleet import FleetError, parse_fleet
from testudo_deploy.fleet.fleet_bodies import FleetBody
from testudo_deploy.fleet.fleet_writer import fleet_text
from testudo_deploy.launch.fleet_topics import topics
from testudo_deploy.launch.launch_plan import plan
from testudo_deploy.launch.process_interfaces import process_interfaces
from testudo_deploy.launch.signed_topics import signed_topics

BOX = "{size: [0.3, 0.3, 0.1], mass: 1.5, friction: 0.3, initial_position: [0.5, -0.25], initial_yaw: 0.5}"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    return make_tiny_fleet(tmp_path_factory.mktemp("fleet"), 2)


def with_bodies(fleet, text):
    return parse_fleet(fleet_text(fleet, fleet.file) + f"bodies: {text}\n", fleet.file)


def test_a_body_is_read_and_written(fleet):
    found = with_bodies(fleet, f"{{box: {BOX}}}")
    assert found.bodies == (FleetBody("box", (0.3, 0.3, 0.1), 1.5, 0.3, (0.5, -0.25), 0.5),)
    assert parse_fleet(fleet_text(found, fleet.file), fleet.file).bodies == found.bodies
    assert fleet.bodies == ()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (f"{{r0: {BOX}}}", "bodies.r0: found the name 'r0', expected small letters"),
        (f"{{Box: {BOX}}}", "bodies.Box: found the name 'Box'"),
        ("{box: " + BOX.replace("0.3, 0.1]", "0.1]") + "}", "bodies.box.size: found 2 numbers, expected 3"),
        ("{box: " + BOX.replace("-0.25]", "-0.25, 0.0]") + "}", "initial_position: found 3 numbers, expected 2"),
        ("{box: " + BOX.replace("mass: 1.5", "mass: .nan") + "}", "bodies.box.mass: found nan"),
        ("{box: " + BOX.replace("[0.3,", "[0.0,") + "}", "bodies.box.size: found 0, expected 0.005 to 100"),
        ("{box: " + BOX.replace("yaw: 0.5", "yaw: 90") + "}", "bodies.box.initial_yaw: found 90, expected -6.283"),
        ("{box: " + BOX.replace("friction: 0.3, ", "") + "}", "friction"),
        ("[box]", "bodies"),
    ],
)
def test_an_invalid_body_is_refused_with_its_key(fleet, text, sentence):
    with pytest.raises(FleetError, match=re.escape(sentence)):
        with_bodies(fleet, text)


def test_the_plant_publishes_its_pose_and_the_recorder_takes_it(fleet):
    found = with_bodies(fleet, f"{{box: {BOX}}}")
    types = [topic.type for topic in topics(found) if topic.name == "/task/box/pose"]
    assert types == ["geometry_msgs/msg/PoseStamped"]
    processes = {process.label: process for process in plan(found, run_folder=None)}
    assert "/task/box/pose" in process_interfaces(processes["plant"], found).publishes
    assert "/task/box/pose" not in process_interfaces(processes["plant"], fleet).publishes
    assert "/task/box/pose" in signed_topics(found, "sim")
    assert "/task/box/pose" not in signed_topics(found, "hw")  # a tracking system does not know the key
