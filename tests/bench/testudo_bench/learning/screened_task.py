"""A candidate's worlds, described and true, and what policies of both achieve on the plant."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import jax
import numpy as np
from scipy.stats import t as student

from testudo_bench.learning.candidates import TIME, Candidate
from testudo_bench.learning.seed_training import HeldOutEpisodes, held_out, learn, seed_keys
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_hardware.spec import load_robot
from testudo_policies.learning.builder import TrainingComponents, build, make_environment
from testudo_policies.learning.ppo import PPO
from testudo_policies.networks.agent import AgentParameters
from testudo_sim.environment import Environment

WORTH = 0.2  # least share of the score by which truth has to beat description


class Worlds:
    """The environments of a candidate."""

    def __init__(self, candidate: Candidate, worlds: int, updates: int) -> None:
        """Build the parts of a training in the described world, and the same world with the plant's dynamics."""
        self.candidate = candidate
        self.components: TrainingComponents = build(candidate.config(worlds, updates))
        config = self.components.config
        spec = load_robot(config.robot)
        self.plant: Environment = make_environment(
            config.scenario,
            candidate.plant_of(spec),
            projection_parameters(spec),
            config.team_size,
            physics=config.physics_choice,
        )
        """The true world with the starts of the task, for recordings and held-out episodes."""
        self.true_world = replace(
            self.plant, scenario=self.plant.scenario.for_training(), change_price=config.change_price
        )

    def learnt(self, world: Environment, seeds: int, tell: Callable[[float], None]) -> AgentParameters:
        """Return policies (S, ...) that PPO has learnt in a world, from the same first networks in each."""
        config = self.components.config
        learner = PPO(config, self.components.agent, world)
        states = jax.jit(jax.vmap(learner.init))(seed_keys(seeds, 0))
        return learn(lambda _: learner, states, (), config.updates, tell)

    def episodes_of(self, policies: AgentParameters, episodes: int) -> HeldOutEpisodes:
        """Return the held-out episodes (S, E) of policies (S, ...) on the plant."""
        found: HeldOutEpisodes = jax.device_get(self._played(policies, episodes))
        return found

    @cached_property
    def _played(self) -> Callable[[AgentParameters, int], HeldOutEpisodes]:
        """`held_out` for policies (S, ...), compiled once for each number of them."""

        def played(policies: AgentParameters, episodes: int) -> HeldOutEpisodes:
            return jax.vmap(lambda one: held_out(self.plant, self.components.agent, one, episodes))(policies)

        return jax.jit(played, static_argnums=1)


def scores(candidate: Candidate, found: HeldOutEpisodes) -> np.ndarray:
    """Return the score of each seed (S,)."""
    values = found.time_s if candidate.score == TIME else found.metrics[candidate.score]
    return np.mean(np.asarray(values, float), axis=-1)


@dataclass(frozen=True)
class Gain:
    """By what share of the score one set of seeds does better than another, with its 95 % interval."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, better: np.ndarray, base: np.ndarray, *, more_is_better: bool) -> "Gain":
        """Return the gain of scores (S,) over others (S,) of the same seeds, as a share of the larger mean.

        The larger of both means as the unit keeps the share at most 1 where the other is near 0. The interval is
        Student's of the paired differences; of one seed it is unbounded.
        """
        unit = max(abs(float(np.mean(better))), abs(float(np.mean(base))), 1e-9)
        gains = (better - base if more_is_better else base - better) / unit
        mean, count = float(np.mean(gains)), len(gains)
        if count < 2:
            return cls(mean, -np.inf, np.inf)
        half = float(student.ppf(0.975, count - 1) * np.std(gains, ddof=1) / np.sqrt(count))
        return cls(mean, mean - half, mean + half)

    @property
    def tells(self) -> bool:
        """Whether the task tells: the mean is at least `WORTH`, and the interval excludes 0."""
        return self.mean >= WORTH and self.low > 0
