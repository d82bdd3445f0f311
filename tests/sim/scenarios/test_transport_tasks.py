"""The transport tasks of the Robotarium suite: loads, tiles and shelves, computed by hand from the suite's rules."""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.sim.scenarios.compiled import CompiledScenario, starts_of_keys

from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import MotionState
from testudo_hardware.spec import load_robot
from testudo_sim.physics.scene import Scene
from testudo_sim.scenarios.arctic_transport import GOAL, GROUND, ICE, WATER, ArcticTransport
from testudo_sim.scenarios.material_transport import MaterialTransport
from testudo_sim.scenarios.rware import CELLS, Rware, ShelfTask
from testudo_sim.scenarios.warehouse import Warehouse

pytestmark = pytest.mark.usefixtures("quick")
SPEC = load_robot("gritsbot_x")
KEYS = jax.random.split(jax.random.key(0), 1)


@cache
def made(kind):
    return CompiledScenario(kind.create(SPEC, projection_parameters(SPEC)))


def begun(scenario, team_size=4):
    return starts_of_keys(scenario, team_size, KEYS).task


def at(*places):
    """Return the scene of robots at rest at these places, one world."""
    position = np.array(places, np.float32).T[..., None]
    return Scene(MotionState(position, 0 * position[0], 0 * position))


def term(step, name):
    """Return a term, which is the same for all robots."""
    values = set(np.asarray(step.terms[name])[:, 0].tolist())
    assert len(values) == 1
    return pytest.approx(values.pop())


@pytest.mark.parametrize(
    ("kind", "ticks", "decisions"),
    [(Warehouse, 30, 70), (MaterialTransport, 60, 70), (ArcticTransport, 30, 100), (Rware, 60, 100)],
)
def test_times_are_those_of_the_suite(kind, ticks, decisions):
    scenario = made(kind)
    assert scenario.decision_ticks == ticks
    assert int(scenario.horizon_s / (ticks * SPEC.control_period_s)) == decisions


def test_a_robot_loads_on_the_right_and_unloads_on_the_left_in_the_halves_of_its_colour():
    """Robots 0, 1 are green, 2, 3 red: red loads above the middle and unloads below, green the other way round."""
    scenario = made(Warehouse)
    task = begun(scenario)
    assert task.traits["colour"][:, 0].tolist() == [-1, -1, 1, 1]
    right = at((1.2, 0.3), (1.2, -0.3), (1.0, 0.3), (1.2, 0.7))  # wrong half, load, outside, load
    step = scenario.advance(task, right, right, KEYS)
    assert step.task.loaded[:, 0].tolist() == [0, 1, 0, 1]
    assert (term(step, "loaded"), term(step, "unloaded")) == (2, 0)
    again = scenario.advance(step.task, right, right, KEYS)
    assert (again.task.loaded[:, 0].tolist(), term(again, "loaded")) == ([0, 1, 0, 1], 0)
    left = at((-1.2, 0.3), (-1.2, 0.7), (-1.2, -0.3), (-1.2, 0.3))  # empty, unload, empty, wrong half
    last = scenario.advance(step.task, right, left, KEYS)
    assert last.task.loaded[:, 0].tolist() == [0, 0, 0, 1]
    assert (term(last, "loaded"), term(last, "unloaded"), float(last.metrics["deliveries"][0])) == (0, 3, 1)
    assert last.success is None


def test_material_is_taken_by_capacity_and_success_needs_empty_robots():
    """Robots 0, 1 carry 5 at full speed, robots 2, 3 carry 15 at a third of it."""
    scenario = made(MaterialTransport)
    task = replace(begun(scenario), left=jnp.array([[16.0], [5.0]]))
    signals = scenario.signals(task, at((0, 0), (0.5, 0), (-0.5, 0), (0, 0.8)))
    np.testing.assert_allclose(signals["speed_share"][0, :, 0], [1, 1, 1 / 3, 1 / 3], atol=1e-6)
    assert signals["capacity"][0, :, 0].tolist() == [5, 5, 15, 15]
    assert signals["zone_load"][0, :, 0, 0].tolist() == [16, 5]
    # 0.3 m and 0.34 m from the middle; at the right end; outside
    places = at((0.3, 0.0), (1.2, 0.5), (0.0, 0.34), (0.5, 0.0))
    step = scenario.advance(task, places, places, KEYS)
    assert step.task.left[:, 0].tolist() == [0, 0]  # 16 < 5 + 15
    assert step.task.loaded[:, 0].tolist() == [1, 1, 1, 0]
    assert (term(step, "loaded"), term(step, "dropped"), term(step, "waiting")) == (0.75, 0, -0.1)
    assert (bool(step.success[0]), scenario.signals(step.task, places)["zone_valid"].sum()) == (False, 0)
    home = at((-1.2, 0.0), (-1.2, 0.5), (-1.2, -0.5), (0.5, 0.0))
    last = scenario.advance(step.task, places, home, KEYS)
    assert (term(last, "dropped"), term(last, "waiting"), bool(last.success[0])) == (2.25, 0, True)
    assert float(last.metrics["dropped"][0]) == 3


def test_robots_are_fast_on_tiles_of_their_kind_and_all_know_what_drones_see():
    scenario = made(ArcticTransport)
    tiles = np.full((8, 12), GROUND)
    tiles[0], tiles[4, 3], tiles[4, 8] = GOAL, ICE, ICE
    task = replace(begun(scenario), tile=jnp.asarray(tiles.reshape(-1, 1)))
    # tile (4, 3) is x in -0.75 to -0.5, y in -0.25 to 0; drone 0 is on (5, 2), drone 1 in the corner (7, 11)
    scene = at((-0.9, -0.3), (1.45, -0.95), (-0.6, -0.1), (0.6, -0.1))
    signals = scenario.signals(task, scene)
    np.testing.assert_allclose(signals["speed_share"][0, :, 0], [2 / 3, 2 / 3, 1, 1 / 3], atol=1e-6)
    assert signals["under"][:, 2, 0].tolist() == [1, 0]
    assert signals["kind"][:, :, 0].T.tolist() == [[0, 0], [0, 0], [1, 0], [0, 1]]
    # of the drone in the corner only four tiles are in the grid
    valid = signals["tile_valid"][0, :, 3, 0]
    assert (float(valid[:9].sum()), float(valid[9:].sum())) == (9, 4)
    ice = np.flatnonzero(signals["tile_kind"][0, :, 3, 0])
    assert ice.tolist() == [2]  # above to the right of drone 0: the other ice tile is seen by none
    np.testing.assert_allclose(signals["tile_position_world"][:, 2, 3, 0], [-0.625, -0.125], atol=1e-6)


def test_the_ice_robot_and_the_water_robot_have_to_reach_the_goal_row_and_drones_need_not():
    scenario = made(ArcticTransport)
    task = begun(scenario)
    start = at((-0.3, -0.8), (0.3, -0.8), (-0.9, 0.25), (0.9, 0.8))
    step = scenario.advance(task, start, start, KEYS)
    assert (term(step, "short"), term(step, "waiting"), bool(step.success[0])) == (-0.025, -0.1, False)
    there = at((-0.3, -0.8), (0.3, -0.8), (-0.9, 0.76), (0.9, 0.8))
    last = scenario.advance(task, start, there, KEYS)
    assert (term(last, "short"), term(last, "waiting"), bool(last.success[0])) == (0, 0, True)
    water = replace(task, tile=jnp.where(task.tile == GOAL, GOAL, WATER))
    np.testing.assert_allclose(scenario.signals(water, there)["speed_share"][0, :, 0], 2 / 3, atol=1e-6)
    with pytest.raises(TestudoError, match="found a team of 3, expected 4: 2 drone, 1 ice robot, 1 water robot"):
        scenario.start(KEYS[0], 3)


def test_a_shelf_is_taken_delivered_and_put_into_an_empty_cell():
    """Cells 0, 1, 2 are at y = 0.25 and x = -1.1, -0.25, 0.6, cells 3, 4, 5 below them; requested are 0, 1 and 5."""
    scenario = made(Rware)
    none = jnp.full((3, 1), -1)
    requested = jnp.array([True, True, False, False, False, True])[:, None]
    task = ShelfTask(jnp.arange(CELLS)[:, None], none, none > 0, requested)
    here = at((-1.1, 0.1), (0.6, -0.1), (-1.1, 0.4))
    moved = at((-1.1, -0.05), (0.6, 0.01), (-1.1, 0.4))
    # robots 0 and 1 move by more than 0.1 m; robot 2 stays at cell 0, where robot 0 was
    step = scenario.advance(task, here, moved, KEYS)
    assert step.task.load[:, 0].tolist() == [-1, -1, 0]
    assert step.task.shelf[:, 0].tolist() == [-1, 1, 2, 3, 4, 5]
    # all stay: robot 0 is within 0.2 m of cell 3, robot 1 of cell 5
    two = at((-1.1, -0.1), (0.6, -0.1), (-1.1, 0.5))
    step = scenario.advance(step.task, two, two, KEYS)
    assert step.task.load[:, 0].tolist() == [3, 5, 0]
    signals = scenario.signals(step.task, two)
    assert signals["due"][0, :, 0].tolist() == [0, 1, 1]
    assert signals["cell_full"][0, :, 0, 0].tolist() == [0, 1, 1, 0, 1, 0]
    assert signals["cell_due"][0, :, 0, 0].tolist() == [0, 1, 0, 0, 0, 0]
    # robot 1 goes to the end: delivered; robot 0, whose shelf is not requested, puts it into cell 0
    end = at((-1.1, 0.1), (1.2, -0.1), (-1.1, 0.6))
    step = scenario.advance(step.task, end, end, KEYS)
    assert (term(step, "delivered"), float(step.metrics["deliveries"][0])) == (1, 1)
    assert step.task.load[:, 0].tolist() == [-1, 5, 0]
    assert step.task.shelf[:, 0].tolist() == [3, 1, 2, -1, 4, -1]
    assert int(step.task.requested.sum()) == 3
    assert step.task.requested[:2, 0].all()


def test_a_shelf_that_was_carried_across_another_counts_only_after_it_was_put_down():
    scenario = made(Rware)
    load = jnp.array([[0], [-1], [-1]])
    shelf = jnp.array([-1, 1, 2, 3, 4, 5])[:, None]
    task = ShelfTask(shelf, load, load > 9, jnp.array([True, False, False, False, False, False])[:, None])
    others = ((0.0, -0.8), (0.5, -0.8))
    # from cell 0 along its row across cell 1; the end of the way is beside the cells
    across = scenario.advance(task, at((-0.6, 0.25), *others), at((0.0, 0.25), *others), KEYS)
    assert across.task.blocked[:, 0].tolist() == [True, False, False]
    end = at((1.2, 0.0), *others)
    assert term(scenario.advance(across.task, end, end, KEYS), "delivered") == 0
    assert scenario.signals(across.task, end)["due"].sum() == 0
    # along the lane between the rows, and without a load, nothing is in the way
    beside = scenario.advance(task, at((-0.6, 0.0), *others), at((0.0, 0.0), *others), KEYS)
    assert not beside.task.blocked.any()
    back = at((-1.1, 0.1), *others)
    down = scenario.advance(across.task, back, back, KEYS)
    assert (down.task.load[0, 0], bool(down.task.blocked[0, 0])) == (-1, False)
    with pytest.raises(TestudoError, match="found a team of 7, expected at most 6"):
        scenario.start(KEYS[0], 7)
