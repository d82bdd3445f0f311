"""What a network reads: the goal's frame, hand numbers, and what a turn of the world changes."""

from functools import partial

import jax
import numpy as np
import pytest
from tests.policies.team_signals import bound_to_the_world, random_signals, rotated, with_entry, with_slots

from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_policies.networks import observation_encoding
from testudo_policies.networks.actor_critic import NetworkConfig
from testudo_policies.networks.agent import Agent
from testudo_sim.scenarios.scenario import BODY, WORLD, Observation

TO_GOAL = Observation("goal_world", "goal_world")
TO_BOX = Observation("goal_world", "box_position_world")


def encoder(observation):
    """Return the encoding as one program, with NumPy in and out: see `team_signals`."""
    run = jax.jit(partial(observation_encoding.encode, observation=observation))
    return lambda signals: jax.tree.map(np.asarray, run(signals))


encode, encode_box = encoder(TO_GOAL), encoder(TO_BOX)
out_of_frame = jax.jit(observation_encoding.out_of_frame)
ROBOTS = ["gritsbot_x", "crazyflie_2x"]
ANGLE = 2.1
pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture(params=ROBOTS)
def spec(request):
    return load_robot(request.param)


def test_hand_made_scene_in_the_plane():
    # the goal is 2 m north of the control point, so that x of the goal's frame is north, y is west
    signals = {
        "control_point_world": np.array([[1.0, 1.0]]),
        "goal_world": np.array([[1.0, 3.0]]),
        "yaw": np.array([[0.0]]),  # heading east: to the right of the goal
        "velocity": np.array([[0.1, 0.2]]),
        "neighbour_position_world": np.array([[[1.5, 1.0], [1.0, 1.5]]]),  # east, north
        "neighbour_velocity_world": np.array([[[0.0, 0.3], [-0.3, 0.0]]]),  # north, west
        "neighbour_age": np.array([[0.1, 0.2]]),
        "neighbour_valid": np.array([[1.0, 0.0]]),
    }
    found = encode(signals)
    # distance, near distance, place, direction to the goal, heading, velocity
    own = [2, 1, 1, 1, 0, 1, 0, -1, 0.1, 0.2]
    np.testing.assert_allclose(found.own[0], own, atol=1e-3)
    # place, distance, closeness 0.2 / (0.5 + 0.1), velocity, age
    east = [0, -0.5, 0.5, 1 / 3, 0.3, 0, 0.1]
    north = [0.5, 0, 0.5, 1 / 3, 0, 0.3, 0.2]
    np.testing.assert_allclose(found.neighbours[0], [east, north], atol=1e-3)
    # 0.5 m of 1.5 m of sight; the second slot holds nobody
    np.testing.assert_allclose(found.nearness[0], [1 - 0.5 / 1.5, 0], atol=1e-3)
    np.testing.assert_allclose(found.frame[0], [0, 1], atol=1e-3)
    assert found.pull[0, 0] > 0
    assert found.pull[0, 1] == 0


def test_only_features_of_the_place_in_the_arena_change_when_the_world_turns(spec):
    signals = random_signals(spec)
    before, after = encode(signals), encode(rotated(signals, spec, ANGLE))
    bound = bound_to_the_world(spec)
    changed = np.abs(np.asarray(after.own - before.own)).max(axis=0) > 1e-4
    assert sorted(np.flatnonzero(changed)) == sorted(bound)
    for name in ("neighbours", "nearness", "pull"):
        np.testing.assert_allclose(getattr(after, name), getattr(before, name), atol=1e-5)


def test_an_action_leaves_the_frame_turned_with_the_world(spec):
    signals = random_signals(spec)
    straight = np.eye(spec.dimension)[:1] + np.zeros((6, 1))  # along the goal's direction
    frame = encode(signals).frame
    offset = (signals["goal_world"] - signals["control_point_world"])[:, :2]
    found = out_of_frame(straight, frame)
    unit = offset / np.linalg.norm(offset, axis=-1, keepdims=True)
    np.testing.assert_allclose(found[:, :2], unit, atol=1e-4)


def test_height_is_not_turned_into_the_plane():
    spec = load_robot("crazyflie_2x")
    signals = random_signals(spec)
    found = encode(signals)
    offset = signals["goal_world"] - signals["control_point_world"]
    np.testing.assert_allclose(found.own[:, 2], offset[:, 2], atol=1e-6)
    up = np.tile(np.array([0.0, 0.0, 1.0]), (6, 1))
    np.testing.assert_allclose(out_of_frame(up, found.frame), up, atol=1e-6)


def test_with_the_goal_straight_above_a_robot_can_still_go_aside():
    signals = random_signals(load_robot("crazyflie_2x"))
    signals["goal_world"] = signals["control_point_world"] + np.array([0.0, 0.0, 1.0])
    found = encode(signals)
    np.testing.assert_allclose(found.pull[:, :2], 0, atol=0.01)
    aside = np.tile(np.array([0.6, 0.8, 0.0]), (6, 1))
    np.testing.assert_allclose(out_of_frame(aside, found.frame), aside, atol=1e-6)


def test_neighbour_slots_keep_their_order_and_do_not_touch_each_other(spec):
    signals = random_signals(spec, slots=5)
    all_of_them, some = encode(signals), encode(with_slots(signals, [3, 0]))
    np.testing.assert_array_equal(some.neighbours, all_of_them.neighbours[:, [3, 0]])
    np.testing.assert_array_equal(some.nearness, all_of_them.nearness[:, [3, 0]])
    np.testing.assert_array_equal(some.own, all_of_them.own)


def test_no_direction_and_no_distance_still_give_finite_features(spec):
    signals = random_signals(spec)
    point = signals["control_point_world"]
    signals["goal_world"] = point
    signals["neighbour_position_world"] = np.broadcast_to(point[:, None], (6, 4, spec.dimension))
    found = encode(signals)
    for value in (found.own, found.neighbours, found.nearness, found.pull, found.frame):
        assert np.isfinite(value).all()
    assert (found.nearness > 0.99).all()


def test_nearness_falls_from_one_at_touch_to_zero_at_the_edge_of_sight(spec):
    distances = np.array([0.0, 0.5, 1.0, 1.4, 1.5, 1.6, 20.0])
    signals = random_signals(spec, slots=len(distances))
    shift = np.zeros((len(distances), spec.dimension), np.float32)
    shift[:, 0] = distances
    signals["neighbour_position_world"] = signals["control_point_world"][:, None] + shift
    nearness = np.asarray(encode(signals).nearness[0])
    np.testing.assert_allclose(nearness, np.clip(1 - distances / 1.5, 0, 1), atol=2e-3)
    assert nearness[5] == nearness[6] == 0


def test_the_peers_goals_are_seen_from_the_own_control_point(spec):
    signals = random_signals(spec)
    plain = encode(signals).neighbours.shape[-1]
    there = signals["neighbour_position_world"]
    with_goals = encode({**signals, "neighbour_goal_world": there}).neighbours
    assert with_goals.shape[-1] == plain + spec.dimension
    np.testing.assert_allclose(with_goals[..., -spec.dimension :], with_goals[..., : spec.dimension], atol=1e-6)


# sums of the features and of their absolute values, before tasks could add signals of their own
OF_NAVIGATION = {
    "gritsbot_x": {
        "own": (26.4392, 38.9401),
        "neighbours": (57.1648, 69.9065),
        "nearness": (11.0967, 11.0967),
        "pull": (9.9651, 9.9651),
        "frame": (8.3207, 8.3207),
    },
    "crazyflie_2x": {
        "own": (25.1429, 52.0380),
        "neighbours": (81.7980, 104.0067),
        "nearness": (7.5795, 7.5795),
        "pull": (13.8584, 13.8584),
        "frame": (8.1884, 8.1884),
    },
}


def test_a_task_with_a_goal_only_reads_what_it_always_read(spec):
    signals = random_signals(spec)
    there = signals["neighbour_position_world"]
    found = encode({**signals, "neighbour_goal_world": 0.7 * there - 0.2})
    for name, (total, absolute) in OF_NAVIGATION[spec.name].items():
        value = np.asarray(getattr(found, name), float)
        assert value.sum() == pytest.approx(total, abs=2e-4)
        assert np.abs(value).sum() == pytest.approx(absolute, abs=2e-4)


def box_signals(spec, yaw=0.3):
    """Return signals of a task with a box, and with a number that is no place and no angle."""
    signals = random_signals(spec)
    point = signals["control_point_world"]
    return signals | {
        "box_position_world": point + np.linspace(0.1, 0.9, spec.dimension),
        "box_quarter_yaw": np.full((6, 1), yaw),
        "box_yaw": np.full((6, 1), yaw),
        "charge": np.full((6, 2), 0.25),
    }


def test_a_box_in_the_plane_by_hand():
    # goal 2 m north: x of its frame is north, y is west; the box stands 0.5 m east, turned by 30 degrees
    signals = {name: value[:1] for name, value in random_signals(load_robot("gritsbot_x")).items()} | {
        "control_point_world": np.array([[1.0, 1.0]]),
        "goal_world": np.array([[1.0, 3.0]]),
        "box_position_world": np.array([[1.5, 1.0]]),
        "box_quarter_yaw": np.array([[np.pi / 6]]),
        "box_yaw": np.array([[np.pi / 6]]),
        "charge": np.array([[0.7]]),
    }
    found = encode_box(signals)
    # offset, distance; four times (30 - 90) degrees is 120; 30 - 90 degrees; the number
    expected = [0, -0.5, 0.5, -0.5, np.sqrt(0.75), 0.5, -np.sqrt(0.75), 0.7]
    np.testing.assert_allclose(found.own[0, 10:], expected, atol=1e-5)
    # drawn to the box, to the right, at 2 x 0.5 / (0.5 + 0.3)
    np.testing.assert_allclose(found.pull[0], [0, -1.25], atol=1e-4)


def test_a_square_box_looks_the_same_after_a_quarter_turn(spec):
    first, second = box_signals(spec), box_signals(spec, 0.3 + np.pi / 2)
    del first["box_yaw"], second["box_yaw"]
    np.testing.assert_allclose(encode(first).own, encode(second).own, atol=1e-5)


def test_what_a_task_adds_turns_with_the_world_and_does_not_depend_on_the_order_of_names(spec):
    signals = box_signals(spec)
    turned = rotated(signals, spec, ANGLE)
    for name in ("box_quarter_yaw", "box_yaw"):
        turned[name] = signals[name] + ANGLE
    before, after = encode_box(signals), encode_box(turned)
    plain = encode(random_signals(spec)).own.shape[-1]
    assert before.own.shape[-1] == plain + spec.dimension + 1 + 2 + 2 + 2
    np.testing.assert_allclose(after.own[:, plain:], before.own[:, plain:], atol=1e-5)
    np.testing.assert_allclose(after.pull, before.pull, atol=1e-5)
    names = list(reversed(signals))  # given one by one, because a dictionary's names reach a program in sorted order
    run = jax.jit(lambda *values: observation_encoding.encode(dict(zip(names, values, strict=True)), TO_BOX))
    backwards = run(*(signals[name] for name in names))
    np.testing.assert_allclose(backwards.own, before.own, atol=1e-5)


def test_the_critic_sees_what_the_task_tells_the_peers_like_its_own(spec):
    signals = box_signals(spec)
    task = ("box_position_world", "box_quarter_yaw", "box_yaw", "charge")
    slots = {f"neighbour_{name}": np.repeat(signals[name][:, None], 4, axis=1) for name in task}
    plain, own = encode(random_signals(spec)), encode(signals).own
    found = encode(signals | slots)
    size = plain.own.shape[-1]
    for slot in range(4):
        np.testing.assert_allclose(found.neighbours[:, slot, plain.neighbours.shape[-1] :], own[:, size:], atol=1e-5)
    np.testing.assert_array_equal(found.own, own)


def test_a_task_without_a_goal_is_refused():
    signals = box_signals(load_robot("gritsbot_x"))
    del signals["goal_world"]
    with pytest.raises(TestudoError, match=r"goal_world is missing, found box_position_world, box_q.*as frame"):
        encode(signals)


def forage_signals(spec, batch=6, count=3):
    """Return signals of a task without a goal: entities of one group, one of them absent, and a trait of the peers."""
    signals = random_signals(spec, batch)
    del signals["goal_world"]
    point = signals["control_point_world"]
    places = point[:, None] + np.linspace(0.2, 0.8, count)[:, None] * np.ones(spec.dimension)
    return signals | {
        "level": np.full((batch, 1), 2.0),
        "neighbour_level": np.full((batch, 4, 1), 3.0),
        "resource_position_world": places,
        "resource_level": np.arange(1.0, count + 1)[None, :, None] * np.ones((batch, 1, 1)),
        "resource_valid": with_entry(np.ones((batch, count, 1)), np.s_[:, 1], 0.0),
    }


def test_entities_are_encoded_one_by_one_and_traits_of_peers_with_each_neighbour():
    spec = load_robot("gritsbot_x")
    signals = forage_signals(spec)
    found = encoder(Observation())(signals)
    # the frame of the world: level, then offset along x and y, and distance
    share = np.linspace(0.2, 0.8, 3)
    expected = np.stack([[1, 2, 3], share, share, np.sqrt(2) * share], axis=-1)
    np.testing.assert_allclose(found.entities["resource"][0], expected, atol=1e-4)
    np.testing.assert_array_equal(found.presence["resource"][0], [1, 0, 1])
    np.testing.assert_array_equal(found.frame[0], [1, 0])
    np.testing.assert_array_equal(found.pull, np.zeros((6, 2)))
    np.testing.assert_array_equal(found.neighbours[..., -1], np.full((6, 4), 3.0))
    assert found.own[0, -1] == 2.0


def test_in_the_frame_of_the_body_a_turn_of_the_world_changes_only_what_is_bound_to_it(spec):
    signals, turned = forage_signals(spec), rotated(forage_signals(spec), spec, ANGLE)
    before, after = (encoder(Observation(BODY))(one) for one in (signals, turned))
    for one, other in ((before.entities, after.entities), (before.presence, after.presence)):
        np.testing.assert_allclose(one["resource"], other["resource"], atol=1e-5)
    np.testing.assert_allclose(before.neighbours, after.neighbours, atol=1e-5)
    assert np.abs(encoder(Observation(WORLD))(turned).entities["resource"] - before.entities["resource"]).max() > 0.1


def test_a_policy_reads_nothing_of_peers_beyond_the_range_of_communication(spec):
    """Peers stand at 0.2 m to 0.8 m along each axis; what those beyond the range do changes no output."""
    signals = forage_signals(spec)
    away = np.array([0.2, 0.4, 0.6, 0.8])
    place = signals["control_point_world"][:, None] + away[:, None] * np.ones(spec.dimension)
    signals = signals | {"neighbour_position_world": place}
    range_m = 0.5 * spec.dimension**0.5
    agent = Agent(NetworkConfig(width=8, memory=0), spec.dimension, 0.2, Observation(peer_range_m=range_m))
    features = jax.jit(agent.encode)(signals)
    np.testing.assert_array_equal(np.asarray(features.nearness) > 0, np.tile([True, True, False, False], (6, 1)))
    parameters = jax.jit(agent.init)(jax.random.key(0), features, features)
    policy, still = jax.jit(agent.policy(parameters)), agent.blank_memory(6)

    def moved(peer):
        changes = {"neighbour_velocity_world": 0.1, "neighbour_level": 9.0}
        return signals | {
            name: with_entry(signals[name], np.s_[:, peer], signals[name][:, peer] + change)
            for name, change in changes.items()
        }

    def command(of):
        return np.asarray(policy(of, still)[0])

    np.testing.assert_array_equal(command(moved(2)), command(signals))
    assert np.abs(command(moved(0)) - command(signals)).max() > 1e-6
    central = np.asarray(jax.jit(agent.encode_central)(signals).nearness) > 0
    np.testing.assert_array_equal(central, np.tile(away * spec.dimension**0.5 < 1.5, (6, 1)))
