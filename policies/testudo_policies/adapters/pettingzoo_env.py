"""A team as PettingZoo's `ParallelEnv`: one world, NumPy arrays by agent."""

from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete, Space
from pettingzoo import ParallelEnv

from testudo_policies.adapters.compiled_worlds import CompiledWorlds, action_space, observation_space
from testudo_sim.environment import Environment

ByAgent = dict[str, Any]


class ParallelTeam(ParallelEnv[str, np.ndarray, Any]):
    """One world of a scenario. Observations and actions are those of `TeamView`.

    All agents end together: with success (terminated), or at the time limit (truncated). A robot that has failed, or
    takes no part for a while, stays an agent without reward, as it may come back; its info ``stands`` is then true.
    The infos also hold the world's ``contacts`` and ``interventions`` of the decision.
    """

    render_mode = None

    def __init__(self, environment: Environment, *, central: bool = False) -> None:
        """Adapt an environment; with ``central`` the inputs of a central critic end each observation."""
        self._worlds = CompiledWorlds(environment, 1, central=central)
        view = self._worlds.view
        self.metadata = {"name": environment.scenario.name, "render_modes": [], "is_parallelizable": True}
        self.possible_agents = [f"agent_{index}" for index in range(view.team_size)]
        self.agents: list[str] = []
        self.observation_spaces: dict[str, Box] = {name: observation_space(view) for name in self.possible_agents}
        self.action_spaces: dict[str, Box | Discrete] = {name: action_space(view) for name in self.possible_agents}

    def observation_space(self, agent: str) -> Space[Any]:
        """Return the space of an agent's observations."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Space[Any]:
        """Return the space of an agent's actions."""
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[ByAgent, ByAgent]:
        """Begin an episode; return observations and infos by agent. There are no options; those given are ignored.

        Without a ``seed`` the random numbers go on, at first from a seed that differs in each process.
        """
        observations = self._worlds.reset(seed)
        self.agents = list(self.possible_agents)
        return self._by_agent(observations), {agent: {} for agent in self.agents}

    def step(self, actions: ByAgent) -> tuple[ByAgent, ByAgent, ByAgent, ByAgent, ByAgent]:
        """Return observations, rewards, terminations, truncations and infos one decision later.

        Raises:
            TestudoError: the episode has ended, or has not begun; or an agent has no action.
        """
        if not self.agents:
            raise self._worlds.error("step: found no running episode, expected a reset before")
        missing = [agent for agent in self.agents if agent not in actions]
        if missing:
            raise self._worlds.error(f"step: found no action of {', '.join(missing)}, expected one of each agent")
        after = self._worlds.step(np.stack([np.asarray(actions[agent]) for agent in self.agents]))
        flags = [dict.fromkeys(self.agents, bool(each[0])) for each in (after.terminated, after.truncated)]
        common = {"contacts": int(after.contacts[0]), "interventions": float(after.interventions[0])}
        infos = {agent: common | {"stands": bool(stands)} for agent, stands in self._by_agent(after.stands).items()}
        rewards = {agent: float(reward) for agent, reward in self._by_agent(after.reward).items()}
        observations = self._by_agent(after.observation)
        if after.terminated[0] or after.truncated[0]:
            self.agents = []
        return observations, rewards, flags[0], flags[1], infos

    def state(self) -> np.ndarray:
        """Return what a central critic reads of all robots, one after the other."""
        return self._worlds.central().reshape(-1)

    def _by_agent(self, values: np.ndarray) -> ByAgent:
        return dict(zip(self.possible_agents, values, strict=True))
