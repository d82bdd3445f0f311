"""Testudo's PPO on environments of others, as `testudo bench mpe` trains it."""

from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from testudo_bench.learning.foreign_worlds import ForeignWorlds, ppo_on, scores_of
from testudo_bench.learning.mpe import SCRIPT, SIZES, bench_mpe, config_of, script_of, theirs_with, trial
from testudo_hardware.errors import TestudoError

LAST = 3  # an episode has as many decisions


@dataclass(frozen=True)
class Signs:
    """A world with JaxMARL's interface: each of two agents reads a sign and is paid for the action of that number."""

    num_agents: int = 2
    max_steps: int = LAST - 1
    agents: tuple[str, ...] = ("agent_0", "agent_1")

    def action_space(self, _: str) -> Any:
        """Return the actions of an agent."""
        return SimpleNamespace(n=5)

    def reset(self, key: jax.Array) -> tuple[dict[str, jax.Array], Any]:
        """Return observations and state."""
        state = (jax.random.randint(key, (2,), 0, 5), jnp.zeros((), jnp.int32))
        return self.get_obs(state), state

    def get_obs(self, state: Any) -> dict[str, jax.Array]:
        """Return the signs of the agents, and the time."""
        seen = jnp.concatenate([jax.nn.one_hot(state[0], 5), jnp.full((2, 1), state[1], float)], axis=1)
        return dict(zip(self.agents, seen, strict=True))

    def step_env(self, key: jax.Array, state: Any, actions: dict[str, jax.Array]) -> Any:
        """Return what follows, without a restart."""
        right = {agent: (actions[agent] == state[0][index]).astype(float) for index, agent in enumerate(self.agents)}
        after = (jax.random.randint(key, (2,), 0, 5), state[1] + 1)
        done = after[1] >= LAST
        return self.get_obs(after), after, right, dict.fromkeys((*self.agents, "__all__"), done), {}


def test_worlds_of_others_step_and_restart_as_their_own_code_says():
    environment = Signs()
    worlds = ForeignWorlds(environment)
    state = worlds.reset(jax.random.split(jax.random.key(0), 4))
    for decision in range(1, LAST + 1):
        sign, team = state.state[0], jnp.arange(4)
        choice = jnp.stack([sign[:, 0], (sign[:, 1] + 1) % 5], axis=1)  # right for the first agent alone
        after, result = worlds.step(state, jax.nn.one_hot(choice, 5), jax.random.key(decision))
        assert result.reward.tolist() == [[1.0] * 4, [0.0] * 4]
        ended = decision == LAST
        assert result.terminated.tolist() == [ended] * 4  # nothing follows, as for JaxMARL's learners
        assert not result.truncated.any()
        last: Any = result.last  # a state of these worlds
        assert last.state[1].tolist() == [decision] * 4
        assert after.state[1].tolist() == [0 if ended else decision] * 4
        expected = jax.vmap(environment.get_obs)(after.state)
        assert (after.observation[team, 1] == expected["agent_1"][team]).all()
        state = after


def test_ppo_learns_on_worlds_of_others():
    environment, steps = Signs(), 15 * 16 * 128
    learner = ppo_on(environment, replace(config_of(steps, seed=0), team_size=2))
    state = learner.start(jax.random.key(0))

    def scores(observation: jax.Array) -> jax.Array:
        return scores_of(learner.agent, state.parameters, observation)

    assert trial(environment, scores, drawn=True, episodes=64) == pytest.approx(LAST / 5, abs=0.3)  # by chance
    update = jax.jit(learner.update)
    for _ in range(learner.config.updates):
        state, _figures = update(state)
    assert trial(environment, scores, drawn=False, episodes=64) == LAST


FOREIGN = """
from types import SimpleNamespace
import jax
jaxmarl = SimpleNamespace(make=None)
wandb = SimpleNamespace(log=None)  # as JaxMARL's before `init`: not to be called

def make_train(config):
    config["NUM_UPDATES"] = config["TOTAL_TIMESTEPS"] // config["NUM_STEPS"] // config["NUM_ENVS"]
    def train(key):
        jax.experimental.io_callback(lambda seed: wandb.log({"seed": seed}), None, key[1])
        return {"runner_state": (key,)}
    return train
"""


def test_a_script_that_logs_is_trained_without_its_log(tmp_path: Path):
    path = tmp_path / SCRIPT
    path.parent.mkdir(parents=True)
    path.write_text(FOREIGN)
    script = script_of(tmp_path)
    _, (steps, processor_s, _, _) = theirs_with(script, "spread")(3 * SIZES["NUM_ENVS"] * SIZES["NUM_STEPS"], 7)
    assert steps == 3 * SIZES["NUM_ENVS"] * SIZES["NUM_STEPS"]
    assert processor_s >= 0
    assert script.wandb.log is None  # as it was


def test_a_script_that_cannot_import_says_what_is_missing(tmp_path: Path):
    path = tmp_path / SCRIPT
    path.parent.mkdir(parents=True)
    path.write_text("import no_such_library")
    with pytest.raises(TestudoError, match="found no no_such_library, which JaxMARL's script needs"):
        script_of(tmp_path)


def test_a_folder_without_the_script_is_named(tmp_path: Path):
    with pytest.raises(TestudoError, match=r"--scripts .*ippo_ff_mpe.py is missing"):
        bench_mpe(scripts=tmp_path)
