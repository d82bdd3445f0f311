"""Whom a robot hears, and that the age of what it heard is bounded without a shared clock."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testudo_deploy.contract.messages import PeerMessage
from testudo_deploy.control.peer_tracker import PeerMeasurement, PeerTracker
from testudo_deploy.shield.stop_tube import stop_tube_parameters
from testudo_hardware.spec import load_robot


@pytest.fixture
def roster():
    return PeerTracker("r0", "a", ("r1", "r2"), "h", 2)


def test_a_sound_message_is_heard_with_its_age(roster, message):
    assert roster.unheard() == ("r1", "r2")
    assert roster.hear(message, 100.1)
    assert roster.unheard() == ("r2",)
    assert roster.hear(dataclasses.replace(message, robot="r2", echoes={"r0": ("a", 99.9, 0)}), 100.1)
    table = roster.table(100.25)
    assert table.age_s == pytest.approx([0.25, 0.35])
    assert table.control_point_world.tolist() == [[1.0, 1.0], [0.0, 0.0]]
    assert table.control_velocity_world.tolist() == [[0.1, 0.1], [0.0, 0.0]]
    assert table.valid.tolist() == [True, True]


def test_the_age_is_no_time_since_arrival(roster, message):
    """Negative control: the message lay in a queue for 3 s; since its arrival no time has passed."""
    roster = PeerTracker("r0", "a", ("r1",), "h", 2)
    assert roster.hear(message, 103.0)
    assert roster.table(103.0).age_s == pytest.approx([3.0])


@pytest.mark.parametrize(
    "change",
    [
        {"robot": "r9"},
        {"robot": "r0"},
        {"contract": "other"},
        {"control_point_world": (1.0, 0.0, 0.0)},
        {"control_velocity_world": (0.1,)},
    ],
)
def test_a_foreign_message_is_refused_and_counted(roster, message, change):
    assert not roster.hear(dataclasses.replace(message, **change), 100.1)
    assert roster.refused == 1
    assert roster.unheard() == ("r1", "r2")
    assert roster.echoes() == {}


@pytest.mark.parametrize("sequence", [5, 4, 0])
def test_a_replayed_or_reordered_message_is_refused(roster, message, sequence):
    assert roster.hear(dataclasses.replace(message, sequence=5), 100.1)
    late = dataclasses.replace(message, sequence=sequence, control_point_world=(9.0, 9.0))
    assert not roster.hear(late, 100.2)
    assert roster.refused == 1


def restarted(message, epoch, sent_s, **changes):
    """Return a message of a new process of the peer, which answers one that robot r0 sent at a time."""
    return dataclasses.replace(
        message, **{"epoch": epoch, "sequence": 1, "stamp_s": 0.1, "echoes": {"r0": ("a", sent_s, 9)}} | changes
    )


def test_a_restarted_peer_counts_from_one_again(roster, message):
    assert roster.hear(dataclasses.replace(message, sequence=500), 100.1)
    assert roster.hear(restarted(message, "c", 100.7), 100.75)
    assert roster.echoes() == {"r1": ("c", 0.1, 1)}


@pytest.mark.parametrize(
    ("echoes", "received_s"),
    [
        ({}, 200.0),  # a recorded message, or a forged one: it answers nothing
        ({"r0": ("old", 199.9, 9)}, 200.0),  # it answers an earlier process of this robot
        ({"r0": ("a", 100.5, 9)}, 200.0),  # it answers a message from before the silence
        ({"r0": ("a", 200.1, 9)}, 200.0),  # it answers a message that was not sent yet
        ({"r0": ("a", 100.15, 9)}, 100.2),  # the present process is not silent
    ],
)
def test_a_message_that_does_not_prove_a_new_process_displaces_no_peer(roster, message, echoes, received_s):
    """One forged message made a robot refuse its live peer for the rest of the run."""
    assert roster.hear(dataclasses.replace(message, sequence=5), 100.1)
    assert not roster.hear(dataclasses.replace(message, epoch="forged", sequence=1, echoes=echoes), received_s)
    assert roster.hear(dataclasses.replace(message, sequence=6), received_s + 0.01)
    assert roster.echoes()["r1"][0] == "b"


def test_a_message_before_any_answer_retires_no_process(roster, message):
    """Replayed while nobody has answered yet, it gives way to the live process, in either order."""
    recorded = dataclasses.replace(message, epoch="recorded", sequence=900, echoes={})
    for _ in range(2):
        assert roster.hear(recorded, 100.0)
        assert "r1" in roster.unheard()
        assert roster.hear(dataclasses.replace(message, echoes={}), 100.05)
    assert roster.hear(dataclasses.replace(message, sequence=2), 100.1)
    assert not roster.hear(dataclasses.replace(recorded, sequence=901), 100.2)
    assert roster.unheard() == ("r2",)


@pytest.mark.parametrize(
    ("echoes", "why"),
    [
        ({}, "the peer has not heard us"),
        ({"r2": ("a", 100.0, 1)}, "an echo of somebody else"),
        ({"r0": ("old", 100.0, 1)}, "an echo of our life before the restart"),
        ({"r0": ("a", 100.2, 1)}, "an echo from the future"),
        ({"r0": ("a", 95.0, 1)}, "an echo that is too old to bound anything"),
    ],
)
def test_without_a_valid_echo_a_peer_stays_unheard_but_is_echoed(roster, message, echoes, why):
    """It must be echoed, or two robots that wait for each other would never hear."""
    assert roster.hear(dataclasses.replace(message, echoes=echoes), 100.1), why
    assert "r1" in roster.unheard()
    assert roster.echoes() == {"r1": ("b", 5.0, 1)}


def test_an_invalid_echo_later_keeps_the_older_bound(roster, message):
    """The age then grows; it is not taken back to zero."""
    roster = PeerTracker("r0", "a", ("r1",), "h", 2)
    assert roster.hear(message, 100.1)
    assert roster.hear(dataclasses.replace(message, sequence=2, echoes={}), 100.2)
    assert roster.table(101.0).age_s == pytest.approx([1.0])


def test_two_robots_hear_each_other_from_nothing(message):
    """A says nothing of B, B echoes A, A then echoes B: after three messages both have a bound."""
    a, b = PeerTracker("a", "ea", ("b",), "h", 2), PeerTracker("b", "eb", ("a",), "h", 2)
    from_a = dataclasses.replace(message, robot="a", epoch="ea", stamp_s=50.0, echoes=a.echoes())
    assert b.hear(from_a, 7.01)
    assert b.unheard() == ("a",)
    from_b = dataclasses.replace(message, robot="b", epoch="eb", stamp_s=7.02, echoes=b.echoes())
    assert a.hear(from_b, 50.05)
    assert a.unheard() == ()
    again = dataclasses.replace(from_a, sequence=2, stamp_s=50.06, echoes=a.echoes())
    assert b.hear(again, 7.09)
    assert b.unheard() == ()


def exchange(rng, offsets, loss, latency_s, ticks=80, period_s=0.033):
    """Let robots talk through a lossy, slow, reordering channel; yield bound, truth, time since arrival.

    ``offsets``: of each robot's clock against the true time [s]. Announcements carry the true time at
    which they were made, hidden in the x of the control point.
    """
    names = tuple(f"r{i}" for i in range(len(offsets)))
    rosters = [PeerTracker(name, "e" + name, tuple(n for n in names if n != name), "h", 2) for name in names]
    phase = rng.uniform(0, period_s, len(names))
    arrivals = [{} for _ in names]
    queue = []
    for tick in range(ticks):
        for i, name in enumerate(names):
            now = tick * period_s + phase[i]
            own = [item for item in queue if item[1] == i and item[0] <= now]
            queue = [item for item in queue if item not in own]
            for arrival, _, sent in sorted(own, key=lambda item: item[0]):
                if rosters[i].hear(sent, arrival + offsets[i]) and name in sent.echoes:
                    arrivals[i][sent.robot] = arrival
            told = PeerMessage(
                robot=name,
                epoch="e" + name,
                sequence=tick + 1,
                stamp_s=now + offsets[i],
                sample_age_s=0.0,
                control_point_world=(now, 0.0),
                control_velocity_world=(0.0, 0.0),
                position_world=(0.0, 0.0),
                yaw=0.0,
                contract="h",
                reserved_segment_world=((0.0, 0.0),) * 2,
                requested_segment_world=((0.0, 0.0),) * 2,
                echoes=rosters[i].echoes(),
            )
            for j in range(len(names)):
                if j != i and rng.uniform() >= loss:
                    queue.append((now + rng.uniform(*latency_s), j, told))
            if not rosters[i].unheard():
                table = rosters[i].table(now + offsets[i])
                since = np.array([now - arrivals[i][peer] for peer in rosters[i].peers])
                yield np.array(table.age_s), now - table.control_point_world[0], since


@given(
    seed=st.integers(0, 10**6),
    robots=st.integers(2, 4),
    loss=st.sampled_from([0.0, 0.3, 0.9]),
    slow=st.floats(0.001, 0.4),
    spread=st.sampled_from([0.0, 1.0, 1e5]),
)
def test_the_age_is_never_below_the_truth_whatever_the_clocks(seed, robots, loss, slow, spread):
    rng = np.random.default_rng(seed)
    offsets = rng.uniform(-spread, spread, robots)
    for bound, truth, _ in exchange(rng, offsets, loss, (0.0005, slow)):
        assert (bound >= truth - 1e-6).all()
        assert (truth >= 0).all()


def test_the_bound_is_two_ways_and_a_period_when_nothing_is_lost():
    rng = np.random.default_rng(1)
    ages = [age for age, _, _ in exchange(rng, (5.0, -3.0), 0.0, (0.01, 0.01))][10:]
    assert np.max(ages) <= 2 * (0.01 + 0.033) + 1e-9


def test_time_since_arrival_would_be_below_the_truth():
    """Negative control: the same exchange judged by arrival is too young by the whole transport."""
    rng = np.random.default_rng(2)
    for bound, truth, since_arrival in exchange(rng, (0.0, 0.0), 0.0, (0.3, 0.3)):
        assert (since_arrival < truth - 0.29).all()
        assert (bound >= truth).all()


def test_a_late_message_of_a_former_life_is_refused(roster, message):
    """It says nothing any more: what that life owned or acknowledged, the new one does not know of."""
    assert roster.hear(dataclasses.replace(message, sequence=5), 100.1)
    assert roster.hear(restarted(message, "c", 100.7), 100.7)
    late = dataclasses.replace(message, sequence=6, control_point_world=(9.0, 9.0))
    assert not roster.hear(late, 100.8)
    assert roster.hear(restarted(message, "d", 101.3), 101.3)
    for epoch in ("b", "c"):
        assert not roster.hear(restarted(late, epoch, 102.0, sequence=999), 102.0)
    assert roster.refused == 3
    assert roster.echoes()["r1"][0] == "d"
    assert roster.hear(dataclasses.replace(message, robot="r2", epoch="b"), 102.0)  # another's epoch of that name


def test_lanes_and_acknowledgements_are_those_of_the_newest_message(roster, message):
    lanes = {"reserved_segment_world": ((1.0, 2.0), (3.0, 4.0)), "requested_segment_world": ((5.0, 6.0), (7.0, 8.0))}
    assert roster.hear(dataclasses.replace(message, **lanes, echoes={"r0": ("a", 100.0, 42)}), 100.1)
    peers = roster.spaces(100.2, 1.0)
    assert peers.owned_world[:, :, 0].tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert peers.announced_world[:, :, 0].tolist() == [[5.0, 6.0], [7.0, 8.0]]
    assert np.isnan(peers.owned_world[:, :, 1]).all()
    assert peers.acknowledged.tolist() == [42, -1]
    assert peers.reserves.tolist() == [True, True]


@pytest.mark.parametrize("echoes", [{}, {"r0": ("old", 100.0, 42)}, {"r2": ("a", 100.0, 42)}])
def test_what_was_not_said_to_this_process_acknowledges_nothing(roster, message, echoes):
    """And takes back what an earlier message of the peer acknowledged."""
    assert roster.hear(dataclasses.replace(message, echoes={"r0": ("a", 100.0, 42)}), 100.1)
    assert roster.hear(dataclasses.replace(message, sequence=2, echoes=echoes), 100.2)
    assert roster.spaces(100.2, 1.0).acknowledged[0] == -1


def test_a_new_process_acknowledges_only_what_it_answers(roster, message):
    """What its predecessor acknowledged it has forgotten."""
    assert roster.hear(dataclasses.replace(message, echoes={"r0": ("a", 100.0, 42)}), 100.1)
    assert roster.hear(restarted(message, "c", 100.7), 100.7)
    assert roster.spaces(100.7, 1.0).acknowledged[0] == 9


def test_an_old_echo_still_acknowledges(roster, message):
    """It is too old to bound an age, but what was heard was heard."""
    assert roster.hear(dataclasses.replace(message, echoes={"r0": ("a", 90.0, 42)}), 100.1)
    assert roster.unheard() == ("r1", "r2")
    assert roster.spaces(100.2, 1.0).acknowledged[0] == 42


def test_a_lost_peer_is_an_obstacle_that_need_not_answer_until_it_speaks(roster, message):
    """Rule R4 as for a peer that a majority suspects; of two robots r0 would not wait for r1 anyway, z9 would."""
    last = PeerTracker("z9", "a", ("r1", "r2"), "h", 2)
    told = dataclasses.replace(message, echoes={"z9": ("a", 100.0, 3)})
    assert last.hear(told, 100.1)
    before = last.spaces(110.0, 1.0)
    assert not last.declare_lost("r2", None)  # never heard: it has no last place
    assert not last.declare_lost("r7", (0.0, 0.0))
    assert not last.declare_lost("r2", (0.0, float("nan")))
    assert not last.declare_lost("r2", (0.0, 0.0, 0.0))
    assert not before.excused.any()
    assert last.declare_lost("r1", None)
    assert last.declare_lost("r2", (4.0, 5.0))
    assert last.unheard() == ()
    after = last.spaces(110.0, 1.0)
    assert after.excused.all()
    assert after.reserves.all()
    assert np.array_equal(after.owned_world[:, :, 0], before.owned_world[:, :, 0])
    assert after.owned_world[:, :, 1].tolist() == after.announced_world[:, :, 1].tolist() == [[4.0, 5.0]] * 2
    table = last.table(110.0)
    assert table.control_point_world[:, 1].tolist() == [4.0, 5.0]
    assert table.age_s.tolist() == pytest.approx([10.0, 0.0])
    assert last.hear(dataclasses.replace(told, sequence=2), 110.1)
    assert list(last.lost) == ["r2"]
    assert not last.spaces(110.2, 1.0).excused[0]


def test_of_each_pair_exactly_one_goes_first():
    names = ("r0", "r1", "r10", "r2")
    first = {
        name: dict(
            zip(
                peers := tuple(n for n in names if n != name),
                PeerTracker(name, "a", peers, "h", 2).spaces(0.0, 1.0).first.tolist(),
                strict=True,
            )
        )
        for name in names
    }
    for one in names:
        for other in names:
            assert one == other or first[one][other] != first[other][one]


def test_an_untrusted_peer_is_where_it_was_seen(roster, message):
    """Whatever it says; it has no say in reservations, and must have been seen."""
    roster.untrusted.add("r2")
    assert roster.hear(message, 100.1)
    assert roster.unheard() == ()
    assert roster.unseen() == ("r2",)
    assert roster.see("r2", PeerMeasurement(100.0, (4.0, 5.0)))
    assert roster.unseen() == ()
    table = roster.table(100.25)
    assert table.control_point_world[:, 1].tolist() == [4.0, 5.0]
    assert table.control_velocity_world[:, 1].tolist() == [0.0, 0.0]
    assert table.age_s == pytest.approx([0.25, 0.25])
    assert table.untrusted.tolist() == [False, True]
    assert roster.spaces(100.25, 1.0).reserves.tolist() == [True, False]


@pytest.mark.parametrize(
    ("peer", "sighting"),
    [
        ("r9", PeerMeasurement(100.1, (0.0, 0.0))),
        ("r1", PeerMeasurement(100.1, (0.0, 0.0, 0.0))),
        ("r1", PeerMeasurement(100.1, (0.0, float("nan")))),
        ("r1", PeerMeasurement(float("inf"), (0.0, 0.0))),
        ("r1", PeerMeasurement(100.0, (0.0, 0.0))),
        ("r1", PeerMeasurement(99.0, (0.0, 0.0))),
    ],
)
def test_a_sighting_that_cannot_be_or_is_old_is_refused(roster, peer, sighting):
    assert roster.see("r1", PeerMeasurement(100.0, (1.0, 1.0)))
    assert not roster.see(peer, sighting)
    assert roster.refused == 1


def test_a_peer_seen_off_its_lanes_is_doubtful_and_one_on_them_is_not(roster, message):
    """Only the way since it was seen counts: an old message lets no peer leave its lanes without this robot's word."""
    space = stop_tube_parameters(load_robot("gritsbot_x"))
    assert roster.hear(message, 100.1)
    allowed = space.lane_m + space.tube_error_m + space.noise_m + 0.01 * 0.2  # 0.01 s at 0.2 m/s
    assert roster.see("r1", PeerMeasurement(100.19, (0.95, allowed - 1e-4)))
    assert roster.outside_reservations(space, 100.2, 0.2) == ()
    assert roster.see("r1", PeerMeasurement(100.2, (0.95, allowed + 1e-4)))
    assert roster.outside_reservations(space, 100.21, 0.2) == ("r1",)
    assert roster.outside_reservations(space, 100.22, 0.2) == ()  # since it was seen it may have come there
    assert roster.see("r1", PeerMeasurement(105.0, (0.95, allowed + 1e-3)))
    assert roster.outside_reservations(space, 105.0, 0.2) == ()  # r1 and r2 may have gone on without r0: rule R4
    first = PeerTracker("r0", "a", ("r1",), "h", 2)
    assert first.hear(message, 100.1)
    assert first.see("r1", PeerMeasurement(105.0, (0.95, allowed + 1e-3)))
    assert first.outside_reservations(space, 105.0, 0.2) == ("r1",)  # of two the second cannot; the message is 5 s old
    last = PeerTracker("r2", "a", ("r1",), "h", 2)
    assert last.hear(dataclasses.replace(message, echoes={"r2": ("a", 100.0, 0)}), 100.1)
    assert last.see("r1", PeerMeasurement(105.0, (0.95, allowed + 1e-3)))
    assert last.outside_reservations(space, 105.0, 0.2) == ()  # goes first, and may not have heard this robot: rule R4
    assert last.outside_reservations(space, 105.0, 0.0) == ("r1",)
    roster.untrusted.add("r1")
    assert roster.outside_reservations(space, 100.25, 0.2) == ()
