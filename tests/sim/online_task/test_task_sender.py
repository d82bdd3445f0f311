"""The task's messages: what each robot is sent, and which of its announcements they answer."""

from dataclasses import replace

import numpy as np
import pytest
from tests.sim.online_task.task_fleet import write_policy

from testudo_deploy.contract.messages import EnvelopeError, PeerMessage
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_sim.online_task.task_sender import TaskSample, TaskSender

ROBOTS = ("r0", "r1", "r2")
RESOURCES = {
    "resource_position_world": np.array([[1.0, 2.0], [3.0, 4.0]]),
    "resource_valid": np.array([[1.0, 0.0]]),
    "resource_level": np.array([[5.0, 6.0]]),
}
SAMPLE = TaskSample({name: {"level": np.array([k + 1.0]), **RESOURCES} for k, name in enumerate(ROBOTS)}, 0.07)


def announcement(robot, sequence=0, epoch="a", stamp_s=5.0):
    place, segment = (0.0, 0.0), ((0.0, 0.0), (0.0, 0.0))
    return PeerMessage(robot, epoch, sequence, stamp_s, 0.0, place, place, place, 0.0, "h", segment, segment, {})


@pytest.fixture
def policy(tmp_path):
    return write_policy(tmp_path / "policy.onnx", "foraging", load_robot("gritsbot_x"))


@pytest.fixture
def sender(policy):
    return TaskSender(*policy, ROBOTS, "task")


def test_a_robot_is_sent_its_own_values_those_of_its_peers_and_the_entities(sender, policy):
    for robot in ROBOTS:
        assert sender.hear(announcement(robot, stamp_s=5.0))
    first, second, _ = sender.messages(SAMPLE, 8.0)
    assert (second.robot, second.contract, second.epoch, second.sequence) == ("r1", policy[0].task_hash, "task", 0)
    assert (second.stamp_s, second.sample_age_s, second.echo) == (8.0, 0.07, ("a", 5.0, 0))
    assert second.peers == ("r0", "r2")
    assert second.values == {
        "level": (2.0,),
        "neighbour_level": (1.0, 3.0),
        "resource_position_world": (1.0, 3.0, 2.0, 4.0),  # by resource, then axis
        "resource_valid": (1.0, 0.0),
        "resource_level": (5.0, 6.0),
    }
    assert first.values["neighbour_level"] == (2.0, 3.0)


def test_a_robot_that_was_never_heard_is_sent_nothing(sender):
    sender.hear(announcement("r2"))
    assert [message.robot for message in sender.messages(SAMPLE, 8.0)] == ["r2"]
    assert [message.sequence for message in sender.messages(SAMPLE, 8.1)] == [1]


def test_a_robot_that_takes_no_part_is_sent_nothing(sender):
    for robot in ROBOTS:
        sender.hear(announcement(robot))
    sent = sender.messages(replace(SAMPLE, absent=("r1",)), 8.0)
    assert [message.robot for message in sent] == ["r0", "r2"]
    assert sent[1].values["neighbour_level"] == (1.0, 2.0)  # it stays a peer


def test_it_answers_the_newest_announcement(sender):
    sender.hear(announcement("r0", sequence=3, stamp_s=5.3))
    assert not sender.hear(announcement("r0", sequence=3, stamp_s=9.0))
    assert not sender.hear(announcement("r0", sequence=2, stamp_s=5.2))
    assert not sender.hear(announcement("r9"))
    assert sender.messages(SAMPLE, 8.0)[0].echo == ("a", 5.3, 3)
    assert sender.hear(announcement("r0", sequence=0, epoch="b", stamp_s=1.0))  # its process began again
    assert sender.messages(SAMPLE, 8.0)[0].echo == ("b", 1.0, 0)


def test_values_that_are_not_finite_are_not_sent(sender):
    sender.hear(announcement("r0"))
    bad = {name: values | {"level": np.array([np.nan])} for name, values in SAMPLE.values.items()}
    with pytest.raises(EnvelopeError, match="not finite"):
        sender.messages(TaskSample(bad, 0.0), 8.0)


def test_a_scenario_with_other_signals_than_the_policy_is_refused(policy):
    contract, scenario = policy
    signals = tuple(signal for signal in contract.signals if signal.name != "resource_level")
    with pytest.raises(TestudoError, match=r"found the signals level, .*; export the policy again"):
        TaskSender(contract.replace(signals=signals), scenario, ROBOTS, "task")


def test_the_hash_of_the_task_tells_tasks_apart_that_share_a_shield(policy):
    contract, _ = policy
    strict = tuple(replace(signal, max_age_s=0.1) for signal in contract.signals)
    for other in (contract.replace(scenario="discovery"), contract.replace(signals=strict)):
        assert other.contract_hash == contract.contract_hash
        assert other.task_hash != contract.task_hash
