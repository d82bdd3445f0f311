"""The control loop and layers 2 and 3: where space begins, what is announced, and which doubts brake."""

import dataclasses

import numpy as np
import pytest

from testudo_deploy.control.peer_tracker import PeerMeasurement
from testudo_deploy.shield.geometry import point_distance

ROBOTS = ("gritsbot_x", "crazyflie_2x")


def code(record):
    return record.reason.partition(":")[0]


@pytest.mark.parametrize("name", ROBOTS)
def test_a_robot_first_owns_the_place_where_it_stands(name, make_loop):
    rig = make_loop(name)
    rig.tick()
    message = rig.loop.announcement(rig.now_s)
    here = (0.0,) * rig.spec.dimension
    assert message.reserved_segment_world == (here, here)
    assert message.requested_segment_world[0] == here
    assert message.requested_segment_world[1] != here  # it asks for more at once


def test_before_all_peers_are_heard_it_says_where_it_stands(make_loop):
    rig = make_loop(at=(1.0, -1.0))
    rig.see()
    assert code(rig.loop.tick(rig.now_s)) == "peer_unheard"
    message = rig.loop.announcement(rig.now_s)
    assert message.reserved_segment_world == message.requested_segment_world == ((1.0, -1.0), (1.0, -1.0))


def test_robots_that_start_too_close_brake_until_one_is_moved(make_loop):
    """Claims of lanes that already conflict would be worth nothing."""
    rig = make_loop()
    near = rig.loop._shield.space.clearance_m - 0.001
    for _ in range(3):
        rig.now_s += 0.033
        rig.see()
        rig.hear(lane=((near, 0.0), (near, 0.0)))
        record = rig.loop.tick(rig.now_s)
        assert record.reason == "too_close: r1"
        assert record.sent_command == (0.0, 0.0)
    rig.hear(lane=((near + 0.002, 0.0), (near + 0.002, 0.0)))
    rig.now_s += 0.033
    rig.see()
    assert rig.loop.tick(rig.now_s).reason == ""
    # from now on conflicts are the reservations' work: it keeps what it owns
    rig.hear(lane=((near, 0.0), (near, 0.0)))
    rig.now_s += 0.033
    rig.see()
    assert rig.loop.tick(rig.now_s).reason == ""


def test_an_announcement_is_numbered_like_the_message_that_carries_it(make_loop):
    """Else an acknowledgement of the message before would seem to be one of the announcement."""
    rig = make_loop()
    rig.tick()
    message = rig.loop.announcement(rig.now_s)
    assert message.requested_segment_world[1] != message.requested_segment_world[0]
    space = rig.loop._space
    assert bool(space.pending)
    assert int(space.since) == message.sequence == 1


@pytest.mark.parametrize("acknowledged", [0, 1])
def test_the_announced_lane_is_taken_with_its_acknowledgement(acknowledged, make_loop):
    rig = make_loop()
    rig.tick()
    asked = rig.loop.announcement(rig.now_s).requested_segment_world
    for _ in range(20):
        rig.now_s += 0.033
        rig.see()
        rig.sequence += 1
        template = rig.loop.announcement(rig.now_s)  # as a peer of the same kind would say it
        far = ((2.0, 2.0), (2.0, 2.0))
        assert rig.loop.on_peer(
            dataclasses.replace(
                template,
                robot="r1",
                epoch="b",
                sequence=rig.sequence,
                reserved_segment_world=far,
                requested_segment_world=far,
                control_point_world=far[0],
                echoes={"r0": ("a", rig.now_s - 0.03, acknowledged)},
            ),
            rig.now_s,
        )
        record = rig.loop.tick(rig.now_s)
    owned = np.array(rig.loop.announcement(rig.now_s).reserved_segment_world)
    if acknowledged:
        assert np.linalg.norm(owned[1] - owned[0]) > 0.01
        assert record.neighbour_acknowledged == (1,)
    else:
        assert owned == pytest.approx(np.zeros((2, 2)))
        assert rig.loop.announcement(rig.now_s).requested_segment_world == asked
        assert record.request_pending
        assert record.requested_since == 1


@pytest.mark.parametrize("name", ROBOTS)
def test_a_pose_that_jumps_brakes_until_it_is_back(name, make_loop):
    rig = make_loop(name)
    size = rig.spec.dimension
    assert rig.tick().reason == ""
    for _ in range(5):
        rig.now_s += rig.spec.control_period_s
        rig.see(position=(0.5,) + (0.0,) * (size - 1))
        rig.hear()
        record = rig.loop.tick(rig.now_s)
        assert code(record) == "pose_jump"
        assert record.sent_command == (0.0,) * size
        assert rig.loop.announcement(rig.now_s) is None  # it does not know where it is
    assert rig.tick().reason == ""
    rig.now_s += rig.spec.control_period_s
    rig.see(yaw=np.radians(30))
    rig.hear()
    assert code(rig.loop.tick(rig.now_s)) == "pose_jump"


def test_an_untrusted_peer_must_be_seen(make_loop):
    rig = make_loop()
    rig.loop._peers.untrusted.add("r1")
    rig.see()
    assert rig.loop.tick(rig.now_s + 0.001).reason == "untrusted_unseen: r1"
    assert rig.loop.on_sighting("r1", PeerMeasurement(rig.now_s, (2.0, 2.0)))
    rig.now_s += 0.033
    rig.see()
    record = rig.loop.tick(rig.now_s)
    assert record.reason == ""
    assert record.neighbour_untrusted == (True,)
    assert record.neighbour_control_point_world == ((2.0, 2.0),)


def test_what_an_untrusted_peer_says_is_refused(make_loop):
    rig = make_loop()
    rig.loop._peers.untrusted.add("r1")
    assert not rig.hear()


def test_a_peer_that_is_seen_where_it_said_it_is_not_is_not_trusted_any_more(make_loop):
    """Also if it later tells the truth."""
    rig = make_loop()
    assert rig.tick().neighbour_untrusted == (False,)
    assert rig.loop.on_sighting("r1", PeerMeasurement(rig.now_s, (2.0, 2.05)))
    assert rig.tick().neighbour_untrusted == (False,)
    assert rig.loop.on_sighting("r1", PeerMeasurement(rig.now_s, (2.0, 0.9)))
    record = rig.tick()
    assert record.neighbour_untrusted == (True,)
    assert record.neighbour_control_point_world == ((2.0, 0.9),)
    assert rig.loop.on_sighting("r1", PeerMeasurement(rig.now_s, (2.0, 2.0)))
    assert not rig.hear()
    assert rig.tick(hears=False).neighbour_untrusted == (True,)


def test_a_sighting_that_grows_old_stops_the_robot(make_loop):
    """What tracking does not see any more can be anywhere: 0.2 m/s for ten seconds is 2 m."""
    rig = make_loop()
    rig.loop._peers.untrusted.add("r1")
    rig.policy.answer = lambda signals, hidden: (np.array([0.1, 0.0]), hidden)
    assert rig.loop.on_sighting("r1", PeerMeasurement(rig.now_s, (2.0, 2.0)))
    moved = [rig.tick(hears=False) for _ in range(400)]
    assert any(moved[5].sent_command)
    assert moved[-1].reason == ""
    assert moved[-1].status == "gated" or moved[-1].shielded_world == pytest.approx((0.0, 0.0), abs=1e-6)
    assert moved[-1].shielded_world == pytest.approx((0.0, 0.0), abs=1e-6)


def drive_ahead(rig, ticks=40):
    """Let the robot follow its policy along x with ideal motion; return its last place and speed."""
    x = 0.0
    for _ in range(ticks):
        rig.now_s += rig.spec.control_period_s
        rig.see(position=(x, 0.0), velocity=(0.1, 0.0))
        rig.hear()
        assert rig.loop.tick(rig.now_s).reason == ""
        x += 0.1 * rig.spec.control_period_s
    return x


def deactivated(rig, position, velocity, *, hears=True):
    """Return the record of one tick of a robot that was deactivated, as its supervisor runs it."""
    rig.now_s += rig.spec.control_period_s
    rig.see(position=position, velocity=velocity)
    if hears:
        rig.hear()
    rig.loop.release_space()
    return rig.loop.tick(rig.now_s, order="idle: waits for activate")


def assert_rests(rig, before, place):
    """The robot owns a point of its segment before, within the half-width of where it stands."""
    start, end = owned(rig)
    assert (start == end).all()
    assert point_distance(start, *before) < 1e-9
    assert np.linalg.norm(start - place) <= rig.loop._shield.space.lane_m


def owned(rig):
    return np.array(rig.loop.announcement(rig.now_s).reserved_segment_world)


def test_a_robot_that_is_deactivated_at_speed_keeps_its_space_until_it_stands(make_loop):
    """Its peers may take what it releases, and it still needs the way to rest."""
    rig = make_loop()
    x = drive_ahead(rig)
    before = owned(rig)
    assert before[1, 0] > x  # the way to rest is in it
    for speed in (0.1, 0.05, 0.02):
        deactivated(rig, (x, 0.0), (speed, 0.0))
        np.testing.assert_array_equal(owned(rig), before)
        x += speed * rig.spec.control_period_s
    deactivated(rig, (x, 0.0), (0.0, 0.0))
    assert_rests(rig, before, (x, 0.0))


def test_a_robot_at_rest_keeps_a_part_of_what_it_owned(make_loop):
    """Noise of the pose beside the segment moves no reservation: the rest of a segment is inside of it (rule R3)."""
    rig = make_loop()
    x = drive_ahead(rig)
    before = owned(rig)
    for aside in (0.004, -0.006, 0.002):
        deactivated(rig, (x, aside), (0.0, 0.0))
        assert_rests(rig, before, (x, aside))


def test_a_robot_that_is_carried_is_not_armed_before_its_peers_know_of_its_place(make_loop):
    """Carried slowly, its poses show no jump; the acknowledgements are of messages from the place before."""
    rig = make_loop()
    x = drive_ahead(rig)
    for _ in range(40):
        deactivated(rig, (x, 0.0), (0.0, 0.0))
    known = rig.loop._sequence
    newest = rig.loop._peers._newest
    for k in range(1, 20):
        newest["r1"] = dataclasses.replace(newest["r1"], acknowledged=known)
        record = deactivated(rig, (x + 0.01 * k, 0.0), (0.0, 0.0), hears=False)
    assert record.reason == "peer_unaware: r1"
    assert np.abs(owned(rig) - (x + 0.19, 0.0)).max() < rig.loop._shield.space.lane_m
    newest["r1"] = dataclasses.replace(newest["r1"], acknowledged=rig.loop._sequence)
    assert code(deactivated(rig, (x + 0.19, 0.0), (0.0, 0.0), hears=False)) == "idle"
