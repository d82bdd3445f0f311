"""`rware`: robots fetch the shelves that are requested, and bring them back.

The task of that name of the Robotarium suite. Six cells hold a shelf each, and as many shelves as there are robots are
requested. A robot that stays within 0.2 m of a cell takes its shelf, or puts its own into an empty cell. A requested
shelf in the zone at the right end of the arena is delivered, for a reward of 1 for all, and another request is drawn.
A shelf that was carried across a cell with a shelf cannot be delivered until it has been put down.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from testudo_deploy.contract.contract import Signal
from testudo_hardware.errors import TestudoError
from testudo_sim.physics.scene import Scene
from testudo_sim.scenarios.goal_scenario import straight_to
from testudo_sim.scenarios.robotarium_task import (
    RobotariumTask,
    distances,
    entity_signals,
    equal_terms,
    for_all,
    own_and_peers,
)
from testudo_sim.scenarios.scenario import StartState, TaskStep

_CELLS_M = np.array([(x, y) for y in (0.25, -0.25) for x in (-1.1, -0.25, 0.6)]).T
CELLS = _CELLS_M.shape[1]
_START_X_M, _START_Y_M = 1.1, -0.75  # robots start in a row, from -x to x
_ZONE_M, _REACH_M = 0.5, 0.2
_CELL_M = 0.125  # half a cell
_STAYS_M = 0.1  # a robot that moves less in a decision stays; half a way-point of the suite
_POINTS = 5  # on the way of a decision that are looked at for cells
_LANE_M, _NEAR_M = 0.55, 0.12  # hand-written: lanes outside the rows of cells; distance along x to turn into one
_NONE = -1
_AGE_S = 2.0


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ShelfTask:
    """Where the shelves are, and which are requested."""

    shelf: jax.Array  # (K, E) int: the shelf in each cell, or -1
    load: jax.Array  # (N, E) int: the shelf that each robot carries, or -1
    blocked: jax.Array  # (N, E) bool: that shelf was carried across another
    requested: jax.Array  # (K, E) bool: by shelf


@dataclass(frozen=True, kw_only=True)
class Rware(RobotariumTask):
    """Implements `Scenario`."""

    name: str = "rware"
    step_s: float = 1.98

    @property
    def task_signals(self) -> tuple[Signal, ...]:
        """See `Scenario.task_signals`; ``due``: what the robot carries, or the cell holds, is to be delivered."""
        return (
            *own_and_peers("loaded", "0 or 1", _AGE_S),
            *own_and_peers("due", "0 or 1", _AGE_S),
            *entity_signals("cell", CELLS, ("full", 1, "0 or 1"), ("due", 1, "0 or 1"), max_age_s=_AGE_S),
        )

    def start(self, key: jax.Array, team_size: int) -> StartState:
        """See `Scenario.start`.

        Raises:
            TestudoError: there are fewer shelves than robots.
        """
        if team_size > CELLS:
            raise TestudoError(f"{self.name}: found a team of {team_size}, expected at most {CELLS}, a shelf for each")
        x = jnp.linspace(-_START_X_M, _START_X_M, team_size)
        none = jnp.full(team_size, _NONE, jnp.int32)
        requested = jax.random.permutation(key, CELLS) < team_size
        task = ShelfTask(jnp.arange(CELLS), none, none > 0, requested)
        place = self.scale * jnp.stack([x, jnp.full(team_size, _START_Y_M)])
        return StartState(place, jnp.full(team_size, np.pi / 2, jnp.float32), task)

    def signals(self, task: ShelfTask, scene: Scene) -> Mapping[str, jax.Array]:
        """See `Scenario.signals`."""
        team, worlds = scene.robots.yaw.shape
        full, loaded = (jnp.where(held != _NONE, 1.0, 0.0) for held in (task.shelf, task.load))
        place = jnp.broadcast_to(self._cells_world[..., None], (2, CELLS, worlds))
        due = [jnp.where(_is_requested(task, held), 1.0, 0.0) for held in (task.shelf, task.load)]
        return {
            "loaded": loaded[None],
            "due": jnp.where(task.blocked, 0.0, due[1])[None],
            "cell_position_world": for_all(place, team),
            "cell_valid": for_all(jnp.ones((1, CELLS, worlds)), team),
            "cell_full": for_all(full[None], team),
            "cell_due": for_all(due[0][None], team),
        }

    def advance(self, task: ShelfTask, before: Scene, after: Scene, keys: jax.Array) -> TaskStep:
        """See `Scenario.advance`; the episode lasts to its time limit."""
        places = before.robots.position_world, after.robots.position_world
        x, _ = places[1]
        blocked = (task.blocked | self._crosses(task, *places)) & (task.load != _NONE)
        delivers = (x > self.arena.high_world[0] - _ZONE_M * self.scale) & _is_requested(task, task.load) & ~blocked
        delivered = _held(task.load, delivers)
        # what robots at a cell take and put, of which each cell has one
        stays = jnp.sum((places[1] - places[0]) ** 2, axis=0) < (_STAYS_M * self.scale) ** 2
        near = (distances(places[1], self._cells_world[..., None]) < _REACH_M * self.scale) & stays[:, None]
        is_full, is_loaded = task.shelf != _NONE, task.load != _NONE
        takes, puts = _first(near & is_full & ~is_loaded[:, None]), _first(near & ~is_full & is_loaded[:, None])
        taken, put = (
            jnp.max(jnp.where(takes, task.shelf[None], _NONE), axis=1),
            jnp.max(jnp.where(puts, task.load[:, None], _NONE), axis=0),
        )
        shelf = jnp.where(jnp.any(takes, axis=0), _NONE, jnp.maximum(task.shelf, put))
        load = jnp.where(jnp.any(puts, axis=1), _NONE, jnp.maximum(task.load, taken))
        requested = _drawn(keys, task.requested & ~delivered, task.load.shape[0])
        count = jnp.sum(jnp.where(delivered, 1.0, 0.0), axis=0)
        next_task = ShelfTask(shelf, load, blocked & (load != _NONE), requested)
        terms = equal_terms(x.shape[0], delivered=count)
        return TaskStep(next_task, terms, None, {"deliveries": count})

    def nominal_world(self, task: ShelfTask, scene: Scene) -> jax.Array:
        """See `Scenario.nominal_world`: each robot to the nearest cell that no robot before it has chosen.

        Robots with a shelf drive along lanes outside the rows of cells.
        """
        place = scene.robots.position_world
        loaded = task.load != _NONE
        due = _is_requested(task, task.load) & ~task.blocked
        cell = self._chosen(task, place)
        cell_x, cell_y = (
            jnp.where(cell == _NONE, own, at[cell]) for own, at in zip(place, self._cells_world, strict=True)
        )
        x, y = place
        outside = self.scale * _LANE_M
        end = self.arena.high_world[0] - self.scale * _ZONE_M / 2
        # with a requested shelf: out of the row, and to the end
        in_rows = (jnp.abs(y) < 0.8 * outside) & (x < end - self.scale * _ZONE_M / 2)
        out_x, out_y = jnp.where(in_rows, x, end), jnp.where(in_rows, jnp.where(y > 0, outside, -outside), y)
        # with another one: along the lane of the empty cell, and in
        on_lane = jnp.abs(x - cell_x) > self.scale * _NEAR_M
        back_y = jnp.where(on_lane, jnp.where(cell_y > 0, outside, -outside), cell_y)
        go_x = jnp.where(loaded & due, out_x, cell_x)
        go_y = jnp.where(loaded & due, out_y, jnp.where(loaded, back_y, cell_y))
        return straight_to(jnp.stack([go_x, go_y]), place, self.step_m, self.spec.control_point_speed_m_s)

    def _chosen(self, task: ShelfTask, place: jax.Array) -> jax.Array:
        """Return the cell (N, E) for each robot: with a requested shelf for one without, else empty; -1 for none."""
        apart = distances(place, self._cells_world[..., None])
        empty = task.shelf == _NONE
        free = jnp.stack([_is_requested(task, task.shelf) & ~empty, empty])
        chosen = []
        for robot in range(place.shape[1]):
            fits = jnp.where(task.load[robot] == _NONE, free[0], free[1])
            best = jnp.argmin(apart[robot] + 1e3 * ~fits, axis=0)
            free &= (jnp.arange(CELLS)[:, None] != best) | ~fits
            chosen.append(jnp.where(jnp.any(fits, axis=0), best, _NONE))
        return jnp.stack(chosen)

    def _crosses(self, task: ShelfTask, before: jax.Array, after: jax.Array) -> jax.Array:
        """Return whether each robot's way (N, E) led across a cell with a shelf."""
        along = jnp.linspace(0.0, 1.0, _POINTS)[:, None, None, None]
        way = (before + along * (after - before))[:, :, :, None]  # (points, 2, N, 1, E)
        inside = jnp.all(jnp.abs(way - self._cells_world[:, None, :, None]) < self.scale * _CELL_M, axis=1)
        return jnp.any(inside & (task.shelf != _NONE), axis=(0, 2))

    @property
    def _cells_world(self) -> jax.Array:
        """Return the centres (2, K) [m] of the cells."""
        return jnp.asarray(self.scale * _CELLS_M, jnp.float32)


def _is_requested(task: ShelfTask, shelf: jax.Array) -> jax.Array:
    """Return whether shelves (K, E), -1 for none, are requested."""
    found = jnp.take_along_axis(task.requested, jnp.maximum(shelf, 0), axis=0)
    return found & (shelf != _NONE)


def _held(load: jax.Array, which: jax.Array) -> jax.Array:
    """Return which shelves (K, E) are carried by these robots (N, E)."""
    return jnp.any((load[:, None] == jnp.arange(CELLS)[:, None]) & which[:, None], axis=0)


def _first(each: jax.Array) -> jax.Array:
    """Return the pairs (N, K, E) of robot and cell of which the cell has none with an earlier robot."""
    return each & (jnp.cumsum(each, axis=0) == 1)


def _drawn(keys: jax.Array, requested: jax.Array, count: int) -> jax.Array:
    """Return requests (K, E) with further ones drawn up to this number."""
    order = jax.vmap(lambda key: jax.random.uniform(key, (CELLS,)), out_axes=-1)(keys) - requested
    return jnp.argsort(jnp.argsort(order, axis=0), axis=0) < count
