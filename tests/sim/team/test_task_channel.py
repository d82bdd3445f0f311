"""The age of the task in simulated worlds: within its limit, from a drawn channel, and of the moment that it says."""

import dataclasses

import jax
import numpy as np
import pytest
from tests.sim.test_environment import WORLDS, Line, environment_of, forward, keys_of

from testudo_deploy.control.task_receiver import OLDEST_TASK_S
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_policies.learning.builder import make_environment
from testudo_sim.physics_choice import PhysicsChoice
from testudo_sim.team.task_channel import TaskChannel

pytestmark = pytest.mark.usefixtures("quick")


class Counted(Line):
    """The task counts decisions; a robot is told the number, and where it is."""

    def signals(self, task, scene):
        return {"number": task[None], "place": scene.robots.position_world}

    def advance(self, task, before, after, keys):
        return dataclasses.replace(super().advance(task, before, after, keys), task=task + 1)


def test_ages_are_those_of_delay_period_and_losses_and_end_at_the_limit():
    worlds = 4000
    keys, number = keys_of(worlds=worlds), np.arange(worlds)

    def ages_s(channel, limit_s):
        return np.asarray(jax.jit(lambda keys, number: channel.ages_s(keys, number, limit_s))(keys, number))

    without = ages_s(TaskChannel((0.1, 0.1), (0.05, 0.05), (0.0, 0.0)), OLDEST_TASK_S)
    assert 0.1 <= without.min() < 0.105
    assert 0.145 < without.max() < 0.1501
    # the mean number of messages lost in a row is loss / (1 - loss)
    lossy = ages_s(TaskChannel((0.1, 0.1), (0.05, 0.05), (0.5, 0.5)), 10.0)
    assert float(lossy.mean() - without.mean()) == pytest.approx(0.05, rel=0.1)
    drawn = ages_s(TaskChannel(), OLDEST_TASK_S)
    assert drawn.min() >= TaskChannel().delay_s[0]
    assert 0.35 < drawn.max() <= OLDEST_TASK_S
    with pytest.raises(TestudoError, match=r"task channel: loss: found \(0, 1\), expected a range within 0 to 0.9"):
        TaskChannel(loss=(0, 1))


def test_robots_are_told_the_task_of_a_moment_ago_and_the_world_and_the_critic_have_the_present():
    exact = environment_of(scenario=Counted((9.0,) * WORLDS), spread=0.0)
    late = dataclasses.replace(exact, task_channel=TaskChannel((0.1, 0.1), (0.0, 0.0), (0.0, 0.0)))
    begin = jax.jit(late.reset)(keys_of())
    number = np.asarray(begin.task)
    assert np.array_equal(begin.told["number"], number[None])
    after, _ = jax.jit(late.step)(begin, forward(late), jax.random.key(0))
    same, _ = jax.jit(exact.step)(dataclasses.replace(begin, told=None), forward(exact), jax.random.key(0))
    assert same.told is None
    for one, two in zip(jax.tree.leaves(same), jax.tree.leaves(dataclasses.replace(after, told=None)), strict=True):
        assert np.array_equal(one, two)
    # the task changes at the ends of decisions: what was sent before the end is still its beginning
    assert np.array_equal(jax.jit(late.signals)(after)["number"], number.T[..., None])
    assert np.array_equal(jax.jit(late.central_signals)(after)["number"], number.T[..., None] + 1)
    scene = jax.jit(late.scene)
    places = [np.asarray(scene(state).robots.position_world) for state in (begin, after)]
    expected = places[1] - 0.1 / late.decision_s * (places[1] - places[0])
    np.testing.assert_allclose(after.told["place"], expected, atol=1e-5)
    assert np.abs(places[1] - places[0]).max() > 0.02


def test_one_option_turns_the_channel_off():
    spec, shield = load_robot("gritsbot_x"), environment_of().team.shield
    assert make_environment("navigation", spec, shield, 2).task_channel == TaskChannel()
    exact = PhysicsChoice(task_messages=False)
    assert make_environment("navigation", spec, shield, 2, physics=exact).task_channel is None
