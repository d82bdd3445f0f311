"""`coverage`: robots with a small sensing radius see every cell of the arena, each cell once, by sharing the area out.

A cell is covered once its centre was within the sensing radius of a robot, at the end of a decision. The reward of all
is the share of the arena that is newly covered, and -0.05 for each decision while a cell is left.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from testudo_deploy.contract.contract import Signal
from testudo_sim.physics.scene import Scene
from testudo_sim.scenarios.goal_scenario import straight_to
from testudo_sim.scenarios.robotarium_task import RobotariumTask, distances, entity_signals, equal_terms, for_all
from testudo_sim.scenarios.scenario import StartState, TaskStep

COLUMNS, ROWS = 8, 5
CELLS = COLUMNS * ROWS
_SENSE_M = 0.3
_ALL, _WAITING = 20.0, -0.05  # rewards: of the whole arena, and of a decision
_SPREAD = 1 / 3  # of the spawn area: where the robots start
_AGE_S = 3.0  # cells do not move: knowledge of them may be old


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class CoverageTask:
    """Which cells are left."""

    left: jax.Array  # (K, E): 1 until the cell is covered, then 0


@dataclass(frozen=True, kw_only=True)
class Coverage(RobotariumTask):
    """Implements `Scenario`."""

    name: str = "coverage"

    @property
    def task_signals(self) -> tuple[Signal, ...]:
        """See `Scenario.task_signals`."""
        return entity_signals("cell", CELLS, ("rival", 1, "m"), max_age_s=_AGE_S)

    def start(self, key: jax.Array, team_size: int) -> StartState:
        """See `Scenario.start`."""
        where, turn = jax.random.split(key)
        task = CoverageTask(jnp.ones(CELLS))
        return StartState(self.places(where, team_size, _SPREAD), self.yaws(turn, team_size), task)

    def signals(self, task: CoverageTask, scene: Scene) -> Mapping[str, jax.Array]:
        """See `Scenario.signals`: the cells that are left, and how near the nearest other robot is to each."""
        team, worlds = scene.robots.yaw.shape
        centres = jnp.broadcast_to(self._centres_world(), (2, CELLS, worlds))
        apart = distances(scene.robots.position_world, centres)
        others = jnp.where(np.eye(team, dtype=bool)[:, :, None, None], 2 * self.arena.high_world[0], apart[None])
        return {
            "cell_position_world": for_all(centres * task.left, team),
            "cell_valid": for_all(task.left[None], team),
            "cell_rival": jnp.moveaxis(jnp.min(others, axis=1) * task.left, 0, 1)[None],
        }

    def advance(self, task: CoverageTask, before: Scene, after: Scene, keys: jax.Array) -> TaskStep:
        """See `Scenario.advance`; success: all cells are covered."""
        near = distances(after.robots.position_world, self._centres_world()) < _SENSE_M * self.scale
        left = jnp.where(jnp.any(near, axis=0), 0.0, task.left)
        covered = jnp.sum(task.left - left, axis=0)
        done = jnp.all(left == 0, axis=0)
        terms = equal_terms(
            after.robots.yaw.shape[0], covered=_ALL * covered / CELLS, waiting=jnp.where(done, 0.0, _WAITING)
        )
        return TaskStep(replace(task, left=left), terms, done, {"covered": covered})

    def nominal_world(self, task: CoverageTask, scene: Scene) -> jax.Array:
        """See `Scenario.nominal_world`: to the nearest cell that is left and nearer to no other robot, else to any."""
        place = scene.robots.position_world
        apart = distances(place, self._centres_world()) + 1e3 * (1 - task.left)
        foreign = apart > jnp.min(apart, axis=0)
        chosen = jnp.argmin(apart + 10.0 * foreign, axis=1)[:, None] == jnp.arange(CELLS)[None, :, None]
        target = jnp.sum(jnp.where(chosen[None], self._centres_world()[:, None], 0.0), axis=2)
        target = jnp.where(jnp.any(task.left > 0, axis=0), target, place)
        return straight_to(target, place, self.step_m, self.spec.control_point_speed_m_s)

    def _centres_world(self) -> jax.Array:
        """Return the centres of the cells (2, K, 1) [m]."""
        low, high = np.array(self.arena.low_world), np.array(self.arena.high_world)
        x, y = (
            one + (other - one) * (np.arange(count) + 0.5) / count
            for one, other, count in zip(low, high, (COLUMNS, ROWS), strict=True)
        )
        return jnp.asarray(np.stack(np.meshgrid(x, y)).reshape(2, CELLS, 1), jnp.float32)
