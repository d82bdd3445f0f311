"""Order in passages: one direction has the way, by facts that are the same for all; the others wait or back out."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import examples

from testudo_deploy.control.deadlock_resolver import DeadlockResolver
from testudo_deploy.shield.arena import Arena, Block
from testudo_deploy.shield.deadlock_resolution import wider
from testudo_deploy.shield.going_round import go_round
from testudo_deploy.shield.passage_driving import away_from_the_mouth, passage_velocity, without_those_that_wait
from testudo_deploy.shield.passage_order import PassageState, initial_passage_state, nearest_passage, passage_order
from testudo_deploy.shield.passages import passages
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_deploy.shield.right_of_way import Traffic
from testudo_deploy.shield.velocity_projection import PeerTable
from testudo_hardware.spec import load_robot

PERIOD_S, TOP = 0.05, 0.2
SHIELD = projection_parameters(load_robot("gritsbot_x"))
UNIT = SHIELD.separation_m
HALF = SHIELD.wall_m + 0.25 * UNIT
DOOR = Arena(
    (-2.0, -2.0),
    (2.0, 2.0),
    tuple(Block((0.0, side * (1.0 + HALF / 2)), (0.1, 1.0 - HALF / 2), 0.0) for side in (-1, 1)),
)
PASSAGES = passages(DOOR, UNIT, SHIELD.wall_m)
(PASSAGE,) = PASSAGES
MOUTH = PASSAGE.half_length_m + 0.15 * UNIT
NEW = initial_passage_state(np.array(0.0))


def to_the_door(place, direction):
    """Return the velocity of a robot that wants through, as it announces it."""
    target = (
        np.array([-direction * MOUTH, 0.0]) if abs(place[0]) > PASSAGE.half_length_m else np.add(place, (direction, 0))
    )
    return TOP * (target - place) / np.linalg.norm(target - place)


def ordered(places, wanted, index, state=NEW, silent=False, room=True):
    """Return what the order says to one of the robots, from what all announce; ``room``: outside of it others pass."""
    places, wanted = np.array(places, float).T, np.array(wanted, float).T
    others = [k for k in range(places.shape[1]) if k != index]
    place = places[:, index]
    traffic = Traffic(
        places[:, others] - place[:, None],
        0 * wanted[:, others],
        wanted[:, others],
        np.array([index < k for k in others], bool),
        np.full(len(others), not silent),
    )
    frame, near = nearest_passage(PASSAGES, place, UNIT)
    assert near
    known = (traffic, ~traffic.present, wanted[:, index], np.array(room), TOP, PERIOD_S)
    order, after = passage_order(frame, state, place, *known)
    return order, after, traffic


def goes(order):
    """Return whether the robot has the way."""
    return bool(order.takes_part & ~order.waits & ~order.backs_out)


def crowd(seed):
    """Return places on both sides of the door, and the directions in which the robots want through."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 7))
    direction = rng.choice([-1, 1], count)
    # only places from which the mouth is not yet in reach, where all are told apart
    distance, angle = rng.uniform(0.75 * UNIT, 3 * UNIT, count), rng.uniform(-1.3, 1.3, count)
    x = -direction * (MOUTH + distance * np.cos(angle))
    return np.stack([x, distance * np.sin(angle)], axis=1), direction


@settings(max_examples=examples(150), deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_exactly_one_direction_has_the_way_and_all_agree_on_it(seed):
    """Each robot judges by itself; those that go have one direction, and the head of its queue is not told to stand."""
    places, direction = crowd(seed)
    wanted = [to_the_door(*robot) for robot in zip(places, direction, strict=True)]
    orders = [ordered(places, wanted, index)[0] for index in range(len(places))]
    assert all(order.takes_part for order in orders)
    going = {int(d) for d, order in zip(direction, orders, strict=True) if goes(order)}
    assert len(going) == 1
    (way,) = going
    mine = [k for k in range(len(places)) if direction[k] == way]
    head = min(mine, key=lambda k: np.hypot(abs(places[k][0]) - MOUTH, places[k][1]))
    assert goes(orders[head])
    assert orders[head].speed_share == 1
    assert all(order.waits for d, order in zip(direction, orders, strict=True) if d != way)


@settings(max_examples=examples(50), deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_names_do_not_matter(seed):
    places, direction = crowd(seed)
    wanted = np.array([to_the_door(*robot) for robot in zip(places, direction, strict=True)])
    shuffled = np.random.default_rng(seed).permutation(len(places))
    before = [ordered(places, wanted, index)[0] for index in range(len(places))]
    after = [ordered(places[shuffled], wanted[shuffled], index)[0] for index in range(len(places))]
    for index, old in enumerate(shuffled):
        for name in ("waits", "backs_out", "speed_share", "through_world"):
            assert getattr(after[index], name) == pytest.approx(getattr(before[old], name))


def test_the_nearer_side_goes_first_and_of_two_alike_the_one_along_the_axis():
    def both(left, right):
        places = [(-left, 0.0), (right, 0.0)]
        wanted = [(TOP, 0.0), (-TOP, 0.0)]
        return [goes(ordered(places, wanted, index)[0]) for index in (0, 1)]

    assert both(2.0 * UNIT, 3.0 * UNIT) == [True, False]
    assert both(3.0 * UNIT, 2.0 * UNIT) == [False, True]
    assert both(2.1 * UNIT, 2.0 * UNIT) == [True, False]


def test_who_is_inside_or_comes_out_keeps_the_way():
    """Right beside the door stands one that would be nearer."""
    other, back = (-MOUTH - 1.3 * UNIT, 0.0), (TOP, 0.0)
    for place in ((0.1, 0.0), (-MOUTH + 0.1 * UNIT, 0.05)):
        wanted = [(-TOP, 0.0), back]
        assert not goes(ordered([place, other], wanted, 1)[0])


def test_one_that_has_come_out_no_longer_holds_the_way():
    """The next one needs 1.6 s to the mouth, in which that one makes room; it waited for half a separation more."""
    beside, out = np.array([-MOUTH, -1.1 * UNIT]), (-MOUTH - 0.05 * UNIT, 0.0)
    wanted = [(-TOP, 0.0), to_the_door(beside, 1)]
    assert goes(ordered([out, beside], wanted, 1)[0])
    behind, third = (0.0, 0.0), [(-TOP, 0.0), to_the_door(beside, 1), (-TOP, 0.0)]
    assert not goes(ordered([out, beside, behind], third, 1)[0])  # another comes after it


def test_of_two_that_meet_inside_the_one_that_is_less_far_backs_out():
    places, wanted = [(-0.15, 0.0), (0.02, 0.0)], [(TOP, 0.0), (-TOP, 0.0)]
    less, _, _ = ordered(places, wanted, 0)
    more, _, _ = ordered(places, wanted, 1)
    assert (less.backs_out, more.backs_out) == (True, False)
    assert less.out_world == pytest.approx([-1, 0])
    assert goes(more)


def test_one_inside_that_wants_neither_way_is_waited_for_and_one_that_stands_there_is_asked_to_leave():
    """A parked robot gives way to those that come near."""
    places = [(-3 * UNIT, 0.0), (0.0, 0.0)]
    assert ordered(places, [(TOP, 0.0), (0.0, TOP)], 0)[0].waits
    assert goes(ordered(places, [(TOP, 0.0), (0.0, 0.0)], 0)[0])


def test_one_that_is_silent_is_waited_for_where_it_may_be_inside_and_has_no_say_elsewhere():
    wanted = [(TOP, 0.0), (-TOP, 0.0)]
    assert ordered([(-3 * UNIT, 0.0), (0.0, 0.0)], wanted, 0, silent=True)[0].waits
    assert goes(ordered([(-3 * UNIT, 0.0), (2 * UNIT, 0.0)], wanted, 0, silent=True)[0])


def test_a_queue_keeps_its_distance():
    def share(gap):
        places = [(-MOUTH - 2 * UNIT, 0.0), (-MOUTH, -(2 + gap) * UNIT)]
        return ordered(places, [to_the_door(np.array(p), 1) for p in places], 1)[0].speed_share

    assert share(0.3) == 0
    assert 0.2 < share(0.75) < 0.8
    assert share(1.1) == 1


def test_who_is_in_the_lane_of_the_one_before_it_makes_room():
    """It stands beside the wall, nearer to the line to the mouth than robots can pass each other."""
    places = [(-MOUTH - 1.0 * UNIT, 0.0), (-MOUTH, 1.05 * UNIT)]
    wanted = [to_the_door(np.array(p), 1) for p in places]
    order, _, traffic = ordered(places, wanted, 1)
    assert order.waits
    kept = without_those_that_wait(traffic, order)
    found = passage_velocity(SHIELD, DOOR, order, np.array(places[1]), kept, np.array(wanted[1]))
    assert found.velocity_world[1] > 0.04
    assert goes(ordered(places, wanted, 0)[0])


def test_who_drives_to_the_mouth_from_the_other_side_is_not_in_the_lane_of_the_one_before_it():
    """That one turns into the passage; a lane beyond sent a robot away that stood opposite beside the wall."""
    places = [(-MOUTH, 1.0 * UNIT), (-MOUTH, -1.7 * UNIT)]
    wanted = [to_the_door(np.array(p), 1) for p in places]
    assert goes(ordered(places, wanted, 1)[0])
    assert not goes(ordered([places[0], (-MOUTH, -1.0 * UNIT - 0.01)], wanted, 1)[0])  # control: within its turn


def test_one_that_waits_leaves_the_way_out_and_announces_where_it_wants_to_go():
    place, other = np.array([3 * UNIT, 0.1]), (-MOUTH, 0.0)
    wanted = [to_the_door(place, -1), (TOP, 0.0)]
    order, _, traffic = ordered([place, other], wanted, 0)
    assert order.waits
    kept = without_those_that_wait(traffic, order)
    found = passage_velocity(SHIELD, DOOR, order, place, kept, np.array(wanted[0]))
    assert found.velocity_world[1] > 0.05
    assert found.announced_world == pytest.approx(wanted[0])
    aside = np.array([2 * UNIT, 1.3 * UNIT])
    wanted = [to_the_door(aside, -1), (TOP, 0.0)]
    order, _, traffic = ordered([aside, other], wanted, 0)
    found = passage_velocity(SHIELD, DOOR, order, aside, without_those_that_wait(traffic, order), np.array(wanted[0]))
    assert np.linalg.norm(found.velocity_world) < 0.8 * TOP
    assert order.waits


def test_what_one_that_waits_wants_is_nobodys_lane():
    order, _, traffic = ordered([(-MOUTH, 0.0), (3 * UNIT, 0.0)], [(TOP, 0.0), (-TOP, 0.0)], 0)
    assert not order.waits
    assert without_those_that_wait(traffic, order).wanted_world == pytest.approx(0)


def test_patience_ends_and_only_when_nobody_comes_against_it():
    state = PassageState(np.array(-0.5), np.array(100.0))
    far = [(3 * UNIT, 0.0), (-2 * UNIT, 0.0)]
    assert goes(ordered(far, [(-TOP, 0.0), (TOP, 0.0)], 0, state)[0])
    inside = [(3 * UNIT, 0.0), (0.0, 0.0)]
    assert not goes(ordered(inside, [(-TOP, 0.0), (TOP, 0.0)], 0, state)[0])


@pytest.mark.parametrize(
    ("place", "wanted"),
    [
        ((-2 * UNIT, 0.0), (-TOP, 0.0)),  # it leaves
        ((-2 * UNIT, 0.0), (0.0, TOP)),  # it passes by
        ((-2 * UNIT, 0.0), (0.1 * TOP, 0.0)),  # it is where it wants to be
        ((-2 * UNIT, 3 * UNIT), (TOP, 0.0)),  # against the wall
    ],
)
def test_who_does_not_want_through_takes_no_part(place, wanted):
    order, after, _ = ordered([place], [wanted], 0)
    assert not order.takes_part
    assert after.through_s == after.waited_s == 0


def test_the_way_is_kept_near_the_mouth_until_it_is_passed():
    """What a policy wants in detail changes there."""
    along = np.array([-MOUTH - 0.5 * UNIT, 0.2 * UNIT])
    state = PassageState(np.array(0.5), np.array(0.0))
    order, after, _ = ordered([along], [(0.0, TOP)], 0, state)
    assert order.takes_part
    assert after.through_s == 0.5
    order, after, _ = ordered([(PASSAGE.half_length_m + 0.01, 0.0)], [(TOP, 0.0)], 0, after)
    assert not order.takes_part
    assert after.through_s == 0


def test_a_plan_that_points_back_for_a_moment_does_not_turn_one_inside_round():
    """The next place of a plan can be beside the mouth; only after a while it means that the robot wants back."""
    state, back = PassageState(np.array(1.0), np.array(0.0)), (-TOP, 0.0)
    for tick in range(round(1.5 / PERIOD_S)):
        _, state, _ = ordered([(0.1, 0.05)], [back], 0, state)
        assert (state.through_s > 0) == (tick * PERIOD_S < 0.95)


def test_one_that_came_out_and_swerves_is_not_led_in_again():
    """Beside the mouth a direction leads in only along the axis, or as that of one that drives to the mouth."""
    beside = np.array([MOUTH + 0.1 * UNIT, -0.35 * UNIT])
    for degrees, leads in ((-116.0, False), (-90.0, False), (-160.0, True)):
        wish = TOP * np.array([math.cos(math.radians(degrees)), math.sin(math.radians(degrees))])
        assert bool(ordered([beside], [wish], 0)[0].takes_part) == leads
    order, _, _ = ordered([beside], [(-TOP, 0.0)], 0)
    assert order.through_world[1] > 0.8  # to the mouth first
    announced = TOP * order.through_world
    assert ordered([(3 * UNIT, 0.0), beside], [(-TOP, 0.0), announced], 0)[0].speed_share == 1
    assert ordered([(-3 * UNIT, 0.0), beside], [(TOP, 0.0), announced], 0)[0].waits


def test_one_that_turns_into_the_mouth_is_not_one_that_comes_out():
    """Seen a moment late, its way is no longer that from where it is; one inside backed out before it."""
    places, wanted = [(-0.1, 0.0), (MOUTH + 0.01, 0.06)], [(-TOP, 0.0), (-0.45 * TOP, -0.9 * TOP)]
    assert goes(ordered(places, wanted, 0)[0])


def test_one_that_has_the_way_makes_room_for_one_that_came_out_where_that_has_no_other_way_on():
    """Both would stand at the mouth permanently; where there is room outside, that one goes round."""
    places = [(MOUTH + 0.4 * UNIT, -1.5 * UNIT), (MOUTH + 0.6 * UNIT, -0.3 * UNIT)]
    wanted = [to_the_door(np.array(places[0]), -1), (0.0, -TOP)]
    assert ordered(places, wanted, 0, room=False)[0].waits
    assert goes(ordered(places, wanted, 0, room=True)[0])
    assert goes(ordered(places, [wanted[0], (TOP, 0.0)], 0, room=False)[0])


def test_one_that_came_out_passes_those_that_want_in_on_their_outer_side():
    """Those would have had to leave their place, or it drove against the wall; one that parks is not passed so."""
    for side in (-1, 1):
        places = [(MOUTH + 0.1 * UNIT, 0.0), (MOUTH + 0.2 * UNIT, side * 1.2 * UNIT)]
        wanted = [(0.0, side * TOP), to_the_door(np.array(places[1]), -1)]
        order, _, traffic = ordered(places, wanted, 0)
        assert order.enters.tolist() == [True]
        velocity, rounds = go_round(
            SHIELD, DOOR, np.array(places[0]), without_those_that_wait(traffic, order), np.array(wanted[0]), order
        )
        assert rounds
        assert velocity[0] > 0.5 * TOP
        assert not ordered(places, [wanted[0], (0.0, 0.0)], 0)[0].enters.any()


def test_one_that_is_followed_leaves_the_mouth_in_an_arc():
    """A sharp turn there takes most of a second, which all behind it lost."""
    places, wish = [(MOUTH + 0.1 * UNIT, 0.0), (0.0, 0.0)], np.array([0.0, TOP])
    followed, _, _ = ordered(places, [wish, (TOP, 0.0)], 0)
    found = away_from_the_mouth(followed, wish)
    assert found == pytest.approx([0.7 * TOP, math.sqrt(1 - 0.7**2) * TOP])
    alone, _, _ = ordered(places, [wish, (-TOP, 0.0)], 0)
    for order, same in ((alone, wish), (followed, np.array([TOP, 0.0])), (followed, np.array([-TOP, 0.01]))):
        assert away_from_the_mouth(order, same) == pytest.approx(same)


def waiting_place(place, others, wanted, seconds=12.0, shield=SHIELD):
    """Return where one that waits comes to stand."""
    place, state = np.array(place, float), NEW
    for _ in range(round(seconds / PERIOD_S)):
        own = to_the_door(place, -1)
        order, state, traffic = ordered([place, *others], [own, *wanted], 0, state)
        assert order.waits
        kept = without_those_that_wait(traffic, order)
        place = place + PERIOD_S * passage_velocity(shield, DOOR, order, place, kept, own).velocity_world
    return place


@pytest.mark.parametrize("start", [(1.2, 0.5), (0.35, 0.7), (0.9, 0.1)])
@pytest.mark.parametrize("other", [((-0.45, -0.1), 25.0), ((0.0, 0.0), 0.0)])
def test_one_that_waits_stands_close_to_the_mouth_beside_the_way_out(start, other):
    """Not in the lane of one on the other side, which the wall ends: that sent it far away."""
    place, degrees = other
    wish = TOP * np.array([math.cos(math.radians(degrees)), math.sin(math.radians(degrees))])
    x, y = waiting_place(start, [place], [wish])
    assert abs(x - MOUTH) < 0.6 * UNIT
    assert 1.05 * UNIT < y < 1.4 * UNIT  # beside the way along the axis


def test_late_messages_widen_what_is_left_free_as_layer_1_does():
    """At 1.1 separations beside the axis one that waited blocked who came out permanently: no robot passed the door."""
    ages = np.array([0.05, 0.6])
    wide = wider(SHIELD, ages, np.array([True, True]))
    assert wide.separation_m == pytest.approx(UNIT + 0.5 * TOP)
    assert wider(SHIELD, ages, np.array([True, False])).separation_m == UNIT
    assert wider(SHIELD, np.zeros(0), np.zeros(0, bool)) is SHIELD
    _, y = waiting_place((0.35, 0.7), [(0.0, 0.0)], [(TOP, 0.0)], shield=wide)
    assert y > 1.05 * wide.separation_m


def test_a_robot_goes_on_exactly_from_its_recorded_memory():
    """The memory is the whole of what replay needs."""
    table = PeerTable(
        np.array([[-0.4], [0.0]]),
        np.zeros((2, 1)),
        np.array([0.05]),
        np.array([True]),
        None,
        None,
        np.array([[TOP], [0]]),
    )
    point, nominal, first = np.array([3 * UNIT, 0.02]), np.array([-TOP, 0.0]), np.array([True])
    one, other = (DeadlockResolver(SHIELD, DOOR, PERIOD_S, 2) for _ in range(2))
    for _ in range(20):
        found = one.resolved(point, table, first, nominal)
        one.moved(0.5 * found)
    assert abs(math.atan2(found[1], -found[0])) > 0.5  # it waits, aside
    other.restore(one.memory, 0.5 * found)
    assert other.resolved(point, table, first, nominal) == pytest.approx(one.resolved(point, table, first, nominal))
    assert other.memory == one.memory
