"""Base of the tasks of the Robotarium suite (arXiv 2505.06771): arena, starts, decisions.

A decision takes about a second, the step of the suite, and an episode 100 of them unless a task says otherwise. Where
robots of the suite have way-points at different distances, robots here have the same shares of full speed. Lengths are
those of the suite for robots up to the size of its own, and larger in proportion for larger robots. The shield acts
at every control tick, here as in the suite's figures at deployment rate; the boundary of the arena is kept as well.
"""

from dataclasses import dataclass, replace
from typing import Any, Self

import jax
import jax.numpy as jnp

from testudo_deploy.contract.contract import NEIGHBOURS, Signal
from testudo_deploy.shield.arena import Arena
from testudo_deploy.shield.projection_margins import ProjectionParameters
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import RobotSpec
from testudo_plant.worlds.robot_bodies import Box
from testudo_sim.scenarios.goal_scenario import ROBOTARIUM, SPAWN_EDGE_M, Grid, decision_ticks, spawn_box, yaws
from testudo_sim.scenarios.scenario import IN_THE_WORLD, PEER, Observation

STEP_S = 0.99  # of the suite: 30 control ticks of 0.033 s
_SPACING_M = 0.3  # least distance of places in the suite
_ROOM_M = 0.02  # of starts, over the separation that the shield keeps


def check_on_the_ground(scenario: str, spec: RobotSpec) -> None:
    """Check that a scenario in the plane has ground robots; raises `TestudoError` where the robot flies."""
    if spec.dimension != 2:
        raise TestudoError(f"{scenario}: found {spec.name}, which flies; expected a ground robot, as gritsbot_x")


@dataclass(frozen=True, kw_only=True)
class RobotariumTask:
    """Implements `Scenario` except for signals, start and `advance`."""

    arena: Arena
    spec: RobotSpec
    scale: float  # lengths over those of the suite
    spacing_m: float  # least distance of places that are drawn
    decision_ticks: int
    horizon_s: float
    boxes: tuple[Box, ...] = ()
    observation: Observation = IN_THE_WORLD
    name: str = ""
    steps: int = 100  # decisions in an episode
    step_s: float = STEP_S  # of a robot of the suite's size

    @classmethod
    def create(cls, spec: RobotSpec, shield: ProjectionParameters) -> Self:
        """Return the task for a kind of ground robot.

        Raises:
            TestudoError: the robot flies.
        """
        check_on_the_ground(cls.name, spec)
        spacing = max(_SPACING_M, shield.separation_m + _ROOM_M)
        scale = max(1.0, (shield.separation_m + _ROOM_M) / (_SPACING_M + _ROOM_M))
        low, high = (tuple(scale * x for x in side) for side in (ROBOTARIUM.low_world, ROBOTARIUM.high_world))
        ticks = decision_ticks(spec, cls.step_s * scale * 0.2 / spec.control_point_speed_m_s)
        return cls(
            arena=Arena(low, high),
            spec=spec,
            scale=scale,
            spacing_m=spacing,
            decision_ticks=ticks,
            horizon_s=cls.steps * ticks * spec.control_period_s + 1e-6,
        )

    @property
    def step_m(self) -> float:
        """Return the way of one decision at full speed [m]; in the suite 0.2."""
        return self.spec.control_point_speed_m_s * self.decision_ticks * self.spec.control_period_s

    def for_training(self) -> Self:
        """See `Scenario.for_training`: the same."""
        return self

    def places(self, key: jax.Array, count: int, width: float = 1.0) -> jax.Array:
        """Draw places (2, count) [m] at least the spacing apart, in the middle ``width`` of the spawn area.

        Raises:
            TestudoError: so many do not fit.
        """
        grid = self._grid(width)
        if count > len(grid.points_world):
            raise TestudoError(
                f"{self.name}: {count} robots and landmarks do not fit into {len(grid.points_world)} places of the "
                "arena; use a smaller team"
            )
        choice, noise = jax.random.split(key)
        shifts = jax.random.uniform(noise, (2, count), minval=-1.0, maxval=1.0)
        return grid.draw(choice, jnp.zeros(len(grid.points_world)), shifts)

    def yaws(self, key: jax.Array, team_size: int) -> jax.Array:
        """Draw headings (N,) [rad]."""
        return yaws(key, self.spec, team_size)

    def _grid(self, width: float) -> Grid:
        low, high = spawn_box(self.arena, [self.scale * x for x in SPAWN_EDGE_M])
        return Grid.create((width * low[0], low[1]), (width * high[0], high[1]), self.spacing_m)


def distances(first_world: jax.Array, second_world: jax.Array) -> jax.Array:
    """Return the distances (A, B, E) [m] of places (2, A, E) and (2, B, E)."""
    return jnp.sqrt(jnp.sum((first_world[:, :, None] - second_world[:, None]) ** 2, axis=0))


def for_all(values: jax.Array, team_size: int) -> jax.Array:
    """Return values (C, K, E), or (C, E), seen alike by every robot: (C, K, N, E), or (C, N, E)."""
    return jnp.broadcast_to(values[..., None, :], (*values.shape[:-1], team_size, values.shape[-1]))


def own_and_peers(name: str, unit: str = "", max_age_s: float | None = None) -> tuple[Signal, Signal]:
    """Return the signal (1,) of each robot's own number, and that of its peers'."""
    own = Signal(name, (1,), unit, "", max_age_s)
    return own, replace(own, name=f"{PEER}{name}", shape=(NEIGHBOURS, 1))


def equal_terms(team_size: int, **terms: jax.Array) -> dict[str, Any]:
    """Return reward terms (N, E) that are the same for all robots, from those of the team (E,)."""
    return {name: jnp.broadcast_to(value, (team_size, *value.shape)) for name, value in terms.items()}


def entity_signals(group: str, count: int, *columns: tuple[str, int, str], max_age_s: float) -> tuple[Signal, ...]:
    """Return the signals of ``count`` entities of a group: place, presence, and columns (name, length, unit)."""
    return (
        Signal(f"{group}_position_world", (count, 2), "m", "world", max_age_s),
        Signal(f"{group}_valid", (count, 1), "0 or 1", "", max_age_s),
        *(Signal(f"{group}_{name}", (count, length), unit, "", max_age_s) for name, length, unit in columns),
    )
