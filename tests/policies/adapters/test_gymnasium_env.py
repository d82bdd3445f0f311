"""The Gymnasium view of a scenario: what Gymnasium checks, its own wrappers, and restarts."""

from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.wrappers.vector import ClipReward, NormalizeObservation, RecordEpisodeStatistics
from tests.policies.quick import TINY, unshielded

from testudo_hardware.errors import TestudoError
from testudo_policies.adapters.gymnasium_env import VectorTeam
from testudo_policies.learning.builder import build

pytestmark = pytest.mark.usefixtures("quick")

WORLDS, TEAM, DECISIONS = 2, 2, 3
BATCH = WORLDS * TEAM


@pytest.fixture(scope="module")
def team(quick):
    """Return worlds with episodes of three decisions without success."""
    plain = unshielded(build(replace(TINY, team_size=TEAM)).environment)
    scenario = replace(plain.scenario, tolerance_m=-1.0, horizon_s=(DECISIONS + 0.01) * plain.decision_s)
    return VectorTeam(replace(plain, scenario=scenario), WORLDS)


class OneRobot(gymnasium.Env):
    """The first robot of a batch as an environment of its own, because Gymnasium checks no vector environments."""

    def __init__(self, team):
        self.team, self.metadata = team, {"render_modes": []}
        self.observation_space, self.action_space = team.single_observation_space, team.single_action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.team.reset(seed=seed, options=options)[0][0], {}

    def step(self, action):
        actions = np.zeros(self.team.action_space.shape, np.float32)
        actions[0] = action
        observation, reward, terminated, truncated, infos = self.team.step(actions)
        told = {name: value[0] for name, value in infos.items() if not name.startswith("_")}
        return observation[0], float(reward[0]), bool(terminated[0]), bool(truncated[0]), told


def test_gymnasiums_own_check_passes(team):
    check_env(OneRobot(team), skip_render_check=True)


def test_values_have_the_types_of_a_vector_environment(team):
    assert isinstance(team, VectorEnv)
    assert (team.num_envs, team.metadata["autoreset_mode"]) == (BATCH, AutoresetMode.NEXT_STEP)
    observation, infos = team.reset(seed=1)
    assert team.observation_space.contains(observation)
    assert infos == {}
    team.action_space.seed(0)
    observation, reward, terminated, truncated, infos = team.step(team.action_space.sample())
    assert team.observation_space.contains(observation)
    assert (reward.dtype, terminated.dtype, truncated.dtype) == (np.float64, np.bool_, np.bool_)
    assert {value.shape for value in (reward, terminated, truncated, *infos.values())} == {(BATCH,)}


def test_worlds_end_together_and_begin_anew_in_the_next_step(team):
    last, _ = team.reset(seed=2)
    ahead = np.full((BATCH, 2), 0.7, np.float32)
    for index in range(2 * (DECISIONS + 1)):
        observation, reward, terminated, truncated, _ = team.step(ahead)
        place = index % (DECISIONS + 1)
        assert not terminated.any()
        assert truncated.all() == truncated.any() == (place == DECISIONS - 1)
        assert (reward == 0).all() == (place == DECISIONS)  # the step that begins anew
        if place == DECISIONS:
            assert np.abs(observation - last).max() > 0.1
            assert team._worlds._state[0].elapsed.tolist() == [0] * WORLDS
        last = observation


def test_its_wrappers_count_and_normalise(team):
    wrapped = ClipReward(NormalizeObservation(RecordEpisodeStatistics(team)), -1.0, 1.0)
    wrapped.reset(seed=3)
    for _ in range(DECISIONS):
        observation, _, _, _, infos = wrapped.step(np.zeros((BATCH, 2), np.float32))
    np.testing.assert_array_equal(infos["episode"]["l"], DECISIONS)
    assert np.isfinite(observation).all()


@pytest.mark.parametrize("action", [np.zeros((BATCH, 3)), np.zeros(2), np.full((BATCH, 2), np.nan)])
def test_wrong_actions_are_refused(team, action):
    team.reset(seed=0)
    with pytest.raises(TestudoError, match="navigation: step: found a"):
        team.step(action)


def test_worlds_and_resets_are_asked_for(team):
    environment = team._worlds.view.environment
    with pytest.raises(TestudoError, match="worlds: found 0, expected at least 1"):
        VectorTeam(environment, 0)
    with pytest.raises(TestudoError, match="step: found no running episode"):
        VectorTeam(environment, 1).step(np.zeros((TEAM, 2)))
