"""Robots that fail or are absent: they stand, earn nothing, and remain bodies for the others."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.sim.test_environment import Line, environment_of, equal, forward, keys_of

from testudo_sim.deployed_environment import DeployedEnvironment
from testudo_sim.environment import to_batch
from testudo_sim.physics_choice import PhysicsChoice
from testudo_sim.team.fault_schedule import NEVER
from testudo_sim.team.robot_failures import RobotFailures, draw_failures

pytestmark = pytest.mark.usefixtures("quick")

WORLDS = 2


@dataclasses.dataclass(frozen=True)
class Joining(Line):
    """The second robot joins in the second decision; the third leaves after the first one."""

    def start(self, key, team_size):
        begin = super().start(key, team_size)
        return dataclasses.replace(begin, task=jnp.zeros(team_size))

    def absent(self, task):
        robot = jnp.arange(task.shape[0])[:, None]
        return jnp.where(task == 0, robot == 1, robot == 2)

    def advance(self, task, before, after, keys):
        return dataclasses.replace(super().advance(task, before, after, keys), task=task + 1)


def test_a_share_of_the_robots_fails_for_good_or_for_a_while_at_any_time():
    draw = jax.jit(lambda keys: draw_failures(keys, 0.3, 2, 40, 0.5))
    found = jax.tree.map(np.asarray, draw(keys_of(worlds=4000)))
    fails, good = np.asarray(found.begin < NEVER), np.asarray(found.end == NEVER)
    assert fails.mean() == pytest.approx(0.3, abs=0.02)
    assert good[fails].mean() == pytest.approx(0.5, abs=0.03)
    assert sorted(set(np.asarray(found.begin)[fails].tolist())) == list(range(40))
    lasts = np.asarray(found.end - found.begin)[fails & ~good]
    assert (lasts.min(), lasts.max()) == (5, 20)  # 2 to 10 s in decisions of 0.5 s, 2 s being never drawn exactly
    alone = draw(keys_of(worlds=4000)[7:8])
    assert equal(alone, jax.tree.map(lambda x: x[..., 7:8], found))


def test_a_robot_stands_while_it_fails_and_is_lost_if_that_is_for_good():
    failures = RobotFailures(jnp.array([[2], [3], [NEVER]]), jnp.array([[4], [NEVER], [5]]))
    moments = jnp.arange(6)
    found = jax.jit(jax.vmap(lambda k: (failures.stands(k[None])[:, 0], failures.lost(k[None])[:, 0])))(moments)
    assert np.asarray(found[0]).T.astype(int).tolist() == [[0, 0, 1, 1, 0, 0], [0, 0, 0, 1, 1, 1], [0] * 6]
    assert np.asarray(found[1]).T.astype(int).tolist() == [[0] * 6, [0, 0, 0, 1, 1, 1], [0] * 6]


def test_robots_that_join_or_leave_stand_without_reward():
    environment = environment_of(scenario=Joining((9.0,) * WORLDS), spread=0.0)
    step = jax.jit(environment.step)
    state, places, results = jax.jit(environment.reset)(keys_of(worlds=WORLDS)), [], []
    for number in range(3):
        state, result = step(state, forward(environment, WORLDS), jax.random.key(number))
        places.append(np.asarray(environment.scene(state).robots.position_world[0]))
        results.append(result)
    assert (places[0][1] == 0).all()  # at its start, until it joins
    assert (places[1][1] > 0.02).all()
    np.testing.assert_allclose(places[2][2], places[1][2], atol=2e-3)  # comes to rest, and stands
    assert (places[2][0] > places[1][0] + 0.05).all()
    stood = np.stack([np.asarray(result.stood[:, 0]) for result in results]).T
    assert stood.tolist() == [[False] * 3, [True, False, False], [False, True, True]]
    assert np.stack([np.asarray(result.left[:, 0]) for result in results]).T[2].tolist() == [True, False, False]
    for number, result in enumerate(results):
        assert (np.asarray(result.reward)[stood[:, number]] == 0).all()
        assert (np.asarray(result.reward)[~stood[:, number]] != 0).all()
        assert (np.asarray(result.metrics.braked) == 0).all()  # of the robots that take part


def failing(environment, state):
    """Return a state in which the first robot of every world has failed for good, and no other."""
    begin = np.full((environment.team.size, WORLDS), NEVER, np.int32)
    begin[0] = 0
    return dataclasses.replace(state, failures=RobotFailures(begin, np.full_like(begin, NEVER)))


@pytest.mark.parametrize("deployed", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_failed_robot_stands_in_the_way_and_the_shield_of_the_other_avoids_it(deployed):
    """The second robot drives at it at full speed; without the shield it touches, and that is counted."""
    scenario = dataclasses.replace(Line((9.0,) * WORLDS), horizon_s=60.0, decision_ticks=60)
    contacts = []
    for shielded in (True, False):
        environment = environment_of(scenario=scenario, size=2, spread=0.0, failures=0.5)
        team = dataclasses.replace(environment.team, shielded=shielded)
        environment = dataclasses.replace(environment, team=team)
        if deployed:
            environment = DeployedEnvironment.of(environment, PhysicsChoice())
            gate = dataclasses.replace(environment.deployment, gate=shielded)
            environment = dataclasses.replace(environment, deployment=gate)
        state = failing(environment, jax.jit(environment.reset)(keys_of(worlds=WORLDS)))
        start = np.asarray(environment.scene(state).robots.position_world)
        run, advance = jax.jit(environment.run_ticks), jax.jit(environment.advance)
        speed = environment.team.model.spec.control_point_speed_m_s
        wanted = np.zeros((2, 2, WORLDS), np.float32)
        wanted[0, 0], wanted[1, 1] = speed, -speed
        touched = 0
        for number in range(4):
            team_state, metrics = run(state, wanted, jax.random.key(number))
            state, score = advance(state, team_state, metrics.change_m_s)
            touched += int(metrics.contacts.sum())
            assert (np.asarray(score.reward[0]) == 0).all()
        place = np.asarray(environment.scene(state).robots.position_world)
        np.testing.assert_allclose(place[:, 0], start[:, 0], atol=1e-4)
        contacts.append(touched)
    assert contacts[0] == 0
    assert contacts[1] > 0


def test_a_task_does_not_wait_for_a_robot_that_has_failed_for_good():
    environment = environment_of(size=2, failures=0.5)
    state = failing(environment, jax.jit(environment.reset)(keys_of(worlds=WORLDS)))
    scene, task = jax.jit(environment.scene)(state), state.task
    place = np.array(scene.robots.position_world)
    place[:, 1] = np.asarray(task.goal_world)[:, 1]
    advance = jax.jit(environment.scenario.advance)
    there = dataclasses.replace(scene, robots=dataclasses.replace(scene.robots, position_world=place))
    success = advance(task, scene, there, keys_of(worlds=WORLDS)).success
    assert success.all()
    waits = dataclasses.replace(there, lost=None)
    assert not advance(task, scene, waits, keys_of(worlds=WORLDS)).success.any()
    nobody = dataclasses.replace(there, lost=np.ones_like(there.lost))
    assert not advance(task, scene, nobody, keys_of(worlds=WORLDS)).success.any()


def test_the_signals_of_the_others_are_as_beside_a_robot_that_stands():
    environment = environment_of(size=2, failures=0.5)
    state = jax.jit(environment.reset)(keys_of(worlds=WORLDS))
    failed = failing(environment, state)
    signals = jax.jit(environment.signals)
    assert equal(signals(failed), signals(state))
    assert to_batch(environment.standing(failed)[None])[..., 0].tolist() == [[True, False]] * WORLDS
