"""What one decision is worth: the one place that training, evaluation and the live task take rewards and success from.

Arrays are (robot, world), as everywhere in the simulation; a live run is one world.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from testudo_hardware.motion import MotionState
from testudo_hardware.spec import RobotSpec
from testudo_sim.physics.scene import Scene
from testudo_sim.scenarios.scenario import Scenario

CHANGES = "changes"
"""The term that the shield's changes of commands cost; all others but the next are the scenario's."""
FACING = "facing"
"""The term that looking elsewhere than to the goal costs drones that are told to turn."""
FACING_FROM_M = 0.3
"""A goal that is nearer than this, seen from above, has no direction worth looking in."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TaskScore:
    """The outcome of one decision."""

    terms: Mapping[str, jax.Array]
    """(N, E) by name: the scenario's, `CHANGES`, and `FACING` where it has a price."""
    reward: jax.Array
    """(N, E): their sum; zero where the physics diverged."""
    success: jax.Array
    """(E,) bool: the task is done."""
    broken: jax.Array
    """(E,) bool: the scene after the decision holds something that is no number."""


@dataclass(frozen=True)
class TaskScoring:
    """How decisions of a scenario are scored for one kind of robot."""

    scenario: Scenario
    spec: RobotSpec
    change_price: float = 0.0
    """Reward that a command costs when the shield changes it by the full speed."""
    facing_price: float = 0.0
    """Reward that each second costs in which a robot looks at right angles to its goal; away from it, twice."""

    @property
    def decision_s(self) -> float:
        """Time of one decision [s]."""
        return self.scenario.decision_ticks * self.spec.control_period_s

    @property
    def horizon(self) -> int:
        """Decisions in an episode."""
        return int(self.scenario.horizon_s / self.decision_s)

    def decision(self, task: Any, before: Scene, after: Scene, change_m_s: jax.Array) -> TaskScore:
        """Return what a decision is worth.

        Args:
            task: the scenario's state.
            before: the scene when it began.
            after: the scene when it ended.
            change_m_s: (N, E) mean change of the command by the shield in its ticks.
        """
        price = self.change_price * change_m_s / self.spec.control_point_speed_m_s
        terms = {**self.scenario.rewards(task, before, after), CHANGES: -price}
        if self.facing_price:
            goal = self.scenario.signals(task, after)["goal_world"]
            terms[FACING] = -self.facing_price * self.decision_s * looks_away(after.robots, goal)
        broken = not_finite(after)
        reward = jnp.where(broken, 0.0, sum(terms.values()))
        return TaskScore(terms, reward, self.scenario.success(task, after), broken)


def looks_away(motion: MotionState, goal_world: jax.Array) -> jax.Array:
    """Return 1 - cos of the angle (N, E) between heading and goal (D, N, E); 0 where the goal is near, or above."""
    offset = goal_world[:2] - motion.position_world[:2]
    across = jnp.sqrt(jnp.sum(offset**2, axis=0))
    along = (jnp.cos(motion.yaw) * offset[0] + jnp.sin(motion.yaw) * offset[1]) / jnp.maximum(across, FACING_FROM_M)
    return jnp.where(across > FACING_FROM_M, 1 - along, 0.0)


def not_finite(scene: Scene) -> jax.Array:
    """Return (E,) bool: the physics has come to something that is no number."""
    leaves = (jnp.all(jnp.isfinite(x), axis=tuple(range(x.ndim - 1))) for x in jax.tree.leaves(scene))
    return ~functools.reduce(jnp.logical_and, leaves)
