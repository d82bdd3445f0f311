"""A scenario that begins where a run was: its own moments as starts, with its goals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from testudo_deploy.contract.contract import Contract
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import MotionState
from testudo_hardware.spec import RobotSpec
from testudo_policies.dataset.episodes import best_track, team_states
from testudo_runs.run_reader import RecordedRun
from testudo_sim.online_task.task_state import make_task, scoring_of
from testudo_sim.physics.scene import Scene
from testudo_sim.scenarios.scenario import Scenario, StartState

_EVERY_S = 1.0


@dataclass(frozen=True)
class RunStarts:
    """A scenario with other starts: moments of a run, the robots at rest there; all else is the scenario's."""

    inner: Scenario
    task: Any
    """Of one world, without its axis."""
    position_world: jax.Array
    """(D, N, S) [m]."""
    yaw: jax.Array
    """(N, S) [rad]."""

    def __getattr__(self, name: str) -> Any:
        if name == "inner":  # while it is made or copied
            raise AttributeError(name)
        return getattr(self.inner, name)

    def start(self, key: jax.Array, team_size: int) -> StartState:
        """See `Scenario.start`: one of the moments."""
        if team_size != self.yaw.shape[0]:
            raise TestudoError(f"starts of a run with {self.yaw.shape[0]} robots: found a team of {team_size}")
        chosen = jax.random.randint(key, (), 0, self.yaw.shape[1])
        return StartState(self.position_world[..., chosen], self.yaw[..., chosen], self.task)


def run_starts(run: RecordedRun, contract: Contract, spec: RobotSpec) -> RunStarts:
    """Return the scenario of a run's policy with starts from the run: one each second, until the task was done.

    Raises:
        TestudoError: the task is not in the recording, or there is no pose.
    """
    scenario = scoring_of(contract, spec).scenario
    task = make_task(scenario, [run.fleet.robot(name).goal_world for name in run.robots])
    tracks = {name: best_track(run, name) for name in run.robots}
    begin = max(track.stamp_s[0] for track in tracks.values())
    end = min(track.stamp_s[-1] for track in tracks.values())
    moments = np.arange(begin, max(end, begin + _EVERY_S), _EVERY_S)
    state = team_states(run, tracks, moments).reshape(len(moments), len(tracks), -1)
    size = spec.dimension
    place, yaw = np.moveaxis(state[..., :size], (2, 1, 0), (0, 1, 2)), state[..., size].T
    scene = Scene(MotionState(jnp.asarray(place), jnp.asarray(yaw), jnp.zeros_like(place)))
    open_ = ~np.asarray(jnp.broadcast_to(scenario.success(task, scene), (len(moments),)))
    open_[0] = True
    return RunStarts(
        scenario, jax.tree.map(lambda x: x[..., 0], task), jnp.asarray(place[..., open_]), jnp.asarray(yaw[..., open_])
    )
