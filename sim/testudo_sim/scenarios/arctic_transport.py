"""`arctic_transport`: two drones look ahead for a robot that is fast on ice and one that is fast on water.

The task of that name of the Robotarium suite. Between the start row and the goal row lie six rows of twelve tiles of
ground, ice and water, drawn at random. The drones, robots on the ground like the others, see the 3 x 3 tiles around
them, and all robots know what they see. Way-points of the ice robot and the water robot are 0.3 m away on tiles of
their kind, 0.1 m on those of the other's, and 0.2 m on ground; those of drones 0.2 m. Reward of all, until the two are
in the goal row: -0.1 for each decision, and -0.05 for each metre along y that they are short of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from testudo_deploy.contract.contract import Signal
from testudo_sim.physics.scene import Scene
from testudo_sim.scenarios.goal_scenario import straight_to
from testudo_sim.scenarios.robotarium_task import RobotariumTask, entity_signals, equal_terms, for_all, own_and_peers
from testudo_sim.scenarios.roles import Role, Roles, trait_values
from testudo_sim.scenarios.scenario import Observation, StartState, TaskStep

_OBSERVATION = Observation(speed="speed_share")
GROUND, ICE, WATER, GOAL = range(4)  # tiles
_ROLES = Roles(  # kind: of which tiles, (ice, water); drones are of no kind
    (
        Role("drone", {"kind": (0.0, 0.0)}, 2),
        Role("ice robot", {"kind": (1.0, 0.0)}, 1),
        Role("water robot", {"kind": (0.0, 1.0)}, 1),
    ),
    {"kind": "0 or 1"},
)
_START_X_M, _START_Y_M = (-0.3, 0.3, -0.9, 0.9), -0.8
_ROWS, _COLUMNS, _TILE_M = 8, 12, 0.25  # row 0 is the goal row, at the upper wall
_SEEN = 9  # tiles that a drone sees
_NEUTRAL, _MATCH, _OTHER = 2 / 3, 1.0, 1 / 3  # shares of full speed for way-points at 0.2, 0.3 and 0.1 m
_SHORT, _WAITING = -0.05, -0.1  # rewards
_AGE_S = 1.0


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ArcticTask:
    """The tiles."""

    tile: jax.Array  # (rows * columns, E) int: row by row
    traits: dict[str, jax.Array]  # of the robots: kind (2, N, E), 1 where ice, 1 where water


@dataclass(frozen=True, kw_only=True)
class ArcticTransport(RobotariumTask):
    """Implements `Scenario`."""

    observation: Observation = _OBSERVATION
    roles: Roles = _ROLES
    name: str = "arctic_transport"

    @property
    def task_signals(self) -> tuple[Signal, ...]:
        """See `Scenario.task_signals`."""
        return (
            *self.roles.signals,
            Signal("under", (2,), "0 or 1", "", _AGE_S),
            *own_and_peers("speed_share", max_age_s=_AGE_S),
            *entity_signals("tile", 2 * _SEEN, ("kind", 2, "0 or 1"), max_age_s=_AGE_S),
        )

    def start(self, key: jax.Array, team_size: int) -> StartState:
        """See `Scenario.start`.

        Raises:
            TestudoError: the team has not four robots.
        """
        traits = self.roles.traits(team_size, self.name)
        inner = jax.random.randint(key, ((_ROWS - 2) * _COLUMNS,), GROUND, GOAL)
        tiles = jnp.concatenate([jnp.full(_COLUMNS, GOAL), inner, jnp.full(_COLUMNS, GROUND)])
        place = self.scale * jnp.stack([jnp.array(_START_X_M), jnp.full(team_size, _START_Y_M)])
        return StartState(place, jnp.zeros(team_size), ArcticTask(tiles, traits))

    def signals(self, task: ArcticTask, scene: Scene) -> Mapping[str, jax.Array]:
        """See `Scenario.signals`; ``kind`` and ``under``, the tile under the robot, are (ice, water)."""
        team, worlds = scene.robots.yaw.shape
        row, column = self._cell(scene.robots.position_world)
        under = self._tile(task, row, column)
        around = np.array([(down, right) for down in (-1, 0, 1) for right in (-1, 0, 1)])
        # (drone, tile around it, world), as one list of tiles
        rows, columns = (
            (at[:2, None] + step[None, :, None]).reshape(2 * _SEEN, worlds)
            for at, step in zip((row, column), around.T, strict=True)
        )
        is_there = (rows >= 0) & (rows < _ROWS) & (columns >= 0) & (columns < _COLUMNS)
        valid = jnp.where(is_there, 1.0, 0.0)
        return {
            **trait_values(task.traits),
            "under": _ice_water(under),
            "speed_share": self._share(task, under)[None],
            "tile_position_world": for_all(valid * self._centre(rows, columns), team),
            "tile_valid": for_all(valid[None], team),
            "tile_kind": for_all(valid * _ice_water(self._tile(task, rows, columns)), team),
        }

    def advance(self, task: ArcticTask, before: Scene, after: Scene, keys: jax.Array) -> TaskStep:
        """See `Scenario.advance`; success: the ice robot and the water robot are in the goal row."""
        y = after.robots.position_world[1, 2:]
        edge = self.arena.high_world[1] - _TILE_M * self.scale
        done = jnp.all(y > edge, axis=0)
        short_m = jnp.sum(jnp.maximum(edge - y, 0.0), axis=0) / self.scale
        terms = equal_terms(after.robots.yaw.shape[0], short=_SHORT * short_m, waiting=jnp.where(done, 0.0, _WAITING))
        return TaskStep(task, terms, done)

    def nominal_world(self, task: ArcticTask, scene: Scene) -> jax.Array:
        """See `Scenario.nominal_world`: each robot takes the best of the three tiles ahead that a drone sees.

        The drones stay ahead of the robots, beside their way.
        """
        place = scene.robots.position_world
        row, column = self._cell(place)
        up = row[2:] - 1
        costs, centres = [], []
        for step in (0, -1, 1):
            side = jnp.clip(column[2:] + step, 0, _COLUMNS - 1)
            near = (jnp.abs(up[None] - row[:2, None]) <= 1) & (jnp.abs(side[None] - column[:2, None]) <= 1)
            tile = jnp.where(jnp.any(near, axis=0), self._tile(task, up, side), GROUND)
            costs.append(1 / self._share(task, tile, 2) + abs(step))
            centres.append(self._centre(up, side))
        best = jnp.argmin(jnp.stack(costs), axis=0)[None] == jnp.arange(len(costs))[:, None, None]
        ahead = jnp.sum(jnp.where(best[:, None], jnp.stack(centres), 0.0), axis=0)
        top = self.arena.high_world[1] - _TILE_M * self.scale / 2
        robots = jnp.stack([ahead[0], jnp.minimum(jnp.maximum(ahead[1], place[1, 2:] + self.step_m), top)])
        beside = place[:, 2:] - self.scale * _TILE_M * jnp.stack([jnp.sign(place[0, 2:]), -jnp.ones_like(place[0, 2:])])
        drones = beside.at[1].min(top - self.scale * _TILE_M)
        speed = self.spec.control_point_speed_m_s * self._share(task, self._tile(task, row, column))
        return straight_to(jnp.concatenate([drones, robots], axis=1), place, self.step_m, speed)

    def _cell(self, place_world: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return row and column (N, E) of places (2, N, E) [m]."""
        tile_m = self.scale * _TILE_M
        row = jnp.floor((self.arena.high_world[1] - place_world[1]) / tile_m).astype(int)
        column = jnp.floor(place_world[0] / tile_m + _COLUMNS / 2).astype(int)
        return jnp.clip(row, 0, _ROWS - 1), jnp.clip(column, 0, _COLUMNS - 1)

    def _centre(self, row: jax.Array, column: jax.Array) -> jax.Array:
        """Return the centres (2, K, E) [m] of tiles (K, E)."""
        tile_m = self.scale * _TILE_M
        return jnp.stack([(column + 0.5 - _COLUMNS / 2) * tile_m, self.arena.high_world[1] - (row + 0.5) * tile_m])

    @staticmethod
    def _tile(task: ArcticTask, row: jax.Array, column: jax.Array) -> jax.Array:
        """Return the tiles (K, E) in these rows and columns."""
        inside = jnp.clip(row, 0, _ROWS - 1) * _COLUMNS + jnp.clip(column, 0, _COLUMNS - 1)
        return jnp.take_along_axis(task.tile, inside, axis=0)

    @staticmethod
    def _share(task: ArcticTask, tile: jax.Array, first: int = 0) -> jax.Array:
        """Return the share of full speed (N, E) of the robots from the first on, on these tiles."""
        kind, under = task.traits["kind"][:, first:], _ice_water(tile)
        on_kind = jnp.where(jnp.sum(kind * under, axis=0) > 0, _MATCH, _OTHER)
        return jnp.where((jnp.sum(kind, axis=0) == 0) | (jnp.sum(under, axis=0) == 0), _NEUTRAL, on_kind)


def _ice_water(kind: jax.Array | np.ndarray) -> jax.Array:
    """Return kinds (K, E) as (2, K, E): 1 where ice, 1 where water."""
    return jnp.stack([jnp.where(kind == each, 1.0, 0.0) for each in (ICE, WATER)])
