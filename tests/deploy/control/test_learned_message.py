"""The learned message: declared in the contract, checked by its receiver, read by the policy, and nothing more."""

import dataclasses
import json

import numpy as np
import pytest
from tests.deploy.talking_policy import make_talking_policy, talking_contract

from testudo_deploy.contract.contract import PolicyContractError, policy_signals
from testudo_deploy.contract.messages import EnvelopeError, PeerMessage, TickRecord
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.control.peer_tracker import PeerMeasurement, PeerTracker
from testudo_hardware.motion import MotionState, motion_model
from testudo_hardware.spec import load_robot

ROBOT = load_robot("gritsbot_x")


@pytest.fixture
def talk(make_loop):
    """Return a loop among r1 and r2 whose policy says (0.25, -1)."""

    def make(said=(0.25, -1.0)):
        rig = make_loop(peers=("r1", "r2"), contract=lambda own: talking_contract(ROBOT).replace(decision_ticks=3))
        rig.policy.answer = lambda signals, hidden: (np.array([0.05, 0.05, *said]), hidden)
        return rig

    return make


def heard(rig, peer, message, sequence=50):
    """Let the robot receive an announcement with a message; return whether it took it."""
    rest = ((2.0, 2.0),) * 2
    return rig.loop.on_peer(
        PeerMessage(
            robot=peer,
            epoch="b",
            sequence=sequence,
            stamp_s=9.0,
            sample_age_s=0.02,
            control_point_world=(2.0, 2.0 if peer == "r1" else -2.0),
            control_velocity_world=(0.0, 0.0),
            position_world=(2.0, 2.0),
            yaw=0.0,
            contract=rig.policy.contract.contract_hash,
            reserved_segment_world=rest,
            requested_segment_world=rest,
            echoes={"r0": ("a", rig.now_s - 0.05, 10**6)},
            message=message,
        ),
        rig.now_s,
    )


def test_the_policy_reads_the_newest_message_of_each_peer_and_peers_get_its_own(talk):
    rig = talk()
    assert heard(rig, "r1", (0.5, -0.5))
    assert heard(rig, "r2", (1.0, 0.0))
    record = TickRecord.decode(rig.tick(hears=False).encode())
    assert (record.reason, record.decided) == ("", True)
    assert rig.policy.signals[-1]["neighbour_message"].tolist() == [[0.5, -0.5], [1.0, 0.0]]
    assert record.neighbour_message == ((0.5, -0.5), (1.0, 0.0))
    assert record.message == (0.25, -1.0)
    assert PeerMessage.decode(rig.loop.announcement(rig.now_s).encode()).message == (0.25, -1.0)
    held = rig.tick(hears=False)
    assert (held.decided, held.message) == (False, (0.25, -1.0))  # as its command, until the next decision


def test_a_braked_robot_says_zeros(talk):
    rig = talk()
    assert heard(rig, "r1", (0.5, -0.5))
    assert heard(rig, "r2", (1.0, 0.0))
    rig.tick(hears=False)
    rig.now_s += 0.03
    rig.see()
    assert rig.loop.tick(rig.now_s, order="disarmed").message == ()
    assert rig.loop.announcement(rig.now_s).message == (0.0, 0.0)


@pytest.mark.parametrize("said", [(1.01, 0.0), (0.0, np.nan)])
def test_a_policy_that_says_what_no_peer_would_take_brakes_its_robot(talk, said):
    rig = talk(said)
    assert heard(rig, "r1", (0.5, -0.5))
    assert heard(rig, "r2", (1.0, 0.0))
    assert rig.tick(hears=False).reason.startswith("policy_error")


@pytest.mark.parametrize("message", [(1.5, 0.0), (float("nan"), 0.0), (float("-inf"), 0.0)])
def test_a_number_outside_of_its_range_is_not_even_built_and_does_not_arrive(message, talk):
    with pytest.raises(EnvelopeError, match=r"peer/5.message: found .*, expected numbers in -1 to 1"):
        heard(talk(), "r1", message)


def test_an_altered_message_is_refused_with_the_reason(message):
    data = dataclasses.replace(message, message=(0.5, 0.5)).encode().replace(b"[0.5,0.5]", b"[0.5,-7.5]")
    with pytest.raises(EnvelopeError, match=r"found \[0.5, -7.5\], expected numbers in -1 to 1"):
        PeerMessage.decode(data)


@pytest.mark.parametrize("size", [0, 1, 3])
def test_a_message_of_another_length_is_foreign(message, size):
    roster = PeerTracker("r0", "a", ("r1",), "h", 2, message_size=2)
    assert not roster.hear(dataclasses.replace(message, message=(0.5,) * size), 100.1)
    assert (roster.refused, roster.unheard()) == (1, ("r1",))
    plain = PeerTracker("r0", "a", ("r1",), "h", 2)
    assert plain.hear(dataclasses.replace(message, message=(0.5,) * size), 100.1) == (size == 0)


def test_an_untrusted_peer_says_nothing_and_an_older_message_is_as_old_as_the_rest(message):
    roster = PeerTracker("r0", "a", ("r1", "r2"), "h", 2, ("r2",), 2)
    assert roster.hear(dataclasses.replace(message, message=(0.5, -1.0)), 100.1)
    assert roster.see("r2", PeerMeasurement(100.0, (3.0, 0.0)))
    table = roster.table(100.3)
    assert table.message.tolist() == [[0.5, 0.0], [-1.0, 0.0]]
    assert table.age_s[0] == pytest.approx(0.3)
    assert roster.declare_lost("r1", (1.0, 0.0))
    assert not roster.table(100.3).message.any()


def test_without_messages_the_wire_and_the_signals_are_what_they_were(message, make_loop):
    record = make_loop().tick()
    for envelope in (message, record):
        assert not {"message", "neighbour_message"} & set(json.loads(envelope.encode()))
    table = PeerTracker("r0", "a", (), "h", 2).table(0.0)
    state = MotionState(np.zeros(2), np.zeros(()), np.zeros(2))
    assert "neighbour_message" not in policy_signals(state, motion_model(ROBOT).stopping_point(state), table, 0.1, {})


def test_a_file_with_a_message_runs_on_the_robot(tmp_path):
    artefact = PolicyArtefact.load(make_talking_policy(tmp_path / "policy.onnx", ROBOT), robot=ROBOT)
    signals = {signal.name: np.zeros([2 if axis == "neighbours" else axis for axis in signal.shape])
               for signal in artefact.contract.signals}  # fmt: skip
    signals["neighbour_message"][:] = [[0.2, -1.0], [-0.4, -0.5]]
    output, _ = artefact.step(signals | {"goal_world": np.array([0.1, 0.0])}, artefact.initial_hidden())
    np.testing.assert_allclose(output[2:], [0.15, -0.25], atol=1e-6)
    assert (
        artefact.contract.contract_hash
        != talking_contract(ROBOT)
        .replace(command=dataclasses.replace(artefact.contract.command, message_size=3))
        .contract_hash
    )


def without_signal(values):
    values["signals"] = [signal for signal in values["signals"] if signal["name"] != "neighbour_message"]


def of_size(size):
    return lambda values: values["command"].update(message_size=size)


def without_output(values):
    del values["test_vector"]["outputs"]["message"]


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (
            without_signal,
            "found no signal neighbour_message, and command.message_size 2; expected the signal if and only",
        ),
        (of_size(33), "command.message_size: found 33, expected 0 to 32"),
        (without_output, "test_vector.outputs: found command, expected command, message"),
    ],
)
def test_a_contract_that_contradicts_itself_is_refused_by_its_name(tmp_path, edit, expected):
    def spoil(values):
        edit(values)
        if edit is not without_output:
            contract = talking_contract(ROBOT)
            size = values["command"]["message_size"]
            command = dataclasses.replace(contract.command, message_size=size)
            values["contract_hash"] = contract.replace(command=command).contract_hash

    with pytest.raises(PolicyContractError, match=expected):
        PolicyArtefact.load(make_talking_policy(tmp_path / "policy.onnx", ROBOT, edit=spoil))
