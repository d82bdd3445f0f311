"""The RViz configuration shows what the station publishes."""

from pathlib import Path

import pytest
import yaml

from testudo_deploy.launch.topic_names import GOALS_TOPIC, MARKERS_TOPIC
from testudo_hardware.links.wire import WORLD_FRAME

FILE = Path(__file__).parents[3] / "ros_ws/src/testudo_bringup/config/fleet.rviz"


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
