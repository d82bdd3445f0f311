"""A robot whose localisation jumps: it stands until the new place is steady and its peers know of it; never open."""

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.effort import examples

from testudo_deploy.control.pose_validator import PoseValidator

JUMP = (0.5, 0.0)
STEADY_TICKS = 31
"""One second of poses 33 ms apart: the first lies at 0, the one 31 periods later is the first beyond 1 s."""


def code(record):
    return record.reason.partition(":")[0]


def step(rig, position=(0.0, 0.0), *, hears=True, lane=None, velocity=None):
    """Return the record of a tick with a pose at a place."""
    rig.now_s += rig.spec.control_period_s
    rig.see(position=position, velocity=velocity)
    if hears:
        rig.hear(lane=lane)
    return rig.loop.tick(rig.now_s)


def test_it_stands_for_a_second_and_begins_anew_at_the_new_place(make_loop):
    rig = make_loop()
    assert rig.tick().reason == ""
    for _ in range(STEADY_TICKS):
        record = step(rig, JUMP)
        assert code(record) == "pose_jump"
        assert record.sent_command == (0.0, 0.0)
        assert rig.loop.announcement(rig.now_s) is None
    record = step(rig, JUMP)
    assert record.reason == ""
    owned = rig.loop.announcement(rig.now_s).reserved_segment_world
    assert owned == (JUMP, JUMP)  # nothing of what it owned at the old place


def test_a_filter_that_dropped_its_place_brakes_the_robot_at_once_and_until_a_pose_follows(make_loop):
    """Without it the robot would drive on by its last pose, until that is too old."""
    rig = make_loop()
    assert rig.tick().reason == ""
    rig.now_s += rig.spec.control_period_s
    rig.hear()
    assert rig.loop.tick(rig.now_s).reason == ""  # control: the last pose is fresh enough for another tick
    rig.loop.lose_place()
    rig.now_s += rig.spec.control_period_s
    rig.hear()
    record = rig.loop.tick(rig.now_s)
    assert (record.reason, record.sent_command) == ("pose_jump", (0.0, 0.0))
    assert step(rig).reason == ""  # the localisation was right before: one outlier


def test_a_filter_that_drops_its_place_again_and_again_is_not_believed(make_loop):
    rig = make_loop()
    rig.tick()
    for _ in range(3):
        rig.loop.lose_place()
        record = step(rig)
    assert record.reason == "pose_restless"


def test_it_asks_for_no_space_before_every_peer_knows_of_the_new_place(make_loop):
    rig = make_loop()
    rig.tick()
    for _ in range(STEADY_TICKS):
        step(rig, JUMP)
    told = rig.loop._sequence
    newest = rig.loop._peers._newest
    newest["r1"] = replace(newest["r1"], acknowledged=told)  # the words so far, the last of them from the old place
    for _ in range(3):
        assert step(rig, JUMP, hears=False).reason == "peer_unaware: r1"
        announced = rig.loop.announcement(rig.now_s)
        assert announced.reserved_segment_world == announced.requested_segment_world == (JUMP, JUMP)
    newest["r1"] = replace(newest["r1"], acknowledged=told + 1)
    assert step(rig, JUMP, hears=False).reason == ""


def test_it_holds_where_a_peer_owns_the_new_place(make_loop):
    rig = make_loop()
    rig.tick()
    for _ in range(STEADY_TICKS):
        step(rig, JUMP)
    for _ in range(40):
        assert step(rig, JUMP, lane=(JUMP, JUMP)).reason == "too_close: r1"
    assert step(rig, JUMP).reason == ""


def test_a_peer_that_appears_in_the_own_space_brakes(make_loop):
    rig = make_loop()
    assert step(rig).reason == ""
    near = ((0.05, 0.0), (0.05, 0.0))
    record = step(rig, lane=near)
    assert record.reason == "peer_in_space: r1"
    assert record.sent_command == (0.0, 0.0)
    assert step(rig).reason == ""


def test_a_peer_as_close_as_lanes_may_come_does_not_brake(make_loop):
    rig = make_loop()
    clearance = rig.loop._shield.space.clearance_m
    lane = ((clearance, 0.0), (clearance, 0.0))
    assert step(rig, lane=lane).reason == ""
    closer = ((clearance - 0.002, 0.0),) * 2
    assert step(rig, lane=closer).reason == "peer_in_space: r1"


def test_one_that_jumps_again_and_again_waits_for_an_operator(make_loop):
    rig = make_loop()
    rig.tick()
    for _ in range(3):
        assert code(step(rig, JUMP)) == "pose_jump"
        record = step(rig)
    for _ in range(100):
        assert record.reason == "pose_restless"
        assert rig.loop.announcement(rig.now_s) is not None  # its peers know where it is
        record = step(rig)
    rig.loop.release_space()
    assert step(rig).reason == ""


def moved_while_in_doubt(make_loop, jump, ticks):
    """Return whether a robot was told to move between a jump and the moment when it was steady for a second."""
    rig = make_loop()
    rig.tick()
    moved = []
    for k in range(ticks):
        record = step(rig, jump)
        if k < STEADY_TICKS:
            moved.append(any(record.sent_command))
    return any(moved)


@settings(max_examples=examples(20), suppress_health_check=[HealthCheck.function_scoped_fixture])  # it only makes loops
@given(x=st.floats(0.1, 2.0), y=st.floats(-2.0, 2.0), ticks=st.integers(1, 40))
def test_nothing_moves_between_a_jump_and_its_acceptance(make_loop, x, y, ticks):
    assert not moved_while_in_doubt(make_loop, (x, y), ticks)


def test_a_robot_that_believes_at_once_would_move(make_loop, monkeypatch):
    """The negative control: without the second of standing the robot drives on from wherever it is said to be."""
    monkeypatch.setattr("testudo_deploy.control.pose_validator.STEADY_S", -1.0)
    monkeypatch.setattr(PoseValidator, "_is_steady", lambda *_: True)
    assert moved_while_in_doubt(make_loop, JUMP, 40)
