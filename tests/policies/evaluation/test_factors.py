"""Which cells of declared factors training had, and that a level reaches the simulated worlds."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import pytest
from tests.policies.untrained import untrained

from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_policies.evaluation.factors import HELD_OUT, IN, OUT, cells
from testudo_policies.train_config import TrainConfig
from testudo_sim.deployed_environment import STRIDE
from testudo_sim.physics.world_parameters import Channels
from testudo_sim.team.task_channel import TaskChannel


@pytest.fixture(scope="module")
def policy():
    return untrained(TrainConfig(team_size=4, memory=0))


def kinds(found):
    return {cell.name: cell.distribution for cell in found}


def test_a_cell_is_in_distribution_where_training_had_all_of_its_levels(policy):
    found = cells(["team_size=4,6", "message_loss=0.05,0.5"], [], [], [policy])
    assert kinds(found) == {
        "team_size 4, message_loss 0.05": IN,
        "team_size 4, message_loss 0.5": OUT,  # training draws 0 to 0.1
        "team_size 6, message_loss 0.05": OUT,
        "team_size 6, message_loss 0.5": OUT,
    }
    assert [cell.untrained for cell in found] == [(), ("message_loss",), ("team_size",), ("team_size", "message_loss")]


def test_a_combination_can_be_held_out_of_levels_that_training_had(policy):
    found = cells(["team_size=4,6", "message_ticks=1,2"], ["team_size=6"], ["team_size=6,message_ticks=2"], [policy])
    assert [cell.distribution for cell in found] == [IN, IN, IN, HELD_OUT]
    # without --trained the size itself is out of distribution, whatever is declared of combinations
    found = cells(["team_size=4,6", "message_ticks=1,2"], [], ["team_size=6,message_ticks=2"], [policy])
    assert [cell.distribution for cell in found] == [IN, IN, OUT, OUT]


def test_a_level_counts_as_trained_where_all_policies_had_it(policy):
    others = [policy, replace(policy, team_size=6, task_messages=False)]
    assert kinds(cells(["team_size=4,6"], [], [], others)) == {"team_size 4": OUT, "team_size 6": OUT}
    assert kinds(cells(["task_loss=0.1,0.5"], [], [], [policy])) == {"task_loss 0.1": IN, "task_loss 0.5": OUT}
    assert kinds(cells(["task_loss=0.1"], [], [], others)) == {"task_loss 0.1": OUT}


def test_radio_and_robot_of_a_cell_reach_the_worlds(policy):
    factors = ["robot=turtlebot4", "message_loss=0.5", "message_ticks=4", "task_delay_s=0.2", "team_size=3"]
    (cell,) = cells(factors, [], [], [policy])
    assert cell.untrained == ("robot", "message_loss", "message_ticks", "task_delay_s", "team_size")
    assert cell.channels == replace(Channels(), message_loss=(0.5, 0.5), message_ticks=(4, 4))
    assert cell.task_channel == replace(TaskChannel(), delay_s=(0.2, 0.2))
    spec, placed = load_robot("turtlebot4"), cell.placed(policy)
    assert (placed.spec, placed.shield) == (spec, projection_parameters(spec))
    deployed = placed.environment(3, all_layers=True, channels=cell.channels, task_channel=cell.task_channel)
    assert deployed.team.channels.message_ticks == (4 * STRIDE, 4 * STRIDE)
    assert deployed.deployment.longest_message_ticks == 4 * STRIDE
    assert (deployed.robot, deployed.task_channel) == (spec, cell.task_channel)
    alone = placed.environment(3, channels=cell.channels, task_channel=cell.task_channel)
    keys = jax.vmap(jax.random.key)(jnp.arange(5))
    for environment in (alone, deployed):  # traced only: such worlds have longer histories of messages
        assert jax.eval_shape(partial(one_decision, environment), keys).shape == (3, 5)


def one_decision(environment, keys):
    """Return the rewards (N, E) of a decision of robots that stand."""
    world = environment.reset(keys)
    team, metrics = environment.run_ticks(world, jnp.zeros((2, 3, len(keys))), jax.random.key(0))
    return environment.advance(world, team, metrics.change_m_s)[1].reward


def test_a_map_is_scaled_to_the_robot_and_known_by_its_name():
    policy = untrained(TrainConfig("crossing_map", map="camar_random_grid_20:1", team_size=2, memory=0))
    found = cells(["map=camar_random_grid_20:1,camar_random_grid_20:2,none"], [], [], [policy])
    assert [cell.distribution for cell in found] == [IN, OUT, OUT]
    same, other, none = (cell.placed(policy).obstacles for cell in found)
    assert same == policy.obstacles != other
    assert none == ()
    # of a list of obstacles no name is known: the open arena is another one
    (cell,) = cells(["map=none"], [], [], [replace(policy, map="")])
    assert cell.distribution == OUT


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((["colour=red"], [], []), "--factor: found 'colour=red', expected NAME=LEVEL"),
        ((["team_size="], [], []), "--factor: found 'team_size='"),
        ((["team_size=4", "team_size=6"], [], []), "found team_size twice"),
        ((["team_size=1"], [], []), "--factor team_size: found '1', expected a whole number from 2 on"),
        ((["message_loss=nan"], [], []), "--factor message_loss: found 'nan', expected a number from 0 to 0.9"),
        ((["robot=r2d2"], [], []), "robot 'r2d2' is not known"),
        ((["team_size=4"], ["team_size=6"], []), "--trained: found 'team_size=6', expected levels that"),
        ((["team_size=4", "map=a"], [], ["team_size=4"]), "--held-out: found 'team_size=4', expected one level of two"),
    ],
)
def test_what_cannot_be_declared_is_one_sentence(arguments, message, policy):
    with pytest.raises(TestudoError, match=message):
        cells(*arguments, [policy])


def test_a_robot_of_another_kind_is_refused(policy):
    (cell,) = cells(["robot=crazyflie_2x"], [], [], [policy])
    with pytest.raises(TestudoError, match=r"--factor robot: found .*; the policy drives a"):
        cell.placed(policy)
