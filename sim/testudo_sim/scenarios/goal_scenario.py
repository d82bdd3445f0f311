"""Base of all scenarios with one goal per robot, start grids, and the arena of the Robotarium (arXiv 2505.06771)."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from testudo_deploy.contract.contract import Signal
from testudo_deploy.control.goal_hold import GOAL_TOLERANCE_M
from testudo_deploy.shield.arena import Arena, Obstacle
from testudo_deploy.shield.projection_margins import ProjectionParameters
from testudo_deploy.shield.stop_tube import stop_tube_parameters
from testudo_hardware.motion import MotionState
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import RobotSpec
from testudo_plant.worlds.robot_bodies import Box
from testudo_sim.physics.scene import Scene
from testudo_sim.scenarios.scenario import Observation, StartState, TaskStep
from testudo_sim.scenarios.symmetry import Symmetry, symmetries_of
from testudo_sim.starts import StartDistribution

ROBOTARIUM = Arena((-1.6, -1.0), (1.6, 1.0))
SPAWN_EDGE_M = (0.35, 0.25)
"""Starts and goals lie inside 2.5 m x 1.5 m of it."""


@dataclass(frozen=True)
class Grid:
    """Grid points in a box of the world, at least one spacing apart in scaled heights."""

    points_world: np.ndarray  # (cells, D) float32 [m]
    jitter_m: np.ndarray  # (D,) float32 [m]: largest offset from the grid point along each axis

    @classmethod
    def create(
        cls, low_world: tuple[float, ...], high_world: tuple[float, ...], spacing_m: float, height_ratio: float = 1.0
    ) -> "Grid":
        """Return the grid with the most points at the spacing, with ``height_ratio`` times the spacing in height."""
        axes, jitter = [], []
        for axis, (low, high) in enumerate(zip(low_world, high_world, strict=True)):
            apart = spacing_m * (height_ratio if axis == 2 else 1.0)
            count = int((high - low) / apart) + 1
            # neighbours moved towards each other keep the spacing, and the outermost ones stay inside
            step = (high - low + apart) / count
            jitter.append((step - apart) / 2)
            axes.append(low + jitter[-1] + step * np.arange(count))
        points = np.array(list(itertools.product(*axes)), dtype=np.float32)
        return cls(points, np.array(jitter, dtype=np.float32))

    def draw(self, key: jax.Array, weights: jax.Array, shifts: jax.Array) -> jax.Array:
        """Draw places (D, N) [m] without repetition.

        ``key`` is that of the choice; lower scores ``weights`` (cells,) are more likely; ``shifts`` (D, N) in -1 to 1
        are the share of the jitter.
        """
        order = jnp.argsort(weights + jax.random.gumbel(key, weights.shape))
        return jnp.asarray(self.points_world)[order[: shifts.shape[1]]].T + shifts * self.jitter_m[:, None]


_OBSERVATION = Observation("goal_world", "goal_world")
DECISION_S = 0.33
"""Approximate decision period, rounded to control ticks."""
_FIRST_GAP_M = 0.1  # starts and goals are apart by the enforced separation plus this, and at least by `_GRID_M`
_GRID_M = 0.45
_HEIGHTS_M = (2.0, 4.0)  # least and largest height of an arena in space, limited to real halls
_STARTS_STREAM, _CHOICE_STREAM = 11, 12


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class GoalTask:
    """The goals."""

    goal_world: jax.Array  # (D, N, E) [m]


@dataclass(frozen=True, kw_only=True)
class GoalScenario:
    """Implements `Scenario` except for starts and goals (`own_start`)."""

    arena: Arena
    spec: RobotSpec
    spacing_m: float  # least distance of starts, and of goals, at one height
    decision_ticks: int
    room_m: float  # least distance of starts and goals from obstacles, floor and ceiling
    height_ratio: float  # of the shield: heights between robots count 1/this
    horizon_s: float = 40.0
    tolerance_m: float = GOAL_TOLERANCE_M
    boxes: tuple[Box, ...] = ()
    observation: Observation = _OBSERVATION
    starts: StartDistribution | None = None  # recorded start distribution; None for the starts of the scenario
    starts_share: float = 1.0  # share of worlds with recorded starts; the others use those of the scenario
    name: str = ""

    @classmethod
    def in_arena(cls, arena: Arena, spec: RobotSpec, shield: ProjectionParameters, **changes: Any) -> Self:
        """Return the scenario in an arena, with the spacing, room and decision period of a kind of robot."""
        return cls(
            arena=arena,
            spec=spec,
            spacing_m=spacing_m(shield),
            decision_ticks=decision_ticks(spec),
            room_m=room_m(spec, shield),
            height_ratio=shield.height_ratio,
            **changes,
        )

    @property
    def task_signals(self) -> tuple[Signal, ...]:
        """See `Scenario.task_signals`."""
        return (goal_signal(self.spec.dimension),)

    @property
    def symmetries(self) -> tuple[Symmetry, ...]:
        """Return the symmetries of the arena: all places have the same worth."""
        return symmetries_of(self.arena)

    @property
    def full_step_m(self) -> float:
        """Distance of one decision at full speed; scales the reward for progress."""
        return self.spec.control_point_speed_m_s * self.spec.control_period_s * self.decision_ticks

    def own_start(self, key: jax.Array, team_size: int) -> StartState:
        """Draw starts and goals of one world; raises `TestudoError` if the team does not fit."""
        raise NotImplementedError

    def start(self, key: jax.Array, team_size: int) -> StartState:
        """See `Scenario.start`."""
        if self.starts is None:
            return self.own_start(key, team_size)
        self.starts.check_fits(self.spec, team_size, "--starts")
        position, yaw, velocity, goal = self.starts.draw(jax.random.fold_in(key, _STARTS_STREAM))
        recorded = StartState(position, yaw, GoalTask(goal), velocity=velocity)
        if self.starts_share == 1:
            return recorded
        own = replace(self.own_start(key, team_size), velocity=jnp.zeros_like(velocity))
        chosen = jax.random.uniform(jax.random.fold_in(key, _CHOICE_STREAM)) < self.starts_share
        return jax.tree.map(lambda one, other: jnp.where(chosen, one, other), recorded, own)

    def signals(self, task: GoalTask, scene: Scene) -> Mapping[str, jax.Array]:
        """See `Scenario.signals`."""
        return {"goal_world": task.goal_world}

    def advance(self, task: GoalTask, before: Scene, after: Scene, keys: jax.Array) -> TaskStep:
        """See `Scenario.advance`: progress to the goal, a cost of time, and a bonus for success.

        Success: all robots that have not failed for good are within the tolerance at one moment.
        """
        distance = self.distance(task, after.robots)
        progress = (self.distance(task, before.robots) - distance) / self.full_step_m
        there = distance < self.tolerance_m
        success = after.all_left(there)
        bonus = jnp.broadcast_to(jnp.where(success, 5.0, 0.0), there.shape)
        terms = {"progress": progress, "waiting": jnp.where(there, 0.0, -0.05), "success": bonus}
        return TaskStep(task, terms, success)

    def nominal_world(self, task: GoalTask, scene: Scene) -> jax.Array:
        """See `Scenario.nominal_world`: straight to the goal."""
        return straight_to(
            task.goal_world, scene.robots.position_world, self.full_step_m, self.spec.control_point_speed_m_s
        )

    def distance(self, task: GoalTask, motion: MotionState) -> jax.Array:
        """Return the distance of every robot to its goal (N, E) [m]."""
        return jnp.sqrt(jnp.sum((task.goal_world - motion.position_world) ** 2, axis=0))

    def for_training(self) -> Self:
        """See `Scenario.for_training`."""
        return self

    def with_obstacles(self, obstacles: tuple[Obstacle, ...]) -> Self:
        """Return the same scenario with obstacles in its arena."""
        return replace(self, arena=replace(self.arena, obstacles=obstacles))

    def with_starts(self, starts: StartDistribution, share: float = 1.0) -> Self:
        """Return the same scenario with recorded starts, in the arena of the run if it is known."""
        return replace(
            self,
            starts=starts,
            starts_share=share,
            horizon_s=starts.horizon_s if share == 1 else self.horizon_s,
            arena=starts.arena if starts.arena and share == 1 else self.arena,
        )

    def with_horizon(self, horizon_s: float) -> Self:
        """Return the same scenario with another time limit [s]."""
        return replace(self, horizon_s=horizon_s)


def goal_signal(dimension: int) -> Signal:
    """Return the task signal of a goal (D,) [m]."""
    return Signal("goal_world", (dimension,), "m", "world", None)


def square_arena(spec: RobotSpec, half_m: float, height_m: float) -> Arena:
    """Return a square of half this side [m]; in space with a height [m] limited to that of real halls."""
    low, high = (-half_m, -half_m), (half_m, half_m)
    if spec.dimension == 2:
        return Arena(low, high)
    return Arena((*low, 0.0), (*high, min(max(height_m, _HEIGHTS_M[0]), _HEIGHTS_M[1])))


def spawn_box(arena: Arena, edge_m: Sequence[float]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the lower and upper corner (D,) [m] of an arena without edges (D,) [m]."""
    low = tuple(x + edge for x, edge in zip(arena.low_world, edge_m, strict=True))
    return low, tuple(x - edge for x, edge in zip(arena.high_world, edge_m, strict=True))


def spacing_m(shield: ProjectionParameters) -> float:
    """Return the least distance of starts, and of goals, at one height [m]."""
    return max(shield.separation_m + _FIRST_GAP_M, _GRID_M)


def decision_ticks(spec: RobotSpec, decision_s: float = DECISION_S) -> int:
    """Return the control ticks of a decision of about ``decision_s``."""
    return max(1, round(decision_s / spec.control_period_s))


def room_m(spec: RobotSpec, shield: ProjectionParameters) -> float:
    """Return how far from a wall or obstacle a robot can be at rest, whatever its heading [m]."""
    ahead = spec.look_ahead_m if spec.kind == DIFFERENTIAL_DRIVE else 0.0
    return max(shield.wall_m + ahead, stop_tube_parameters(spec).wall_m) + 0.01


def yaws(key: jax.Array, spec: RobotSpec, team_size: int) -> jax.Array:
    """Draw headings (N,) [rad]; zero for drones."""
    yaw = jax.random.uniform(key, (team_size,), minval=-np.pi, maxval=np.pi)
    return yaw if spec.dimension == 2 else 0 * yaw


def straight_to(
    target_world: jax.Array, place_world: jax.Array, full_step_m: float, speed_m_s: float | jax.Array
) -> jax.Array:
    """Return the velocity (D, N, E) [m/s] of robots that drive to their targets (D, N, E) [m] and stop there.

    ``speed_m_s``, also (N, E), is their full speed, in which a decision takes them ``full_step_m``.
    """
    way = target_world - place_world
    length = jnp.sqrt(jnp.sum(way**2, axis=0) + 1e-12)
    return way / length * speed_m_s * jnp.minimum(length / full_step_m, 1.0)
