"""Gate and reservations over ticks: one test for each rule of shield.md, layer 3, and drives among peers' lanes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.deploy.peer_lanes import Walker, peer, spaces, unheard
from tests.effort import examples

from testudo_deploy.shield.geometry import point_distance, segment_distance, z_scaled
from testudo_deploy.shield.stop_tube import stop_tube
from testudo_deploy.shield.velocity_projection import Arena
from testudo_hardware.motion import MotionState
from testudo_hardware.motion.motion_model import effective_command

ROBOTS = ("gritsbot_x", "turtlebot4", "crazyflie_2x", "robomaster_s1")
FAR = (9.0, 9.0)


def far_away(walker, **changes):
    return spaces(peer((9.0,) * walker.spec.dimension, **changes), size=walker.spec.dimension)


def ahead(walker, speed=None):
    """Return a velocity along x."""
    velocity = np.zeros(walker.spec.dimension)
    velocity[0] = walker.spec.speed_limit_m_s if speed is None else speed
    return velocity


def off_lane(walker, lane_world, found):
    """Return how far the tube of what passed is from the middle of a lane [m]."""
    tube = stop_tube(
        walker.model,
        walker.state.position_world,
        walker.state,
        effective_command(walker.model, found.command),
        walker.space.hold_ticks,
    )
    lane = z_scaled(lane_world, walker.space.height_ratio, 1)[:, :, None]
    return point_distance(z_scaled(tube, walker.space.height_ratio), lane[0], lane[1]).max()


def anywhere(name, rng):
    """Return a robot in any motion on a lane of any length around it, perhaps with an announcement."""
    walker = Walker(name)
    spec, size = walker.spec, walker.spec.dimension
    velocity = rng.uniform(-1, 1, size) * spec.speed_limit_m_s * rng.choice([0.0, 0.3, 1.0]) / np.sqrt(size)
    walker.state = MotionState(np.zeros(size), np.array(rng.uniform(-3, 3)), velocity)
    way = rng.standard_normal((4, size))
    way *= rng.uniform(0, 3, (4, 1)) * spec.speed_limit_m_s * rng.choice([0.0, 1.0], (4, 1))
    lane = np.stack([-0.3 * way[0], way[0]])
    changes = {"owned_world": lane}
    if rng.random() < 0.6:
        share = rng.uniform(0, 1)
        changes |= walker.asking(lane[0] + share * (lane[1] - lane[0]), way[1])
    wanted = way[2] / (np.linalg.norm(way[2]) + 1e-9) * spec.control_point_speed_m_s * rng.uniform(0, 1)
    return walker, changes, wanted


@pytest.mark.parametrize("name", ROBOTS)
@settings(max_examples=examples(30), deadline=None)
@given(seed=st.integers(0, 2**32 - 1), acknowledged=st.sampled_from([4, 5]))
def test_r1_only_what_stays_in_the_own_lane_passes(name, seed, acknowledged):
    """And what is let go of (R3) leaves the tube of the command that passed in what is kept."""
    walker, changes, wanted = anywhere(name, np.random.default_rng(seed))
    found = walker.look(wanted, far_away(walker, acknowledged=acknowledged), **changes)
    if found.factor > 0:
        assert off_lane(walker, found.space.owned_world, found) <= walker.space.lane_m + 1e-9
    else:
        brake = walker.look(0 * wanted, far_away(walker), **changes)
        assert found.command == pytest.approx(brake.command)


@pytest.mark.parametrize("name", ROBOTS)
@settings(max_examples=examples(30), deadline=None)
@given(seed=st.integers(0, 2**32 - 1), acknowledged=st.sampled_from([4, 5]))
def test_r3_a_lane_only_shrinks_or_becomes_the_announced_one(name, seed, acknowledged):
    """Both ends stay on the old lane, or on the one that was announced and acknowledged."""
    walker, changes, wanted = anywhere(name, np.random.default_rng(seed))
    found = walker.look(wanted, far_away(walker, acknowledged=acknowledged), **changes)
    before = changes["owned_world"]
    ends = found.space.owned_world
    stays = max(point_distance(end, *before) for end in ends) < 1e-9
    announced = changes.get("announced_world")
    taken = announced is not None and max(point_distance(end, *np.array(announced)) for end in ends) < 1e-9
    assert stays or (taken and acknowledged >= 5)
    if not taken:
        assert np.linalg.norm(ends[1] - ends[0]) <= np.linalg.norm(before[1] - before[0]) + 1e-9


@settings(max_examples=examples(50), deadline=None)
@given(st.tuples(*[st.floats(-1.0, 1.0)] * 8), st.booleans())
def test_r2_what_is_announced_is_clear_of_all_that_was_heard(numbers, reserves):
    walker = Walker()
    lanes = np.array(numbers).reshape(4, 2)
    found = walker.look(ahead(walker), spaces(peer(lanes[:2], lanes[2:], reserves=reserves)))
    if not found.space.pending:
        return
    assert found.space.since == 1.0  # the message that follows
    for theirs in (lanes[:2], lanes[2:]) if reserves else ():
        assert segment_distance(*found.space.announced_world, *theirs) >= walker.space.clearance_m - 1e-9


@pytest.mark.parametrize(("acknowledged", "takes"), [(4, False), (5, True), (6, True)])
def test_r2_it_is_taken_with_the_acknowledgement_of_this_announcement_only(acknowledged, takes):
    walker = Walker()
    asked = walker.asking((0.0, 0.0), (0.3, 0.0), since=5)
    found = walker.look(ahead(walker), spaces(peer(FAR), peer(FAR, acknowledged=acknowledged)), **asked)
    assert bool(found.factor == 1) == takes  # without it, slowly within the half-width of the lane
    assert bool(found.space.owned_world[1, 0] > 0.05) == takes
    if not takes:
        assert found.space.pending
        assert found.space.since == 5
        assert found.space.announced_world.tolist() == [[0.0, 0.0], [0.3, 0.0]]


def test_r2_it_is_dropped_against_what_the_acknowledging_message_owns():
    walker = Walker()
    asked = walker.asking((0.0, 0.0), (0.3, 0.0))
    blocked = spaces(peer((0.3 + walker.space.clearance_m / 2, 0.0), acknowledged=9))
    found = walker.look(ahead(walker), blocked, **asked)
    assert found.space.owned_world.tolist() == [[0.0, 0.0]] * 2
    # dropped at once; what is asked for instead is a new announcement, with a number of its own, and clear
    assert not found.space.pending or found.space.since == walker.number + 1
    assert (
        segment_distance(*found.space.announced_world, *[np.array([0.3 + walker.space.clearance_m / 2, 0.0])] * 2)
        >= walker.space.clearance_m
        or not found.space.pending
    )


@pytest.mark.parametrize("first", [False, True])
def test_r2_of_two_announcements_the_second_robots_is_dropped(first):
    walker = Walker()
    asked = walker.asking((0.0, 0.0), (0.3, 0.0))
    other = (0.3 + walker.space.clearance_m / 2, 0.0)
    found = walker.look(ahead(walker), spaces(peer(FAR, other, acknowledged=9, first=first)), **asked)
    assert found.space.owned_world.tolist() == [[0.0, 0.0]] * 2
    kept = bool(found.space.pending) and found.space.since == 5
    assert kept == first


@pytest.mark.parametrize(("first", "acknowledged", "goes"), [(True, 0, True), (True, -1, False), (False, 0, False)])
def test_r4_past_a_silent_peer_only_the_first_goes_and_not_after_a_restart(first, acknowledged, goes):
    walker = Walker()
    silent = far_away(walker, acknowledged=acknowledged, silent=True, first=first)
    for _ in range(60):
        walker.walk(ahead(walker), silent)
    assert bool(walker.state.position_world[0] > 0.1) == goes
    if not goes:
        assert abs(walker.state.position_world[0]) <= walker.space.lane_m


def test_r4_a_silent_peer_is_an_obstacle_with_what_it_announced():
    walker = Walker()
    wall = (1.0, 0.0)
    for k in range(200):
        walker.walk(ahead(walker), spaces(peer(FAR, wall, acknowledged=k // 100, silent=True)))
    lane = walker.own.owned_world
    assert segment_distance(*lane, np.array(wall), np.array(wall)) >= walker.space.clearance_m
    assert 0.2 < walker.state.position_world[0] < 1.0 - walker.space.clearance_m + walker.space.lane_m


def test_r5_an_untrusted_peer_blocks_no_lane():
    """The gate keeps clear of its body; its messages count for nothing."""
    walker = Walker()
    for _ in range(60):
        walker.walk(ahead(walker), spaces(peer((0.5, 0.0), reserves=False, acknowledged=-1)))
    assert walker.state.position_world[0] > 0.2


@pytest.mark.parametrize("name", ROBOTS)
@pytest.mark.parametrize("first", [False, True])
def test_a_robot_that_never_hears_anything_stays_in_its_first_lane(name, first):
    """And asks for none: nothing is known to be free."""
    walker = Walker(name)
    size, rng = walker.spec.dimension, np.random.default_rng(0)
    nobody = spaces(unheard(size, first=first), size=size)
    for _ in range(80):
        found = walker.walk(rng.uniform(-1, 1, size) * walker.spec.speed_limit_m_s, nobody)
        assert not found.space.pending
        assert np.linalg.norm(walker.state.position_world) <= walker.space.lane_m
        assert found.space.owned_world == pytest.approx(np.zeros((2, size)))


class Echo:
    """A peer with a lane of its own that acknowledges each message some ticks later."""

    def __init__(self, walker, place, delay):
        self.walker, self.place, self.delay = walker, place, delay

    def spaces(self):
        acknowledged = self.walker.number - self.delay
        return spaces(peer(self.place, acknowledged=acknowledged), size=self.walker.spec.dimension)


@pytest.mark.parametrize("name", ROBOTS)
@pytest.mark.parametrize("delay", [1, 3, 8])
def test_with_acknowledgements_it_drives_on(name, delay):
    """Liveness of the rules: lanes reach ahead far enough that short delays cost little."""
    walker = Walker(name)
    echo, period = Echo(walker, (9.0,) * walker.spec.dimension, delay), walker.spec.control_period_s
    ticks, factors = round(6 / period), []
    for _ in range(ticks):
        factors.append(float(walker.walk(ahead(walker), echo.spaces()).factor))
        assert off_lane(walker, walker.own.owned_world, walker.look(0 * ahead(walker), echo.spaces())) <= (
            walker.space.lane_m + walker.space.tube_error_m
        )
    share = walker.state.position_world[0] / (6 * walker.spec.speed_limit_m_s)
    assert share > (0.85 if delay == 1 else 0.6 if delay == 3 else 0.3)


@pytest.mark.parametrize("name", ROBOTS)
def test_it_stops_before_a_lane_that_is_in_the_way(name):
    """At every tick its lane is a clearance from the peer's; its body ends a body and more before it."""
    walker = Walker(name)
    place = ahead(walker, 2 * walker.space.clearance_m)
    echo = Echo(walker, place, 2)
    for _ in range(round(12 / walker.spec.control_period_s)):
        walker.walk(ahead(walker), echo.spaces())
        assert segment_distance(*walker.own.owned_world, place, place) >= walker.space.clearance_m - 1e-9
    distance = np.linalg.norm(place - walker.state.position_world)
    assert distance >= walker.space.clearance_m - walker.space.lane_m
    assert distance < 1.5 * walker.space.clearance_m + walker.space.lane_m


def test_lanes_are_asked_for_within_the_walls():
    half = 0.5
    walker = Walker(arena=Arena((-half, -half), (half, half)))
    for _ in range(150):
        found = walker.walk(ahead(walker), far_away(walker))
        assert (np.abs(found.space.announced_world) <= half - walker.space.wall_m + 1e-9).all()
    assert 0.2 < walker.state.position_world[0] <= half - walker.space.wall_m


def test_a_robot_beside_its_lane_can_ask_for_a_new_one():
    """Regression: errors in a tube let it rest beside its lane, where no lane from the old one held its tube."""
    walker = Walker()
    walker.state = MotionState(np.array([0.0, 1.5 * walker.space.lane_m]), np.array(0.0), np.zeros(2))
    for _ in range(60):
        walker.walk(ahead(walker), far_away(walker))
    assert walker.state.position_world[0] > 0.1


@pytest.mark.parametrize("name", ["gritsbot_x", "crazyflie_2x"])
@pytest.mark.parametrize("where", ["position", "velocity", "wanted", "owned"])
def test_what_is_no_number_brakes(name, where):
    """Nothing that compares false lets a command through; `Shield.step` makes a zero command of what is not finite."""
    walker, bad = Walker(name), np.nan
    lane = np.stack([-ahead(walker), ahead(walker)])
    wanted = 0.5 * ahead(walker)
    parts = {
        "position": walker.state.position_world.copy(),
        "velocity": walker.state.velocity.copy(),
        "wanted": wanted,
        "owned": lane,
    }
    assert walker.look(wanted, far_away(walker), owned_world=lane).factor == 1
    parts[where][..., 0] = bad
    walker.state = MotionState(parts["position"], walker.state.yaw, parts["velocity"])
    with np.errstate(invalid="ignore"):
        found = walker.look(parts["wanted"], far_away(walker), owned_world=parts["owned"])
    assert not found.factor > 0
    if where != "owned":
        assert found.space.owned_world.tolist() == lane.tolist()


def test_no_segment_is_taken_that_does_not_hold_the_brake():
    """All peers have acknowledged it, but the robot is not there."""
    walker = Walker()
    requested = walker.asking((0.6, 0.6), (0.9, 0.6))
    found = walker.look(np.array([0.1, 0.0]), spaces(peer(FAR, acknowledged=9)), **requested)
    assert found.space.owned_world.tolist() == [[0.0, 0.0]] * 2
