"""The node of a robot learns at once that the filter of its localisation dropped the place that it had given."""

from importlib.util import find_spec
from types import SimpleNamespace

import pytest

from testudo_hardware.links.link_profile import ODOMETRY

pytestmark = [
    pytest.mark.ros,
    pytest.mark.skipif(find_spec("rclpy") is None, reason="ROS 2 (rclpy) is not installed"),
]


class Source:
    """Drops its place at the message 'jump' and at the transform 'jump'."""

    topics = (SimpleNamespace(kind="odom", name="odom", type=ODOMETRY),)
    transform_topic = "/tf"
    restarts = 0

    def __init__(self, _robot):
        pass

    def read(self, *_):
        raise AssertionError("for poses of a peer")

    def place(self, _topic, message, *_):
        self.restarts += message == "jump"
        return message if message == "pose" else None

    def correct(self, transforms, *_):
        self.restarts += transforms == ["jump"]


def test_a_dropped_place_is_told_once_and_before_the_next_pose(monkeypatch):
    from testudo_nodes.robot import subscriptions

    monkeypatch.setattr(subscriptions, "PoseSourceReader", Source)
    monkeypatch.setattr(subscriptions, "message_class", lambda name: name)
    heard, told = {}, []
    subscription = subscriptions.PoseSubscription(lambda: (0.0, 0.0), None)
    subscription.begin(
        lambda _kind, topic, callback, _quality: heard.setdefault(topic, callback),
        lambda *_: told.append("pose"),
        lambda error: pytest.fail(str(error)),
        lambda: told.append("lost"),
    )
    for message in ("pose", "jump", "nothing", "pose"):
        heard["odom"](message)
    for transforms in (["same"], ["jump"], ["same"]):
        heard["/tf"](SimpleNamespace(transforms=transforms))
    assert told == ["pose", "lost", "pose", "lost"]
