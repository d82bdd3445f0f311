"""Decisions of a policy in a task that goes on with the simulated team, from its state at a time of a run."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from testudo_analysis.replay.recorded_task import RecordedTask
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_sim.deployed_environment import DeployedEnvironment
from testudo_sim.environment import WorldState
from testudo_sim.team.batch_policy import artefact_policy, by_world
from testudo_sim.team.deployed_team import DeployedTeam, DeployedTeamState
from testudo_sim.team.team_tick import SimulatedTeam

_STREAM = 31  # random stream of the course of the task, beside those of dynamics and ticks


class TaskDecisions:
    """The task in all worlds (E), with the policy and its memory.

    The decision that a time of the run interrupts begins anew there, and the signals of the task are of the present.
    """

    def __init__(
        self,
        team: SimulatedTeam,
        deployment: DeployedTeam,
        artefact: PolicyArtefact,
        task: RecordedTask,
        times_s: Sequence[float],
        draws: int,
        seed: int,
        compiler_options: dict[str, Any],
    ) -> None:
        """Take the state of the task at the times of a run, each for ``draws`` adjacent worlds."""
        scenario = task.scoring.scenario
        self._environment = DeployedEnvironment(
            scenario=scenario, team=team, deployment=deployment, robot=team.model.spec
        )
        tasks = [task.at(time_s) for time_s in times_s for _ in range(draws)]
        self._task = jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis=-1), *tasks)
        base = jax.random.fold_in(jax.random.key(seed), _STREAM)
        self._keys = jax.vmap(partial(jax.random.fold_in, base))(jnp.arange(len(tasks)))
        self._policy, self._memory = artefact_policy(artefact), artefact.contract.hidden_size
        self._chunk = artefact.contract.decision_ticks
        self._world: WorldState | None = None
        self._hidden: Any = np.zeros((team.size * len(tasks), self._memory), np.float32)
        self._advance = jax.jit(self._advanced, compiler_options=compiler_options)
        self._signals = jax.jit(self._read, compiler_options=compiler_options)
        self._return = np.zeros(len(tasks))

    def __call__(self, state: DeployedTeamState, _: int) -> tuple[np.ndarray, jax.Array | None]:
        """Return commands (chunk, C, N, E) of the policy for the next ticks, and the robots (N, E) that stand."""
        self._end_decision(state)
        assert self._world is not None  # noqa: S101 -- set by the line above
        signals, standing = self._signals(self._world)
        command, self._hidden = self._policy(signals, self._hidden)
        nominal = by_world(command, state.estimate.yaw.shape[0])
        return np.broadcast_to(nominal, (self._chunk, *nominal.shape)), standing

    def return_at_end(self, state: DeployedTeamState) -> np.ndarray:
        """Return the sum of the rewards (E,) up to the last state of the team, mean over the robots."""
        self._end_decision(state)
        return self._return

    def _end_decision(self, state: DeployedTeamState) -> None:
        """Bring the task to the end of the decision that led to a state of the team; first, to its start."""
        if self._world is None:
            self._world = self._environment.world(self._keys, state, self._task)
            return
        self._world, reward = self._advance(self._world, state)
        self._return += np.asarray(reward, float).mean(axis=0)

    def _advanced(self, world: WorldState, state: DeployedTeamState) -> tuple[WorldState, jax.Array]:
        unchanged = jnp.zeros(state.estimate.yaw.shape)  # the price of changes is no part of the task
        ended, score = self._environment.advance(world, state, unchanged)
        return ended, score.reward

    def _read(self, world: WorldState) -> tuple[dict[str, jax.Array], jax.Array | None]:
        named = self._environment.signals(world)
        flat = {name: value.reshape(-1, *value.shape[2:]) for name, value in named.items()}
        return flat, self._environment.standing(world)
