"""`swap`: robots on a ring change places with the one opposite, in the plane or in space.

In space the ring is flat, inclined or upright, so that robots meet at one height, or above another and have to avoid
its downwash. Heights between robots count 1/`height_ratio`, by which an upright ring is stretched.
"""

import math
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp

from testudo_deploy.shield.projection_margins import ProjectionParameters
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import RobotSpec
from testudo_sim.scenarios.goal_scenario import GoalScenario, GoalTask, room_m, spacing_m, square_arena, yaws
from testudo_sim.scenarios.scenario import StartState

_RADII = (1.25, 2.25)
"""Least and largest radius of the ring over the spacing: up to 7 robots fit on all, and 14 on the largest."""
_GONE = 0.9  # largest share of the way that robots have gone at the start in training
_TRAINING_SHARE = 0.5  # share of the time limit in training: a deadlocked team teaches little
_UPRIGHT = 0.8  # half the height of an upright ring over the spacing; four robots need 0.71
_FLAT_SHARE, _UPRIGHT_SHARE = 0.4, 0.3  # shares of the worlds in space; the other rings are inclined


@dataclass(frozen=True, kw_only=True)
class Swap(GoalScenario):
    """Implements `Scenario`."""

    on_the_way: float = 0.0  # share of worlds in which the robots start part of the way round the ring, anticlockwise
    name: str = "swap"

    @classmethod
    def create(cls, spec: RobotSpec, shield: ProjectionParameters) -> "Swap":
        """Return the scenario for a kind of robot; the arena has space outside the largest ring."""
        spacing, room = spacing_m(shield), room_m(spec, shield)
        side = _RADII[1] * spacing + max(room, spacing)
        height = 2 * (_UPRIGHT * shield.height_ratio * spacing + room)
        return cls.in_arena(square_arena(spec, side, height), spec, shield)

    def own_start(self, key: jax.Array, team_size: int) -> StartState:
        """Draw a ring and the place of each robot on it."""
        least, most = (share * self.spacing_m for share in _RADII)
        least = max(least, self.spacing_m / (2 * math.sin(math.pi / team_size)))
        if least > most:
            fit = math.floor(math.pi / math.asin(0.5 / _RADII[1]))
            raise TestudoError(
                f"swap: {team_size} robots do not fit on a ring of {most:.2f} m with "
                f"{self.spacing_m:.2f} m between them, {fit} do"
            )
        size, turn, place, heading, lean, way = jax.random.split(key, 6)
        radius = jax.random.uniform(size, (), minval=least, maxval=most)
        angle = 2 * math.pi * (jnp.arange(team_size) / team_size + jax.random.uniform(turn))
        whole = 2 * math.pi * (team_size // 2) / team_size
        chance, share = jax.random.uniform(way, (2,))
        gone = jnp.where(chance < self.on_the_way, _GONE * share, 0.0)
        axes = radius * jnp.eye(2) if self.spec.dimension == 2 else self._axes(lean, radius, team_size)
        offsets = [axes @ jnp.stack([jnp.cos(at), jnp.sin(at)]) for at in (angle + gone * whole, angle + whole)]
        shift = jax.random.uniform(place, (3,), minval=-1.0, maxval=1.0)
        centre = shift[:2] * (most - radius)
        if self.spec.dimension == 3:
            middle, half = self.arena.high_world[2] / 2, jnp.linalg.norm(axes[2])
            centre = jnp.append(centre, middle + shift[2] * (middle - self.room_m - half))
        start, goal = (centre[:, None] + offset for offset in offsets)
        return StartState(start, yaws(heading, self.spec, team_size), GoalTask(goal))

    def for_training(self) -> "Swap":
        """See `Scenario.for_training`: half of the teams start on the way, so that going round earns rewards."""
        return replace(self, on_the_way=0.5, horizon_s=_TRAINING_SHARE * self.horizon_s)

    def _axes(self, key: jax.Array, radius: jax.Array, team_size: int) -> jax.Array:
        """Return the half axes (3, 2) [m] of a ring in space, inclined about the first of them.

        Stretching an axis brings no two places nearer, so that the ring may be lower than it is wide.
        """
        kind, how, about = jax.random.split(key, 3)
        half_m = min(_UPRIGHT * self.spacing_m, (self.arena.high_world[2] / 2 - self.room_m) / self.height_ratio)
        # below a low ceiling the ring is inclined as far as possible
        steepest = min(1.0, 2 * half_m * math.sin(math.pi / team_size) / self.spacing_m)
        leaning = jax.random.uniform(how, minval=0.0, maxval=steepest)
        chance = jax.random.uniform(kind)
        sine = jnp.where(chance < _FLAT_SHARE, 0.0, jnp.where(chance < _FLAT_SHARE + _UPRIGHT_SHARE, steepest, leaning))
        second = jnp.minimum(radius, half_m / jnp.maximum(sine, 1e-6))
        yaw = jax.random.uniform(about, minval=0.0, maxval=2 * math.pi)
        across = second * jnp.sqrt(1 - sine**2)
        return jnp.stack(
            [
                jnp.stack([radius * jnp.cos(yaw), -across * jnp.sin(yaw)]),
                jnp.stack([radius * jnp.sin(yaw), across * jnp.cos(yaw)]),
                jnp.stack([0.0, self.height_ratio * sine * second]),
            ]
        )
