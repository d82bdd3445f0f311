"""Beside a wall a robot goes round one that stands, on the side on which there is room; elsewhere it goes on."""

import numpy as np
import pytest

from testudo_deploy.shield.arena import Arena
from testudo_deploy.shield.going_round import go_round
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_deploy.shield.right_of_way import Traffic
from testudo_hardware.spec import load_robot

SHIELD = projection_parameters(load_robot("gritsbot_x"))
UNIT, WALL, TOP = SHIELD.separation_m, SHIELD.wall_m, 0.2
ARENA = Arena((-3.0, 0.0), (3.0, 6.0))
EAST = np.array([TOP, 0.0])


def wish(high, offset=(1.2, 0.0), wanted=(0.0, 0.0), arena=ARENA, nominal=EAST, present=True):
    """Return the rule's answer at a height [separations] above where control points may be, with one peer."""
    place = np.array([0.0, WALL + high * UNIT])
    column = np.array(wanted, float)[:, None]
    peers = Traffic(UNIT * np.array(offset, float)[:, None], 0 * column, column, np.array([True]), np.array([present]))
    velocity, rounds = go_round(SHIELD, arena, place, peers, nominal)
    return velocity, bool(rounds)


@pytest.mark.parametrize("side", [1, -1])
def test_it_passes_on_the_side_without_the_wall(side):
    """To the left of one beside the lower wall, to the right of one beside the upper, as fast as it wanted."""
    arena = ARENA if side > 0 else Arena((-3.0, -6.0), (3.0, 2 * WALL + UNIT))
    velocity, rounds = wish(0.5, arena=arena)
    assert rounds
    assert side * velocity[1] > 0.4 * TOP
    assert np.linalg.norm(velocity) == pytest.approx(TOP)


@pytest.mark.parametrize(
    "case",
    [
        {"high": 3.0},  # room on both sides: the turn of all to the right decides
        {"high": 0.5, "arena": Arena((-3.0, 0.0), (3.0, 2 * WALL + UNIT))},  # on neither side
        {"high": 0.5, "arena": None},
        {"high": 0.5, "wanted": (TOP, 0.0)},  # it drives
        {"high": 0.5, "offset": (2.5, 0.0)},  # far
        {"high": 0.5, "offset": (-1.2, 0.0)},  # behind
        {"high": 0.5, "offset": (1.0, 1.2)},  # beside the way
        {"high": 0.5, "present": False},
        {"high": 0.5, "nominal": 0.1 * EAST},  # it stands itself
    ],
)
def test_otherwise_it_keeps_its_velocity(case):
    velocity, rounds = wish(**case)
    assert not rounds
    assert velocity == pytest.approx(case.get("nominal", EAST))
