"""`formation`, `coverage` and `pickup_delivery`: events and rewards, computed by hand."""

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
from testudo_sim.scenarios.coverage import CELLS, Coverage, CoverageTask
from testudo_sim.scenarios.formation import PLACES, Formation, FormationTask
from testudo_sim.scenarios.pickup_delivery import DeliveryTask, PickupDelivery

pytestmark = pytest.mark.usefixtures("quick")
SPEC = load_robot("gritsbot_x")
KEYS = jax.random.split(jax.random.key(0), 1)


@cache
def made(kind):
    return CompiledScenario(kind.create(SPEC, projection_parameters(SPEC)))


def at(*places):
    """Return the scene of robots at rest at these places, one world."""
    position = np.array(places, np.float32).T[..., None]
    return Scene(MotionState(position, 0 * position[0], 0 * position))


def started(scenario, team_size, worlds=30):
    return starts_of_keys(scenario, team_size, jax.random.split(jax.random.key(1), worlds))


def formation_of(*places):
    where = np.zeros((2, PLACES, 1), np.float32)
    where[:, : len(places), 0] = np.array(places).T
    return FormationTask(jnp.asarray(where), jnp.asarray(np.arange(PLACES) < len(places), jnp.float32)[:, None])


def test_a_formation_is_matched_to_the_nearest_pair_first_and_complete_when_every_place_is_taken():
    """Robot 1 is at 0.2 m from the first place, robot 0 at 0.5 m; the second place is left for robot 0, 1.0 m away."""
    scenario, task = made(Formation), formation_of((0.0, 0.0), (-0.5, 0.5 * 3**0.5))
    scene = at((-0.5, 0.0), (0.2, 0.0))
    wanted = scenario.nominal_world(task, scene)[..., 0]
    speed = SPEC.control_point_speed_m_s
    np.testing.assert_allclose(wanted, speed * np.array([[0.0, -1.0], [1.0, 0.0]]), atol=1e-5)
    np.testing.assert_allclose(
        scenario.signals(task, scene)["place_rival"][0, :2, 0, 0], [0.2, np.hypot(0.7, 0.5 * 3**0.5)], atol=1e-5
    )
    near = at((-0.5, 0.8), (0.05, 0.0))
    step = scenario.advance(task, scene, near, KEYS)
    left = 0.2 + 0.5 * 3**0.5 - 0.05 - (0.5 * 3**0.5 - 0.8)
    assert float(step.terms["closer"][1, 0]) == pytest.approx(left / (2 * scenario.step_m), rel=1e-4)
    assert (bool(step.success[0]), float(step.terms["formed"][0, 0])) == (True, 5.0)
    other = scenario.advance(task, scene, at((-0.5, 0.0), (0.05, 0.0)), KEYS)
    assert (bool(other.success[0]), float(other.terms["waiting"][0, 0])) == (False, pytest.approx(-0.05))


@pytest.mark.parametrize("team_size", [2, 5, 8])
def test_places_of_a_formation_are_apart_and_inside(team_size):
    scenario = made(Formation)
    task = started(scenario, team_size).task
    place = np.asarray(task.place_world)[:, :team_size]
    assert task.counts.sum(axis=0).tolist() == [team_size] * 30
    apart = np.linalg.norm(place[:, :, None] - place[:, None], axis=0) + 9 * np.eye(team_size)[..., None]
    assert apart.min() > scenario.spacing_m - 1e-4
    assert np.all(np.abs(place) <= np.array([1.25, 0.75])[:, None, None] + 1e-5)


def test_a_formation_that_does_not_fit_is_refused():
    with pytest.raises(TestudoError, match="formation: the shapes of 9 robots do not fit; use a smaller team"):
        made(Formation).start(jax.random.key(0), 9)


def test_a_cell_is_covered_once_and_the_arena_when_no_cell_is_left():
    """Cells of 0.4 m; a robot at the corner of four cells, 0.28 m from each of their centres, covers all four."""
    scenario = made(Coverage)
    task = CoverageTask(jnp.ones((CELLS, 1)))
    scene = at((0.0, 0.2), (-1.4, 0.8))
    step = scenario.advance(task, scene, scene, KEYS)
    assert (float(step.metrics["covered"][0]), bool(step.success[0])) == (5.0, False)
    assert float(step.terms["covered"][0, 0]) == pytest.approx(20 * 5 / 40)
    again = scenario.advance(step.task, scene, scene, KEYS)
    assert float(again.metrics["covered"][0]) == 0.0
    signals = scenario.signals(step.task, scene)
    assert float(signals["cell_valid"].sum()) == 2 * 35
    last = CoverageTask((jnp.arange(CELLS) == 0).astype(jnp.float32)[:, None])
    end = scenario.advance(last, scene, at((0.0, 0.2), (-1.4, -0.7)), KEYS)
    assert (bool(end.success[0]), float(end.terms["waiting"][0, 0])) == (True, 0.0)
    # the last cell is south-west of both; the robot that is nearer goes
    np.testing.assert_allclose(scenario.nominal_world(last, scene)[:, 1, 0], [0.0, -0.2], atol=1e-3)


def test_a_parcel_is_loaded_in_the_west_delivered_in_the_east_and_its_robot_gets_a_place_of_its_own():
    scenario = made(PickupDelivery)
    begin = started(scenario, 4)
    goals = np.asarray(scenario.signals(begin.task, None)["goal_world"])
    assert goals[0].max() < 0
    first = jax.tree.map(lambda x: x[..., :1], begin.task)
    there = goals[:, :, :1]
    loaded = scenario.advance(first, at(*(0 * there[..., 0]).T), at(*there[..., 0].T), KEYS)
    assert loaded.task.carries[:, 0].tolist() == [1.0] * 4
    assert float(loaded.metrics["deliveries"][0]) == 0.0
    stations = np.asarray(scenario.signals(loaded.task, None)["goal_world"])[..., 0]
    assert stations[0].min() > 0
    assert len(set(loaded.task.place[:, 0].tolist())) == 4
    # robot 0 delivers; the others keep their places
    moved = at(tuple(stations[:, 0]), (0.0, 0.7), (0.0, 0.0), (0.0, -0.7))
    step = scenario.advance(loaded.task, moved, moved, KEYS)
    assert step.terms["delivered"][:, 0].tolist() == [2.0, 0.0, 0.0, 0.0]
    assert float(step.metrics["deliveries"][0]) == 1.0
    assert step.task.place[1:, 0].tolist() == loaded.task.place[1:, 0].tolist()
    assert step.task.carries[:, 0].tolist() == [0.0, 1.0, 1.0, 1.0]


def test_places_of_robots_never_coincide_however_often_they_arrive():
    """All 8 robots of the largest team arrive at random moments, in many worlds."""
    scenario = made(PickupDelivery)
    task = started(scenario, 8, 20).task
    for number in range(12):
        key = jax.random.fold_in(jax.random.key(3), number)
        goals = scenario.signals(task, None)["goal_world"]
        arrives = jax.random.uniform(key, goals.shape[1:]) < 0.5
        place = jnp.where(arrives, goals, 9.0)
        scene = Scene(MotionState(place, 0 * place[0], 0 * place))
        task = scenario.advance(task, scene, scene, jax.random.split(key, 20)).task
        for world in range(20):
            assert len(set(np.asarray(task.place)[:, world].tolist())) == 8
    assert DeliveryTask is type(task)


def test_more_robots_than_shelves_are_refused():
    with pytest.raises(TestudoError, match="pickup_delivery: 9 robots, expected at most 8, as there are shelves"):
        made(PickupDelivery).start(jax.random.key(0), 9)
