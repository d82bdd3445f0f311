"""`formation`: robots take the places of a ring, a line or a wedge, and decide themselves who takes which.

Progress and the hand-written policy match robots and places greedily: the pair that is nearest to each other first,
then the nearest of those that are left. Each robot sees how near the nearest other robot is to each place.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np

from testudo_deploy.contract.contract import Signal
from testudo_deploy.shield.projection_margins import ProjectionParameters
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import RobotSpec
from testudo_sim.physics.scene import Scene
from testudo_sim.scenarios.goal_scenario import DECISION_S, SPAWN_EDGE_M, decision_ticks, spawn_box, straight_to
from testudo_sim.scenarios.robotarium_task import RobotariumTask, distances, entity_signals, equal_terms, for_all
from testudo_sim.scenarios.scenario import StartState, TaskStep

PLACES = 12
"""Most robots of a team."""
_ROOM_M = 0.06  # of places, over the separation that the shield keeps
_TOLERANCE_M = 0.1
_HORIZON_S = 40.0
_FORMED, _WAITING = 5.0, -0.05  # rewards
_AGE_S = 1.0
_FAR_M = 1e3


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class FormationTask:
    """The places; of `PLACES` as many count as there are robots."""

    place_world: jax.Array  # (2, K, E) [m]
    counts: jax.Array  # (K, E): 0 or 1


@dataclass(frozen=True, kw_only=True)
class Formation(RobotariumTask):
    """Implements `Scenario`."""

    name: str = "formation"

    @classmethod
    def create(cls, spec: RobotSpec, shield: ProjectionParameters) -> Self:
        """Return the task for a kind of ground robot; see `RobotariumTask.create`."""
        made = super().create(spec, shield)
        spacing = shield.separation_m + _ROOM_M
        return replace(made, spacing_m=spacing, decision_ticks=decision_ticks(spec, DECISION_S), horizon_s=_HORIZON_S)

    @property
    def task_signals(self) -> tuple[Signal, ...]:
        """See `Scenario.task_signals`."""
        return entity_signals("place", PLACES, ("rival", 1, "m"), max_age_s=_AGE_S)

    def start(self, key: jax.Array, team_size: int) -> StartState:
        """See `Scenario.start`."""
        where, turn, shape, angle, centre = jax.random.split(key, 5)
        shapes = jnp.asarray(self._shapes(team_size))
        chosen = shapes[jax.random.randint(shape, (), 0, len(shapes))]
        low, high = (np.array(side)[:, None] for side in spawn_box(self.arena, [self.scale * x for x in SPAWN_EDGE_M]))
        turned = _turned(chosen, jax.random.uniform(angle, maxval=2 * math.pi))
        # a long line does not fit in all directions
        turned = jnp.where(jnp.all(jnp.abs(turned) < (high - low) / 2), turned, chosen)
        free = (high - low) / 2 - jnp.max(jnp.abs(turned), axis=1, keepdims=True)
        middle = (low + high) / 2 + free * jax.random.uniform(centre, (2, 1), minval=-1.0, maxval=1.0)
        rest = ((0, 0), (0, PLACES - team_size))
        task = FormationTask(jnp.pad(middle + turned, rest), jnp.pad(jnp.ones(team_size), rest[1]))
        return StartState(self.places(where, team_size), self.yaws(turn, team_size), task)

    def signals(self, task: FormationTask, scene: Scene) -> Mapping[str, jax.Array]:
        """See `Scenario.signals`."""
        apart = distances(scene.robots.position_world, task.place_world)
        team = apart.shape[0]
        others = jnp.where(np.eye(team, dtype=bool)[:, :, None, None], _FAR_M, apart[None])
        rival = jnp.minimum(jnp.min(others, axis=1), 2 * self.arena.high_world[0]) * task.counts
        return {
            "place_position_world": for_all(task.place_world, team),
            "place_valid": for_all(task.counts[None], team),
            "place_rival": jnp.moveaxis(rival, 0, 1)[None],
        }

    def advance(self, task: FormationTask, before: Scene, after: Scene, keys: jax.Array) -> TaskStep:
        """See `Scenario.advance`; success: a robot is within 0.1 m of every place."""
        apart = distances(after.robots.position_world, task.place_world)
        taken = jnp.any(apart < _TOLERANCE_M * self.scale, axis=0) & (task.counts > 0)
        formed = jnp.all(taken | (task.counts == 0), axis=0)
        team = apart.shape[0]
        closer = self._way_left(task, before) - self._way_left(task, after)
        terms = equal_terms(
            team,
            closer=closer / (team * self.step_m),
            waiting=jnp.where(formed, 0.0, _WAITING),
            formed=jnp.where(formed, _FORMED, 0.0),
        )
        return TaskStep(task, terms, formed)

    def nominal_world(self, task: FormationTask, scene: Scene) -> jax.Array:
        """See `Scenario.nominal_world`: straight to the matched place."""
        place = scene.robots.position_world
        matched = _matches(distances(place, task.place_world), task.counts)
        target = jnp.sum(matched[None] * task.place_world[:, None], axis=2)
        return straight_to(target, place, self.step_m, self.spec.control_point_speed_m_s)

    def _way_left(self, task: FormationTask, scene: Scene) -> jax.Array:
        """Return the sum (E,) [m] of the distances of matched robots and places."""
        apart = distances(scene.robots.position_world, task.place_world)
        return jnp.sum(_matches(apart, task.counts) * apart, axis=(0, 1))

    def _shapes(self, team_size: int) -> np.ndarray:
        """Return ring, line and wedge (3, 2, N) [m] about the origin.

        Raises:
            TestudoError: they do not fit into the arena, or there are too many robots.
        """
        number = np.arange(team_size)
        ring = 2 * math.pi * number / team_size
        radius = 0.5 / math.sin(math.pi / max(team_size, 2))
        line = number - (team_size - 1) / 2
        arm, side = (number + 1) // 2, np.where(number % 2, 1.0, -1.0)
        wedge = np.stack([math.sqrt(0.75) * (arm - arm.mean()), 0.5 * side * arm])  # arms 60 degrees apart
        shapes = self.spacing_m * np.stack(
            [radius * np.stack([np.cos(ring), np.sin(ring)]), np.stack([line, 0 * line]), wedge]
        )
        low, high = spawn_box(self.arena, [self.scale * x for x in SPAWN_EDGE_M])
        room = (np.array(high) - np.array(low)) / 2
        if team_size > PLACES or np.any(np.max(np.abs(shapes), axis=(0, 2)) > room):
            raise TestudoError(f"{self.name}: the shapes of {team_size} robots do not fit; use a smaller team")
        return shapes


def _turned(places: jax.Array, angle: jax.Array) -> jax.Array:
    """Return places (2, N) turned about the origin."""
    cosine, sine = jnp.cos(angle), jnp.sin(angle)
    return jnp.stack([cosine * places[0] - sine * places[1], sine * places[0] + cosine * places[1]])


def _matches(apart: jax.Array, counts: jax.Array) -> jax.Array:
    """Return 1 for each robot and its place (N, K, E), matched greedily by distance (N, K, E), else 0."""
    robots, places, worlds = apart.shape
    left = jnp.where(counts > 0, apart, _FAR_M).reshape(robots * places, worlds)
    pairs = jnp.zeros_like(left)
    for _ in range(robots):
        nearest = jnp.argmin(left, axis=0)[None] == jnp.arange(robots * places)[:, None]
        pairs = jnp.where(nearest, 1.0, pairs)
        grid = nearest.reshape(robots, places, worlds)
        done = jnp.any(grid, axis=1, keepdims=True) | jnp.any(grid, axis=0, keepdims=True)
        left = jnp.where(done.reshape(robots * places, worlds), 2 * _FAR_M, left)
    return pairs.reshape(robots, places, worlds)
