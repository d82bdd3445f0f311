"""`gates`: each robot drives through the gates of its lane, one after the other, at full speed against a deadline.

The lanes lie side by side along x and have the same course; a gate is an opening about a place of the lane, to the
left or right of the one before it, in space also above or below. Who comes past it outside of the opening has missed
it: there is no second attempt. Lengths are in ways of a decision at full speed, so that the course is as tight for a
fast robot as for a slow one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import jax
import jax.numpy as jnp

from testudo_deploy.contract.contract import Signal
from testudo_deploy.shield.arena import Arena
from testudo_deploy.shield.projection_margins import ProjectionParameters
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import RobotSpec
from testudo_plant.worlds.robot_bodies import Box
from testudo_sim.physics.scene import Scene
from testudo_sim.scenarios.goal_scenario import decision_ticks, room_m, spacing_m
from testudo_sim.scenarios.scenario import Observation, StartState, TaskStep

LANES = 4
GATES = 6
_APART = 4.0  # distance of two gates along the lane [ways of a decision at full speed]
_ASIDE = (1.0, 2.0)  # least and largest distance of a gate from the middle of its lane, left and right in turns
_OPENING = 0.5  # from the middle of a gate to its edge; in space the opening is round
_SLACK = 1.35  # deadline over the time of the straight way at full speed
_PASSED, _MISSED, _WAITING = 2.0, -2.0, -0.05
_AGE_S = 2.0
_OBSERVATION = Observation(pull="goal_world")


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class GateTask:
    """The course, and where each robot is on it."""

    course: jax.Array  # (D - 1, GATES, E) [m]: y, and in space height, of the gates from the middle of a lane
    number: jax.Array  # (N, E): of the next gate, from 0; GATES behind the last one


@dataclass(frozen=True, kw_only=True)
class Gates:
    """Implements `Scenario`."""

    arena: Arena
    spec: RobotSpec
    lane_m: float  # distance of two lanes
    step_m: float  # way of a decision at full speed
    decision_ticks: int
    horizon_s: float
    boxes: tuple[Box, ...] = ()
    observation: Observation = _OBSERVATION
    name: str = "gates"

    @classmethod
    def create(cls, spec: RobotSpec, shield: ProjectionParameters) -> Self:
        """Return the scenario for a kind of robot; robots of different lanes come no nearer than the shield allows."""
        ticks = decision_ticks(spec)
        step = spec.control_point_speed_m_s * ticks * spec.control_period_s
        aside, room = _ASIDE[1] * step, room_m(spec, shield) + step
        lane = spacing_m(shield) + 2 * aside
        half = ((GATES + 2) * _APART * step / 2 + room, (LANES - 1) / 2 * lane + aside + room)
        low, high = (-half[0], -half[1]), half
        if spec.dimension == 3:
            low, high = (*low, 0.0), (*high, 2 * (aside + room))
        course_s = (GATES + 1) * _APART * step / spec.control_point_speed_m_s
        return cls(
            arena=Arena(low, high),
            spec=spec,
            lane_m=lane,
            step_m=step,
            decision_ticks=ticks,
            horizon_s=_SLACK * course_s,
        )

    @property
    def task_signals(self) -> tuple[Signal, ...]:
        """See `Scenario.task_signals`: the middle of the next gate, and of the one behind it."""
        shape = (self.spec.dimension,)
        return (
            Signal("goal_world", shape, "m", "world", _AGE_S),
            Signal("then_position_world", shape, "m", "world", _AGE_S),
        )

    def start(self, key: jax.Array, team_size: int) -> StartState:
        """See `Scenario.start`: each robot before its lane, along which it looks.

        Raises:
            TestudoError: the team is larger than the number of lanes.
        """
        if team_size > LANES:
            raise TestudoError(f"{self.name}: found {team_size} robots, expected at most {LANES}, as there are lanes")
        first, away, noise = jax.random.split(key, 3)
        shape = (self.spec.dimension - 1, GATES)
        side = jnp.where(jax.random.bernoulli(first, shape=(shape[0], 1)), 1.0, -1.0) * (-1.0) ** jnp.arange(GATES)
        course = side * jax.random.uniform(away, shape, minval=_ASIDE[0], maxval=_ASIDE[1]) * self.step_m
        shift = jax.random.uniform(noise, (self.spec.dimension, team_size), minval=-0.5, maxval=0.5) * self.step_m
        place = self._in_lane(self._x_m(jnp.full(team_size, -1.0)), jnp.zeros((shape[0], team_size)))
        return StartState(place + shift, jnp.zeros(team_size), GateTask(course, jnp.zeros(team_size)))

    def for_training(self) -> Self:
        """See `Scenario.for_training`: the same."""
        return self

    def signals(self, task: GateTask, scene: Scene) -> Mapping[str, jax.Array]:
        """See `Scenario.signals`."""
        return {"goal_world": self._gate(task, 0), "then_position_world": self._gate(task, 1)}

    def advance(self, task: GateTask, before: Scene, after: Scene, keys: jax.Array) -> TaskStep:
        """See `Scenario.advance`: progress to the gate, and what a gate is worth that was passed, or missed.

        Where a robot comes past a gate is interpolated between the ends of the decision. The episode lasts to its
        deadline.
        """
        gate = self._gate(task, 0)
        first, last = before.robots.position_world, after.robots.position_world
        racing = task.number < GATES
        came_past = racing & (last[0] >= gate[0])
        share = jnp.clip((gate[0] - first[0]) / jnp.maximum(last[0] - first[0], 1e-6), 0.0, 1.0)
        off_m = _length((first + share * (last - first) - gate)[1:])
        passed = came_past & (off_m < _OPENING * self.step_m)
        progress = (_length(gate - first) - _length(gate - last)) / self.step_m
        number = task.number + came_past
        finished = number >= GATES
        terms = {
            "progress": jnp.where(racing, progress, 0.0),
            "passed": _PASSED * passed,
            "missed": _MISSED * (came_past & ~passed),
            "waiting": jnp.where(finished, 0.0, _WAITING),
        }
        counts = {"gates": jnp.mean(passed, axis=0), "missed": jnp.mean(came_past & ~passed, axis=0)}
        return TaskStep(GateTask(task.course, number), terms, None, counts)

    def nominal_world(self, task: GateTask, scene: Scene) -> jax.Array:
        """See `Scenario.nominal_world`: at full speed to the middle of the next gate."""
        way = self._gate(task, 0) - scene.robots.position_world
        return self.spec.control_point_speed_m_s * way / jnp.maximum(_length(way), self.step_m)

    def _gate(self, task: GateTask, ahead: int) -> jax.Array:
        """Return the middle (D, N, E) [m] of the next gate, or of one ``ahead``; behind the last one, of the way on."""
        number = task.number + ahead
        index = jnp.clip(number, 0, GATES - 1).astype(jnp.int32)
        aside = jnp.take_along_axis(task.course, index[None], axis=1)
        aside = jnp.where(number < GATES, aside, 0.0)
        return self._in_lane(self._x_m(jnp.minimum(number, GATES)), aside)

    def _x_m(self, number: jax.Array) -> jax.Array:
        """Return where a gate of this number is along the lanes [m]; -1 is the start."""
        return (number - (GATES - 1) / 2) * _APART * self.step_m

    def _in_lane(self, x_m: jax.Array, aside_m: jax.Array) -> jax.Array:
        """Return places (D, N, ...) [m] from x (N, ...) and what is beside the middle of the lane (D - 1, N, ...)."""
        count = x_m.shape[0]
        lanes = self.lane_m * (jnp.arange(count) - (count - 1) / 2).reshape(count, *(1,) * (x_m.ndim - 1))
        place = [x_m, lanes + aside_m[0]]
        if self.spec.dimension == 3:
            place.append(self.arena.high_world[2] / 2 + aside_m[1])
        return jnp.stack(place)


def _length(vector: jax.Array) -> jax.Array:
    """Return the length (...) of vectors (C, ...)."""
    return jnp.sqrt(jnp.sum(vector**2, axis=0) + 1e-12)
