"""What goes wrong in a transition of the managed node is told: `rclpy` itself swallows it and says nothing."""

import pytest
from tests.deploy.tiny_fleet import make_tiny_fleet

from testudo_deploy.launch.child_processes import free_domain_id
from testudo_deploy.launch.launch_plan import plan, ros_arguments
from testudo_deploy.launch.ros_domain import LOOPBACK
from testudo_hardware.errors import TestudoError

pytestmark = pytest.mark.ros
rclpy = pytest.importorskip("rclpy")


@pytest.fixture
def make_node(tmp_path, monkeypatch):
    """Return a maker of a policy's node in this process, which nobody spins."""
    from rclpy.task import Future

    from testudo_nodes.robot.policy_node import PolicyNode

    for key, value in LOOPBACK.items():
        monkeypatch.setenv(key, value)
    monkeypatch.setattr("testudo_nodes.robot.policy_node._LOOKS", 0)  # nobody listens
    policy = plan(make_tiny_fleet(tmp_path, 1), run_folder=None)[-1]
    made = []

    def make(**parameters):
        policy.parameters.update(parameters)
        rclpy.init(args=ros_arguments(policy), domain_id=free_domain_id())
        made.append(PolicyNode(Future()))
        return made[-1]

    yield make
    for node in made:
        node.destroy_node()
    rclpy.try_shutdown()


def fail(*_, **__):
    raise ValueError("the disk is on fire")


def test_why_it_could_not_be_configured_is_the_reason_with_which_it_ends(make_node, monkeypatch):
    monkeypatch.setattr("testudo_nodes.robot.policy_node.Robot", fail)
    with pytest.raises(TestudoError, match="ValueError: the disk is on fire"):
        make_node()


def test_a_configuration_that_fails_half_way_leaves_nothing_and_may_be_repeated(make_node, monkeypatch):
    from rclpy.lifecycle import TransitionCallbackReturn

    node = make_node(configure=False)
    said = []
    monkeypatch.setattr(node, "_diagnose", said.append)
    with monkeypatch.context() as patch:
        patch.setattr("testudo_nodes.robot.policy_node.PoseSubscription.begin", fail)
        assert node.trigger_configure() == TransitionCallbackReturn.FAILURE
    assert [(status.values["code"], status.message) for status in said] == [
        ("not_configured", "ValueError: the disk is on fire")
    ]
    assert not [topic for topic, _ in node.get_topic_names_and_types() if topic.endswith("cmd_vel_policy")]
    assert node.trigger_configure() == TransitionCallbackReturn.SUCCESS


@pytest.mark.parametrize("name", ["activate", "deactivate", "cleanup", "shutdown"])
def test_what_a_transition_raises_is_told(make_node, monkeypatch, name):
    node, said = make_node(), []
    if name == "deactivate":
        monkeypatch.setattr(node, "_ask", lambda _: (True, ""))
        node.trigger_activate()
    monkeypatch.setattr(node, "_diagnose", said.append)
    monkeypatch.setattr(node, "_ask", fail)
    monkeypatch.setattr(node, "_disconnect", fail)
    getattr(node, f"trigger_{name}")()
    found = [(status.values["code"], status.message) for status in said]
    assert ("transition_failed", f"{name}: ValueError: the disk is on fire") in found
