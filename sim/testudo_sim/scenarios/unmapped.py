"""`unmapped`: robots drive to their goals among bars that no map has; `unmapped_seen`: the same task, the bars known.

A robot of `unmapped` has its odometry, what its peers say, its goal, and ranges along rays, which see bars, walls and
other robots alike. `unmapped_seen` has the places of the bars in place of ranges: a teacher for the other one. In both
the shield has rows for what the ranges see (`testudo_deploy.shield.sensed_bodies`).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import jax
import jax.numpy as jnp

from testudo_deploy.contract.contract import Signal
from testudo_deploy.shield.projection_margins import ProjectionParameters
from testudo_deploy.shield.sensed_bodies import KnownPeers, RangeErrors, SensedBodies, nearest_in_sectors, sensed_bodies
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import RobotSpec
from testudo_sim.maps.ranges import ranges_to_discs, ray_ranges
from testudo_sim.physics.scene import Scene
from testudo_sim.scenarios.goal_scenario import GoalScenario, Grid, goal_signal, spawn_box, square_arena, yaws
from testudo_sim.scenarios.robotarium_task import check_on_the_ground, entity_signals
from testudo_sim.scenarios.scenario import BODY, Observation, StartState, TaskStep
from testudo_sim.scenarios.symmetry import Symmetry
from testudo_sim.team.message_radio import by_slot

BARS, RAYS = 6, 32
_DISCS = (-0.25, -0.125, 0.0, 0.125, 0.25)  # middles of the discs that a bar is made of, along it [m]
_RADIUS_M = 0.1
_CELLS = 5  # places of bars, starts and goals along each side
_CELL_M = 0.8
_WALL_M = 0.14  # distance kept from walls, for robots of this size; lengths of larger ones are in proportion
_SIGHT_M = 1.5
_SECTORS = 8  # of the rays, with a row of layer 1 each
_AGE_S = 0.4
_BUMP = 1.0  # what touching a bar costs in a decision
_OBSERVATION = Observation(BODY, "goal_world")


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class UnmappedTask:
    """Goals, and bars that are not in the arena."""

    goal_world: jax.Array  # (2, N, E) [m]
    bar_world: jax.Array  # (2, S, E) [m]: middles
    bar_yaw: jax.Array  # (S, E) [rad]
    bumped: jax.Array  # (E,) bool: a robot has touched a bar


@dataclass(frozen=True, kw_only=True)
class Unmapped(GoalScenario):
    """Implements `Scenario`."""

    scale: float  # lengths over those for a robot of the Robotarium's size
    observation: Observation = _OBSERVATION
    name: str = "unmapped"

    @classmethod
    def create(cls, spec: RobotSpec, shield: ProjectionParameters) -> Self:
        """Return the scenario for a kind of ground robot; raises `TestudoError` if the robot flies."""
        check_on_the_ground(cls.name, spec)
        scale = max(1.0, shield.wall_m / _WALL_M)
        half_m = scale * _CELL_M * _CELLS / 2
        horizon_s = 2 * 4 * half_m / spec.control_point_speed_m_s
        return cls.in_arena(square_arena(spec, half_m, 0.0), spec, shield, scale=scale, horizon_s=horizon_s)

    @property
    def task_signals(self) -> tuple[Signal, ...]:
        """See `Scenario.task_signals`: the goal, and ranges [m], the first ahead, the others counted to the left."""
        return (goal_signal(2), Signal("ranges", (RAYS,), "m", "body", _AGE_S))

    @property
    def symmetries(self) -> tuple[Symmetry, ...]:
        """None is declared: a mirror changes the order of the ranges."""
        return ()

    def with_obstacles(self, obstacles: object) -> Self:
        """Raise: what stands in the way here is what no map has."""
        raise TestudoError(f"--obstacles: scenario {self.name!r} takes none: its bars are in no map")

    def own_start(self, key: jax.Array, team_size: int) -> StartState:
        """Draw starts, goals and bars in cells of a grid, at most one in a cell."""
        cells = Grid.create(*spawn_box(self.arena, (self.scale * _CELL_M / 2,) * 2), self.scale * _CELL_M)
        free = len(cells.points_world)
        if 2 * team_size + BARS > free:
            raise TestudoError(
                f"{self.name}: {team_size} robots do not fit: {free} cells; at most {(free - BARS) // 2}"
            )
        choice, turn, lie = jax.random.split(key, 3)
        place = jnp.asarray(cells.points_world)[jax.random.permutation(choice, free)].T
        start, goal, bar = jnp.split(place[:, : 2 * team_size + BARS], (team_size, 2 * team_size), axis=1)
        bar_yaw = jax.random.uniform(lie, (BARS,), minval=-math.pi, maxval=math.pi)
        return StartState(
            start, yaws(turn, self.spec, team_size), UnmappedTask(goal, bar, bar_yaw, jnp.zeros((), bool))
        )

    def signals(self, task: UnmappedTask, scene: Scene) -> Mapping[str, jax.Array]:
        """See `Scenario.signals`."""
        return {"goal_world": task.goal_world, "ranges": self.ranges(task, scene)}

    def ranges(self, task: UnmappedTask, scene: Scene) -> jax.Array:
        """Return how far it is to bars, walls and other robots along the rays, (M, N, E) [m]."""
        place, heading, sight = scene.robots.position_world, scene.robots.yaw, self.scale * _SIGHT_M
        bars = jnp.swapaxes(self._discs(task), 0, 1)[:, :, None]
        peers = by_slot(place)
        bodies = jnp.concatenate([peers, jnp.full_like(peers[:1], self.spec.body_radius_m)])
        found = ray_ranges(self.arena, place, heading, RAYS, sight)
        for discs in (bars, jnp.swapaxes(bodies, 0, 1)):
            found = jnp.minimum(found, ranges_to_discs(place, heading, RAYS, sight, discs))
        return found

    def sensed(self, task: UnmappedTask, scene: Scene) -> SensedBodies:
        """See `scenario.sensed`: bars stand still, and peers are where they say."""
        place, rays = scene.robots.position_world, jnp.arange(RAYS).reshape(-1, 1, 1)
        peers = by_slot(place)
        found = sensed_bodies(
            self.arena,
            KnownPeers(jnp.stack([peers, peers]), self.spec.body_radius_m + self.spec.position_error_m),
            place,
            scene.robots.yaw + 2 * math.pi / RAYS * rays,
            self.ranges(task, scene),
            self.scale * _SIGHT_M,
            RangeErrors(0.0, 0.0),  # of exact ranges
            jnp.zeros(()),
            0.0,
        )
        return nearest_in_sectors(found, place, _SECTORS)

    def advance(self, task: UnmappedTask, before: Scene, after: Scene, keys: jax.Array) -> TaskStep:
        """See `Scenario.advance`: as `navigation`, and an episode in which a robot touched a bar is no success."""
        step = super().advance(task, before, after, keys)  # type: ignore[arg-type]
        touches = self._touches(task, after)
        bumped = task.bumped | jnp.any(touches, axis=0)
        success = jnp.asarray(step.success) & ~bumped
        terms = {**step.terms, "success": jnp.where(success, step.terms["success"], 0.0), "bumps": -_BUMP * touches}
        return TaskStep(replace(task, bumped=bumped), terms, success, {"bumps": jnp.sum(touches, axis=0) * 1.0})

    def _touches(self, task: UnmappedTask, scene: Scene) -> jax.Array:
        """Return (N, E) bool: robots that touch a bar."""
        discs = self._discs(task)
        offset = scene.robots.position_world[:, None] - discs[:2, :, None]
        gap = jnp.sqrt(jnp.sum(offset**2, axis=0)) - discs[2, :, None] - self.spec.body_radius_m
        return jnp.any(gap < 0, axis=0)

    def _discs(self, task: UnmappedTask) -> jax.Array:
        """Return the discs of all bars (3, 3 S, E): x, y and radius [m]."""
        along = jnp.stack([jnp.cos(task.bar_yaw), jnp.sin(task.bar_yaw)])
        middles = jnp.concatenate([task.bar_world + self.scale * share * along for share in _DISCS], axis=1)
        return jnp.concatenate([middles, jnp.full_like(middles[:1], self.scale * _RADIUS_M)])


@dataclass(frozen=True, kw_only=True)
class UnmappedSeen(Unmapped):
    """Implements `Scenario`: robots know the bars, and have no ranges."""

    name: str = "unmapped_seen"

    @property
    def task_signals(self) -> tuple[Signal, ...]:
        """See `Scenario.task_signals`."""
        yaw = Signal("bar_yaw", (BARS, 1), "rad", "world", _AGE_S)
        place = next(one for one in entity_signals("bar", BARS, max_age_s=_AGE_S) if one.name == "bar_position_world")
        return (goal_signal(2), place, yaw)

    def signals(self, task: UnmappedTask, scene: Scene) -> Mapping[str, jax.Array]:
        """See `Scenario.signals`."""
        shape = scene.robots.position_world.shape[1:]
        bars = jnp.broadcast_to(task.bar_world[:, :, None], (2, BARS, *shape))
        yaw = jnp.broadcast_to(task.bar_yaw[None, :, None], (1, BARS, *shape))
        return {"goal_world": task.goal_world, "bar_position_world": bars, "bar_yaw": yaw}
