"""Difficulty rises with success, world by world, and is that of the starts."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.sim.test_environment import Line, environment_of, forward, keys_of

from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_sim.environment import next_difficulty
from testudo_sim.scenarios import scenario_check
from testudo_sim.scenarios.material_transport import MaterialTransport
from testudo_sim.scenarios.scenario_check import check_scenario

pytestmark = pytest.mark.usefixtures("quick")

WORLDS = 2


@dataclasses.dataclass(frozen=True)
class Harder(Line):
    """The task says at which difficulty it began."""

    difficulty: float = 1.0

    def at(self, difficulty):
        return dataclasses.replace(self, difficulty=difficulty)

    def start(self, key, team_size):
        begin = super().start(key, team_size)
        return dataclasses.replace(begin, task=jnp.full(team_size, jnp.float32(self.difficulty)))


def test_it_rises_while_two_of_three_episodes_succeed():
    start = jnp.array([0.5, 0.5, 0.98, 0.02])
    found = next_difficulty(start, jnp.array([True, False, True, False]))
    np.testing.assert_allclose(found, [0.55, 0.4, 1.0, 0.0], atol=1e-6)
    three = found[:1]
    for success in (True, False):
        three = next_difficulty(three, jnp.array([success]))
    np.testing.assert_allclose(three, start[:1], atol=1e-6)  # two of three: it stays


def test_each_world_begins_anew_at_the_difficulty_that_its_last_episode_earned():
    """World 0 succeeds in the second decision, world 1 never; four decisions are all."""
    environment = environment_of(scenario=Harder((0.05, 9.0)), spread=0.0, curriculum=True)
    environment = dataclasses.replace(environment, team=dataclasses.replace(environment.team, shielded=False))
    step = jax.jit(environment.step)
    state, found = jax.jit(environment.reset)(keys_of(worlds=WORLDS)), []
    state = dataclasses.replace(state, difficulty=jnp.array([0.0, 0.5]))
    for number in range(4):
        state, _ = step(state, forward(environment, WORLDS), jax.random.key(number))
        found.append(state.difficulty.tolist())
    np.testing.assert_allclose(found, [[0, 0.5], [0.05, 0.5], [0.05, 0.5], [0.1, 0.4]], atol=1e-6)
    np.testing.assert_allclose(state.task[0], [0.1, 0.4], atol=1e-6)
    plain = jax.jit(environment_of(scenario=Harder((0.05, 9.0))).reset)(keys_of(worlds=WORLDS))
    assert (plain.difficulty, plain.task[0].tolist()) == (None, [1.0, 1.0])


def test_the_material_grows_with_the_difficulty():
    spec = load_robot("gritsbot_x")
    task = environment_of(scenario=MaterialTransport.create(spec, projection_parameters(spec)), size=4)
    draw = jax.jit(task.draw_start)
    amounts = [draw(keys_of(), np.full(6, share, np.float32))[0].task.left for share in (0.0, 0.5, 1.0)]
    full = draw(keys_of())[0].task.left
    shares = np.stack(amounts) / full
    np.testing.assert_allclose(shares, np.array([0.25, 0.625, 1.0])[:, None, None] + 0 * shares, atol=1e-5)


def test_a_scenario_whose_difficulty_1_is_another_task_is_refused(monkeypatch):
    class Broken(MaterialTransport):
        def at(self, difficulty):
            return super().at(0.5 * difficulty)

    monkeypatch.setattr(scenario_check, "make_scenario", lambda _name, spec, shield: Broken.create(spec, shield))
    with pytest.raises(TestudoError, match="material_transport: difficulty 1 is the task itself; found"):
        check_scenario("material_transport", load_robot("gritsbot_x"), 4)
