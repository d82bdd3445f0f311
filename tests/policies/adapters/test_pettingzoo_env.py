"""The PettingZoo view of a scenario: its official tests pass, and it has the numbers of our environment."""

import copy
import warnings
from dataclasses import replace

import jax
import numpy as np
import pytest
from pettingzoo.test import parallel_api_test, parallel_seed_test
from tests.policies.quick import TINY, unshielded

from testudo_hardware.errors import TestudoError
from testudo_policies.adapters.pettingzoo_env import ParallelTeam
from testudo_policies.adapters.team_view import TeamView
from testudo_policies.learning.builder import build

pytestmark = pytest.mark.usefixtures("quick")

DECISIONS = 3


@pytest.fixture(scope="module")
def team(quick):
    """Return a team that chooses way-points, in episodes of three decisions without success."""
    plain = unshielded(build(replace(TINY, team_size=2, command="waypoints")).environment)
    scenario = replace(plain.scenario, tolerance_m=-1.0, horizon_s=(DECISIONS + 0.01) * plain.decision_s)
    return ParallelTeam(replace(plain, scenario=scenario))


def twin(team):
    """Return another team with the same compiled programs, which are slow to compile, and nothing else in common."""
    other = copy.copy(team)
    other._worlds = copy.copy(team._worlds)
    other.action_spaces, other.agents = copy.deepcopy(team.action_spaces), []
    return other


def test_the_official_test_of_the_interface_passes_without_a_warning(team):
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Live agent|Agent was given|No agents|.*possible_agents")
        parallel_api_test(team, num_cycles=2 * DECISIONS)


def test_the_official_test_of_seeds_passes(team):
    parallel_seed_test(lambda: twin(team), num_cycles=DECISIONS)


def test_an_episode_is_that_of_our_environment(team):
    observations, _ = team.reset(seed=4)
    world = team._worlds._state[0]
    view, ours = TeamView(team._worlds.view.environment), jax.jit(team._worlds.view.environment.step)
    choices = {"agent_0": 3, "agent_1": 0}
    command = jax.jit(view.command)(world, np.array([[3, 0]]))
    here = np.asarray(jax.jit(view.environment.signals)(world)["control_point_world"])[0]
    assert np.linalg.norm(command[0, 0] - here[0]) > 0.1  # a step
    np.testing.assert_allclose(command[0, 1], here[1], atol=1e-6)  # it stays
    key = jax.random.split(jax.random.split(team._worlds._key)[1])[0]
    _, result = ours(world, command, key)
    after, rewards, terminated, truncated, infos = team.step(choices)
    np.testing.assert_allclose([rewards[agent] for agent in choices], result.reward[:, 0], atol=1e-5)
    assert not any({**terminated, **truncated}.values())
    assert set(infos["agent_0"]) == {"contacts", "interventions", "stands"}
    assert all(after[agent].shape == observations[agent].shape for agent in choices)
    assert team.state().ndim == 1


def test_all_agents_end_at_the_time_limit_and_no_step_follows(team):
    team.reset(seed=0)
    for _ in range(DECISIONS):
        assert team.agents == team.possible_agents
        _, _, terminated, truncated, _ = team.step(dict.fromkeys(team.agents, 0))
    assert (set(terminated.values()), set(truncated.values()), team.agents) == ({False}, {True}, [])
    with pytest.raises(TestudoError, match="navigation: step: found no running episode, expected a reset before"):
        team.step({})


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ({"agent_0": 1}, "found no action of agent_1"),
        ({"agent_0": 1, "agent_1": 5}, r"found \[1, 5\], expected whole numbers from 0 to 4"),
        ({"agent_0": 1.0, "agent_1": 0.5}, "expected whole numbers from 0 to 4"),
        ({"agent_0": [1, 1], "agent_1": [0, 1]}, r"found actions of shape \(2, 2\), expected \(2,\)"),
    ],
)
def test_wrong_actions_are_refused(team, actions, message):
    team.reset(seed=0)
    with pytest.raises(TestudoError, match=message):
        team.step(actions)


@pytest.mark.parametrize("change", [{"message": 2}, {"robot": "crazyflie_2x", "command": "velocity_yaw_rate"}])
def test_commands_that_other_libraries_do_not_give_are_refused(change):
    with pytest.raises(TestudoError, match="adapter: found a team that commands"):
        TeamView(build(replace(TINY, **change)).environment)
