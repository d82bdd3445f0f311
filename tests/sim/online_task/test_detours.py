"""Ways round robots that stand, for one that a straight policy leaves in a trap; none where it gets on by itself."""

import math

import pytest

from testudo_deploy.shield.arena import Arena, Ball
from testudo_sim.online_task.detours import STUCK_S, Detours

ARENA, SEPARATION_M, ROOM_M, SPEED_M_S, STEP_S = Arena((-1.6, -1.0), (1.6, 1.0)), 0.29, 0.14, 0.2, 0.05
WALL_AND_TWO = {"r1": (0.0, -0.64), "r2": (0.0, -0.12)}
"""Two that stand, the first so near to the wall that nobody passes there, nor between them."""


def drive(start, goal, others, *, helped=True, seconds=60.0, arena=ARENA):
    """Drive r0 straight to its goal, stopping before bodies at rest; return its positions and whether it was led."""
    ways, place, led, places = Detours(arena, room_m=ROOM_M, separation_m=SEPARATION_M), start, 0, [start]
    for step in range(round(seconds / STEP_S)):
        now_s, seen = step * STEP_S, {"r0": place, **others}
        ways.see(seen, now_s)
        corner = ways.corner("r0", goal, seen, now_s) if helped else None
        led += corner is not None
        target = corner or goal
        way_m = max(math.dist(place, target), 1e-9)
        share = min(SPEED_M_S * STEP_S / way_m, 1.0)
        after = tuple(x + share * (to - x) for x, to in zip(place, target, strict=True))
        if all(
            math.dist(after, other) >= SEPARATION_M or math.dist(after, other) > math.dist(place, other)
            for other in others.values()
        ):
            place = after
        places.append(place)
        if math.dist(place, goal) < 0.05:
            break
    return places, led, ways


def test_it_leads_a_robot_out_of_a_trap_round_those_that_stand():
    start, goal = (-0.8, -0.4), (0.8, -0.4)
    stuck, _, _ = drive(start, goal, WALL_AND_TWO, helped=False)
    assert math.dist(stuck[-1], goal) > 0.8  # control: straight on it stays there for ever
    places, led, _ = drive(start, goal, WALL_AND_TWO)
    assert math.dist(places[-1], goal) < 0.05
    assert led > 0
    assert max(y for _, y in places) > 0.15  # round the far one, not between them
    assert min(math.dist(place, other) for place in places for other in WALL_AND_TWO.values()) >= SEPARATION_M
    assert len(places) * STEP_S < 30.0


def test_one_that_comes_nearer_is_left_alone():
    places, led, _ = drive((-0.8, 0.5), (0.8, 0.5), WALL_AND_TWO)
    assert (led, math.dist(places[-1], (0.8, 0.5)) < 0.05) == (0, True)


def test_obstacles_are_kept_from_as_well():
    arena = Arena(ARENA.low_world, ARENA.high_world, (Ball((0.0, 0.3), 0.1),))
    places, _, _ = drive((-0.8, -0.4), (0.8, -0.4), WALL_AND_TWO, arena=arena)
    assert math.dist(places[-1], (0.8, -0.4)) < 0.05
    assert max(y for _, y in places) > 0.5  # between r2 and the ball there is no room


def test_without_a_way_it_says_so_until_one_opens():
    fence = {f"r{k + 1}": (0.0, -0.85 + 0.42 * k) for k in range(5)}
    _, led, ways = drive((-0.8, 0.0), (0.8, 0.0), fence, seconds=10.0)
    assert led == 0
    assert ways.shut == {"r0"}
    seen = {"r0": (-0.3, 0.0), "r1": (1.4, 0.9)}
    for step in range(round(2 * STUCK_S / STEP_S)):
        ways.see(seen, 20.0 + step * STEP_S)
        ways.corner("r0", (0.8, 0.0), seen, 20.0 + step * STEP_S)
    assert ways.shut == set()


def test_robots_that_drive_are_nobodys_fence():
    ways = Detours(ARENA, room_m=ROOM_M, separation_m=SEPARATION_M)
    for step in range(200):
        now_s = step * STEP_S
        seen = {"r0": (-0.3, -0.4)} | {name: (x, y + 0.3 * math.sin(now_s)) for name, (x, y) in WALL_AND_TWO.items()}
        ways.see(seen, now_s)
        assert ways.corner("r0", (0.8, -0.4), seen, now_s) is None


@pytest.mark.parametrize("arena", [None, Arena((-500.0, -500.0), (500.0, 500.0))])
def test_a_wide_arena_is_searched_only_where_the_way_is(arena):
    places, led, _ = drive((-0.8, -0.4), (0.8, -0.4), WALL_AND_TWO, arena=arena)
    assert math.dist(places[-1], (0.8, -0.4)) < 0.05
    assert led > 0
