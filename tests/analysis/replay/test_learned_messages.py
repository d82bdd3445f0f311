"""A run whose policies talk infers its messages again, and one changed number of what was heard is caught."""

import pytest
from tests.deploy.talking_policy import make_talking_policy
from tests.sim.recorded_run import record_run

from testudo_analysis.replay import TOLERANCE, alter, mutations_detected, reinfer
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_hardware.spec import load_robot

ROBOT = load_robot("gritsbot_x")


@pytest.fixture(scope="module")
def talking(tmp_path_factory):
    artefact = PolicyArtefact.load(make_talking_policy(tmp_path_factory.mktemp("talk") / "policy.onnx", ROBOT))
    return record_run(artefact, ROBOT, seconds=3.0), artefact


def test_messages_travel_and_infer_again(talking):
    run, artefact = talking
    result = reinfer(run, artefact)
    assert result.passed
    assert result.error <= TOLERANCE
    heard = [tick.neighbour_message for tick in run.ticks["r0"] if tick.decided and not tick.reason]
    assert all(len(said) == 2 and len(said[0]) == 2 for said in heard)
    assert heard[-1] != heard[0]  # the peers drive, so that they say something else
    assert "neighbour_message" in {mutation.field for mutation in mutations_detected(run, artefact) if mutation.caught}


def test_what_was_heard_cannot_be_changed(talking):
    run, artefact = talking
    altered, robot, _ = alter(run, "neighbour_message", 1e-3)
    result = reinfer(altered, artefact)
    assert [check.robot for check in result.robots if check.error > TOLERANCE] == [robot]


def test_a_robot_alone_hears_nobody_and_infers_again(talking):
    run = record_run(talking[1], ROBOT, seconds=1.0, count=1)
    assert all(tick.neighbour_message == () for tick in run.ticks["r0"])
    assert reinfer(run, talking[1]).passed
