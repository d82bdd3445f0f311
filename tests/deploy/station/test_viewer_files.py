"""RViz configuration and Foxglove layout show what the station publishes, and publish what it hears."""

import json
import re
from pathlib import Path

import pytest
import yaml
from tests.deploy.station_page.page_stage import make_fleet

from testudo_deploy.launch.launch_plan import plan
from testudo_deploy.launch.process_interfaces import process_interfaces
from testudo_deploy.launch.topic_names import CLICK_TOPIC, GOALS_TOPIC, MARKERS_TOPIC, POSE_GOAL_TOPIC
from testudo_hardware.links.wire import WORLD_FRAME

FOLDER = Path(__file__).parents[3] / "ros_ws/src/testudo_bringup/config"
FILE, LAYOUT = FOLDER / "fleet.rviz", FOLDER / "fleet_foxglove.json"


def displays():
    return yaml.safe_load(FILE.read_text())["Visualization Manager"]["Displays"]


def test_it_shows_both_topics_in_the_frame_of_the_markers():
    values = yaml.safe_load(FILE.read_text())
    assert values["Visualization Manager"]["Global Options"]["Fixed Frame"] == WORLD_FRAME
    shown = {item["Topic"]["Value"]: item for item in displays() if item["Class"].endswith("/MarkerArray")}
    assert set(shown) == {MARKERS_TOPIC, GOALS_TOPIC}
    assert all(item["Enabled"] for item in shown.values())


def test_what_it_asks_for_is_offered():
    pytest.importorskip("rclpy", reason="ROS 2 (rclpy) is not installed")
    from rclpy.qos import DurabilityPolicy, ReliabilityPolicy

    from testudo_nodes.common.qos import offered

    for item in displays():
        if "Topic" not in item:
            continue
        profile = offered(item["Topic"]["Value"])
        assert profile.reliability == ReliabilityPolicy.RELIABLE
        latched = profile.durability == DurabilityPolicy.TRANSIENT_LOCAL
        assert latched or item["Topic"]["Durability Policy"] == "Volatile"


def heard_and_published():
    """Return the topics that the processes of a fleet with a task node publish, and those that they subscribe to."""
    fleet = make_fleet()
    found = [process_interfaces(process, fleet) for process in plan(fleet, run_folder=None, watch=("task", "markers"))]
    return [frozenset().union(*(getattr(one, kind) for one in found)) for kind in ("publishes", "subscribes")]


def test_the_tools_of_rviz_reach_the_task_node():
    tools = yaml.safe_load(FILE.read_text())["Visualization Manager"]["Tools"]
    topics = {tool["Topic"]["Value"] for tool in tools if "Topic" in tool}
    assert topics == {CLICK_TOPIC, POSE_GOAL_TOPIC}
    assert topics <= heard_and_published()[1]


def test_every_topic_of_the_foxglove_layout_exists_and_its_frame_is_that_of_the_markers():
    text = LAYOUT.read_text()
    panels = json.loads(text)["configById"]
    scene = panels["3D!fleet"]
    assert scene["followTf"] == WORLD_FRAME
    assert set(scene["topics"]) == {MARKERS_TOPIC, GOALS_TOPIC}
    goals = {scene["publish"]["poseTopic"], scene["publish"]["pointTopic"]}
    assert goals == {CLICK_TOPIC, POSE_GOAL_TOPIC}
    published, heard = heard_and_published()
    assert goals <= heard
    shown = {name.partition(".")[0] for name in re.findall(r'"(/[\w/.]+)"', text)} - goals
    assert len(shown) == 4
    assert shown <= published
    assert set(re.findall(r'"(\w+!\w+)"', json.dumps(json.loads(text)["layout"]))) == set(panels)
