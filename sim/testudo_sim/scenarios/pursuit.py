"""`pursuit`: robots with a narrow field of view keep sight of as many moving targets, and so share them out.

Active target tracking after Hsu et al., "Scalable Reinforcement Learning Policies for Multi-Agent Control" (IROS 2021),
with its constants: a robot sees targets within 10 m and 45 degrees to either side of its heading, with a noise of 0.2 m
and 0.01 rad; targets are double integrators of at most 2 m/s; the team shares a Kalman filter for each. Robots here
have a top speed of 2 m/s of the paper: a metre of the paper is the way of a decision at full speed. The reward of
all is -0.1 times the mean logarithm of the determinant of the filters' covariances. A robot reads the four targets that
are believed nearest to it, so that a policy fits any number of robots and targets.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from testudo_deploy.contract.contract import Signal
from testudo_sim.physics.scene import Scene
from testudo_sim.scenarios.goal_scenario import straight_to
from testudo_sim.scenarios.robotarium_task import RobotariumTask, distances, entity_signals, equal_terms
from testudo_sim.scenarios.scenario import BODY, Observation, StartState, TaskStep
from testudo_sim.scenarios.target_beliefs import (
    START_VARIANCE,
    TargetBeliefs,
    acceleration_noise,
    measured,
    transition,
)

_OBSERVATION = Observation(frame=BODY)
SLOTS = 4
DECISION_S = 0.5  # of the paper, in which a robot of 2 m/s covers a metre
_SENSE, _HALF_VIEW_RAD = 10.0, np.pi / 4
_TARGET_SPEED, _DENSITY = 2.0, 0.01  # largest speed, and spectral density of the targets' acceleration
_START_SPEED = 1.0
_REWARD = -0.1
_KEEPS = 3.0  # hand-written: distance from the target that a robot watches
_NEAR = 0.3  # hand-written: what a unit of the logarithm is worth, in metres of way


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PursuitTask:
    """The targets, as many as robots, and what the team believes of them; lengths in metres of the paper."""

    place: jax.Array  # (2, M, E)
    velocity: jax.Array  # (2, M, E), over a second of the paper
    mean: jax.Array  # (4, M, E): of the beliefs
    covariance: jax.Array  # (4, 4, M, E)
    seen: jax.Array  # (M, E): 1 if a robot saw the target at the end of the last decision

    @property
    def beliefs(self) -> TargetBeliefs:
        """Return the beliefs with the axes of a target last."""
        return TargetBeliefs(jnp.moveaxis(self.mean, 0, -1), jnp.moveaxis(self.covariance, (0, 1), (-2, -1)))


@dataclass(frozen=True, kw_only=True)
class Pursuit(RobotariumTask):
    """Implements `Scenario`."""

    observation: Observation = _OBSERVATION
    name: str = "pursuit"
    step_s: float = DECISION_S

    @property
    def task_signals(self) -> tuple[Signal, ...]:
        """See `Scenario.task_signals`."""
        age_s = 2 * self.decision_ticks * self.spec.control_period_s
        columns = (("velocity_world", 2, "m/s"), ("uncertainty", 1, ""), ("seen", 1, "0 or 1"))
        return entity_signals("target", SLOTS, *columns, max_age_s=age_s)

    def start(self, key: jax.Array, team_size: int) -> StartState:
        """See `Scenario.start`: as many targets as robots; beliefs are as far off as their covariance says."""
        where, turn, targets, moves, guess = jax.random.split(key, 5)
        low, high = self._walls
        place = jax.random.uniform(targets, (2, team_size), minval=low, maxval=high)
        velocity = _START_SPEED * jax.random.uniform(moves, (2, team_size), minval=-1.0)
        off = jnp.sqrt(START_VARIANCE) * jax.random.normal(guess, (2, team_size))
        mean = jnp.concatenate([jnp.clip(place + off, low, high), 0 * velocity])
        covariance = START_VARIANCE * jnp.broadcast_to(jnp.eye(4)[..., None], (4, 4, team_size))
        task = PursuitTask(place, velocity, mean, covariance, jnp.zeros(team_size))
        return StartState(self.places(where, team_size), self.yaws(turn, team_size), task)

    def signals(self, task: PursuitTask, scene: Scene) -> Mapping[str, jax.Array]:
        """See `Scenario.signals`: of the targets that are believed nearest; no target, where there are fewer."""
        apart = distances(scene.robots.position_world, self.step_m * task.mean[:2])  # (N, M, E)
        shown = min(SLOTS, apart.shape[1])
        order = jnp.argsort(apart, axis=1)[:, :shown]  # (N, shown, E)

        def of_nearest(values: jax.Array) -> jax.Array:
            """Return values (C, M, E) of the targets that each robot reads: (C, K, N, E)."""
            spread = jnp.broadcast_to(values[:, None], (len(values), *apart.shape))
            chosen = jnp.moveaxis(jnp.take_along_axis(spread, order[None], axis=2), 1, 2)
            return jnp.pad(chosen, ((0, 0), (0, SLOTS - shown), (0, 0), (0, 0)))

        speed = self.step_m / (self.decision_ticks * self.spec.control_period_s) * DECISION_S
        return {
            "target_position_world": of_nearest(self.step_m * task.mean[:2]),
            "target_valid": of_nearest(jnp.ones((1, *task.seen.shape))),
            "target_velocity_world": of_nearest(speed * task.mean[2:]),
            "target_uncertainty": of_nearest(task.beliefs.log_det[None] / 10),
            "target_seen": of_nearest(task.seen[None]),
        }

    def advance(self, task: PursuitTask, before: Scene, after: Scene, keys: jax.Array) -> TaskStep:
        """See `Scenario.advance`; the episode lasts to its time limit."""
        team, targets = after.robots.yaw.shape[0], task.seen.shape[0]
        push, look = (
            jax.vmap(lambda key, k=k, shape=shape: jax.random.normal(jax.random.fold_in(key, k), shape), out_axes=-1)(
                keys
            )
            for k, shape in enumerate(((4, targets), (2, team, targets)))
        )
        place, velocity = self._moved(task, push)
        robots = after.robots.position_world / self.step_m
        seen = self._sees(robots, after.robots.yaw, place)
        found, errors = measured(jnp.moveaxis(place, 0, -1), jnp.moveaxis(robots, 0, -1), jnp.moveaxis(look, 0, -1))
        beliefs = task.beliefs.predicted(DECISION_S).updated(found, errors, seen)
        any_sees = jnp.where(jnp.any(seen, axis=0), 1.0, 0.0)
        mean, covariance = jnp.moveaxis(beliefs.mean, -1, 0), jnp.moveaxis(beliefs.covariance, (-2, -1), (0, 1))
        uncertainty = jnp.mean(beliefs.log_det, axis=0)
        terms = equal_terms(team, uncertainty=_REWARD * uncertainty)
        metrics = {"information": -uncertainty / self.steps, "in sight": jnp.mean(any_sees, axis=0) / self.steps}
        return TaskStep(PursuitTask(place, velocity, mean, covariance, any_sees), terms, None, metrics)

    def nominal_world(self, task: PursuitTask, scene: Scene) -> jax.Array:
        """See `Scenario.nominal_world`: each robot towards a target that is near and uncertain, no two to the same.

        The first robot chooses first; none comes nearer to its target than 3 m of the paper.
        """
        robots = scene.robots.position_world / self.step_m
        cost = distances(robots, task.mean[:2]) - _NEAR * task.beliefs.log_det[None]
        taken = jnp.zeros(task.seen.shape)
        aims = []
        for one in cost:
            chosen = jnp.argmin(one + 1e6 * taken, axis=0)[None] == jnp.arange(len(taken))[:, None]
            taken = jnp.where(chosen, 1.0, taken)
            aims.append(jnp.sum(jnp.where(chosen, task.mean[:2], 0.0), axis=1))
        way = jnp.stack(aims, axis=1) - robots
        length = jnp.sqrt(jnp.sum(way**2, axis=0) + 1e-12)
        aim = robots + way / length * jnp.maximum(length - _KEEPS, 0.05)
        return straight_to(
            self.step_m * aim, scene.robots.position_world, self.step_m, self.spec.control_point_speed_m_s
        )

    @property
    def _walls(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the lower and upper corner (2, 1) of the arena."""
        low, high = (np.array(side)[:, None] / self.step_m for side in (self.arena.low_world, self.arena.high_world))
        return low, high

    def _moved(self, task: PursuitTask, push: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return places and velocities (2, M, E) of the targets after a decision; the walls reflect them."""
        root = np.linalg.cholesky(_DENSITY * acceleration_noise(DECISION_S).astype(float)).astype(np.float32)
        state = jnp.tensordot(transition(DECISION_S), jnp.concatenate([task.place, task.velocity]), 1)
        state = state + jnp.tensordot(root, push, 1)
        place, velocity = state[:2], state[2:]
        speed = jnp.sqrt(jnp.sum(velocity**2, axis=0) + 1e-12)
        velocity = velocity * jnp.minimum(1.0, _TARGET_SPEED / speed)
        low, high = (side[..., None] for side in self._walls)
        inside = jnp.clip(place, low, high)
        return inside, jnp.where(inside == place, velocity, -velocity)

    def _sees(self, robots: jax.Array, yaw: jax.Array, place: jax.Array) -> jax.Array:
        """Return which robots see which targets (N, M, E) bool."""
        line = place[:, None] - robots[:, :, None]
        off = jnp.arctan2(line[1], line[0]) - yaw[:, None]
        ahead = jnp.abs(jnp.arctan2(jnp.sin(off), jnp.cos(off))) < _HALF_VIEW_RAD
        return ahead & (distances(robots, place) < _SENSE)
