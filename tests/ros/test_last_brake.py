"""A base that acts on its last command for ever is braked when its guard hangs or dies, and by nobody before."""

import time
from importlib.util import find_spec

import pytest

from testudo_hardware.links.link_profile import load_link
from testudo_hardware.links.topics import CommandWire
from testudo_hardware.spec import load_robot

pytestmark = [
    pytest.mark.ros,
    pytest.mark.skipif(find_spec("rclpy") is None, reason="ROS 2 (rclpy) is not installed"),
    pytest.mark.timeout(300),
]
if find_spec("rclpy") is not None:
    import rclpy
    from geometry_msgs.msg import TwistStamped
    from rclpy.executors import SingleThreadedExecutor

    from testudo_nodes.robot.last_brake import LastBrake

DOMAIN, BEGINS_S, BEAT_S = 87, 120.0, 0.05
SPEC = load_robot("turtlebot3_burger")


class Base:
    """The driver of the base, which hears what is published."""

    def __init__(self):
        self.context = rclpy.Context()
        rclpy.init(context=self.context, domain_id=DOMAIN)
        self.node = rclpy.create_node("base", context=self.context)
        self.heard = []
        self.node.create_subscription(TwistStamped, "/tb1/cmd_vel", self.heard.append, 10)
        self.executor = SingleThreadedExecutor(context=self.context)
        self.executor.add_node(self.node)

    def hear(self, seconds, *, brake=None):
        """Return what came in this time, while the guard lives if ``brake`` is its own."""
        self.heard.clear()
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            if brake is not None:
                brake.beat()
            self.executor.spin_once(timeout_sec=BEAT_S)
        return list(self.heard)


@pytest.fixture
def base(monkeypatch):
    monkeypatch.setenv("ROS_DOMAIN_ID", str(DOMAIN))
    made = Base()
    yield made
    made.context.try_shutdown()


def test_a_guard_that_hangs_or_dies_leaves_a_base_that_stands(base):
    profile = load_link("turtlebot3")
    assert profile.needs_last_brake
    assert profile.command_publishers == ("last_brake",)
    brake = LastBrake(CommandWire("tb1", SPEC, profile), "/tb1/cmd_vel")
    try:
        assert brake.code == "no_last_brake"  # the guard lets nothing pass before
        end_s = time.monotonic() + BEGINS_S
        while brake.code and time.monotonic() < end_s:
            assert not base.hear(0.2)  # a guard that is not ready has sent nothing that must be ended
        assert brake.code == ""
        assert not base.hear(0.5, brake=brake)  # the control: it is silent while the guard lives
        found = base.hear(SPEC.dead_man_s)
        assert found, "the guard hangs, and nothing brakes within the dead-man time"
        assert all(one.twist == type(one.twist)() and one.header.frame_id == "base_link" for one in found)
        base.hear(0.2, brake=brake)
        assert not base.hear(0.4, brake=brake)  # it lives again
    finally:
        brake.close()
    assert base.hear(SPEC.dead_man_s), "the guard died, and nothing brakes"
    assert brake._process.wait(30) == 0
