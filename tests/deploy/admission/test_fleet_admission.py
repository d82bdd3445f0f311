"""Where contract and fleet meet: no robot starts, takes off or goes outside the arena of its policy."""

from dataclasses import replace

import pytest
from tests.deploy.tiny_fleet import make_tiny_fleet

from testudo_deploy.admission.fleet_admission import check_inside_arena, checked_safety_contracts
from testudo_deploy.fleet.fleet import FleetError
from testudo_deploy.fleet.policy_groups import Follow
from testudo_deploy.shield.arena import Arena, Ball, Block

WALLS = Arena((-2.0, -2.0), (2.0, 2.0))
SPACE = Arena((-2.0, -2.0, 0.3), (2.0, 2.0, 2.0))


def moved(fleet, **keys):
    """Return the fleet with other places of its first robot."""
    return replace(fleet, robots=(replace(fleet.robots[0], **keys), *fleet.robots[1:]))


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (
            {"initial_position_world": (50.0, 0.0)},
            "robots.r0.initial_position: found x = 50 m, expected -1.9325 to 1.9325 m",
        ),
        (
            {"initial_position_world": (0.0, -2.1)},
            "robots.r0.initial_position: found y = -2.1 m, expected -1.9325 to 1.9325 m",
        ),
        (
            {"goal_world": (0.0, 7.0)},
            "robots.r0.goal: found y = 7 m, expected -1.9325 to 1.9325 m: the arena of policy.onnx less the body",
        ),
        ({"goal_world": (0.0, 7.0), "follows": Follow("r1")}, "robots.r0.follow: found y = 7 m"),
    ],
)
def test_a_start_or_a_goal_behind_a_wall_is_refused_with_the_key(tmp_path, keys, said):
    fleet = moved(make_tiny_fleet(tmp_path), **keys)
    with pytest.raises(FleetError) as refusal:
        check_inside_arena(fleet, WALLS)
    assert f"{fleet.file}: {said}" in str(refusal.value)
    check_inside_arena(fleet, None)


@pytest.mark.parametrize(
    ("height_m", "holds"), [(0.29, False), (0.3, True), (2.0, True), (2.01, False), (100.0, False), (-5.0, False)]
)
def test_a_drone_takes_off_to_a_height_between_floor_and_ceiling(tmp_path, height_m, holds):
    fleet = moved(make_tiny_fleet(tmp_path, robot="crazyflie_2x"), initial_position_world=(0.0, 0.0, height_m))
    if holds:
        check_inside_arena(fleet, SPACE)
        return
    with pytest.raises(FleetError, match=r"r0\.initial_position: found z = .* m, expected 0\.3 to 2 m"):
        check_inside_arena(fleet, SPACE)


@pytest.mark.parametrize("obstacle", [Ball((0.6, 0.0), 0.2), Block((0.6, 0.1), (0.3, 0.3), 0.4)])
def test_no_goal_stands_in_an_obstacle(tmp_path, obstacle):
    fleet = make_tiny_fleet(tmp_path)
    with pytest.raises(FleetError, match=r"r0\.goal: found \[0\.6, 0\.0\], -0\.\d+ m from obstacle 1 of the arena"):
        check_inside_arena(fleet, replace(WALLS, obstacles=(Ball((-1.5, -1.5), 0.1), obstacle)))


@pytest.mark.parametrize("key", ["initial_position_world", "goal_world"])
def test_a_body_that_would_touch_a_wall_or_an_obstacle_is_refused_and_one_beside_it_is_not(tmp_path, key):
    """The middle of a robot is inside long before its body is: 5 cm from the wall, with a body of 6.75 cm."""
    fleet = make_tiny_fleet(tmp_path)
    arena = replace(WALLS, obstacles=(Block((0.0, -1.0), (0.2, 0.2), 0.0),))
    for place in ((1.95, 0.0), (0.0, 1.95), (0.25, -1.0)):
        with pytest.raises(FleetError, match="body"):
            check_inside_arena(moved(fleet, **{key: place}), arena)
    for place in ((1.93, 0.0), (0.0, 1.93), (0.27, -1.0)):
        check_inside_arena(moved(fleet, **{key: place}), arena)


def test_the_arena_is_looked_at_before_a_fleet_starts(tmp_path):
    fleet = make_tiny_fleet(tmp_path)
    assert len(checked_safety_contracts(fleet)) == 2
    with pytest.raises(FleetError, match="the arena of policy"):
        checked_safety_contracts(moved(fleet, goal_world=(900.0, 0.0)))
