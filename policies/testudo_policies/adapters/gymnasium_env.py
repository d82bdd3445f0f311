"""Worlds of a team as Gymnasium's `VectorEnv`: each robot of each world is one environment, for a shared policy."""

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from testudo_policies.adapters.compiled_worlds import CompiledWorlds, action_space, observation_space
from testudo_sim.environment import Environment


class VectorTeam(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """B = E worlds x N robots, robots of one world side by side. Observations and actions are those of `TeamView`.

    A world that has ended begins anew in the next step, as Gymnasium's own vector environments do and its observation
    wrappers ask for: that step ignores the actions of its robots and has no reward. The infos hold each world's
    ``contacts`` and ``interventions`` of the decision for each of its robots, and ``stands``: the robot takes no part
    in the next one.
    """

    def __init__(self, environment: Environment, worlds: int, *, central: bool = False) -> None:
        """Adapt an environment; with ``central`` the inputs of a central critic end each observation."""
        self._worlds = CompiledWorlds(environment, worlds, central=central)
        view = self._worlds.view
        self.metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}
        self.num_envs = worlds * view.team_size
        self.single_observation_space, self.single_action_space = observation_space(view), action_space(view)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin all worlds; return observations (B, size) and no infos. There are no options.

        Without a ``seed`` the random numbers go on, at first from a seed that differs in each process.
        """
        super().reset(seed=seed)
        return self._worlds.reset(seed), {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Return observations, rewards, terminations, truncations (B, ...) and infos one decision later.

        Raises:
            TestudoError: there was no reset, or the actions are not those of the space.
        """
        after = self._worlds.step(actions)
        size = self._worlds.view.team_size
        terminated, truncated = np.repeat(after.terminated, size), np.repeat(after.truncated, size)
        infos: dict[str, Any] = {
            "contacts": np.repeat(after.contacts, size),
            "interventions": np.repeat(after.interventions, size),
            "stands": after.stands,
        }
        infos |= {f"_{name}": np.ones(self.num_envs, bool) for name in tuple(infos)}
        return after.observation, after.reward.astype(np.float64), terminated, truncated, infos
