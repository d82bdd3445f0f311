"""Age of the task's signals at the decisions of a team, as of the messages that a fleet's task node sends."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp

from testudo_hardware.errors import TestudoError
from testudo_hardware.frames import wrap_angle
from testudo_sim.physics.scene import BodyState, Scene

_WORLD_STREAM, _DECISION_STREAM = 2**30, 2**30 + 1
"""Random streams of a world's course, beyond those of its decisions, which are counted from 0."""


@dataclass(frozen=True)
class TaskChannel:
    """Delay, period and loss of the messages of the task: the ranges from which each world draws.

    The robots of a world share the draws: at a decision the values of all of them are equally old.
    """

    delay_s: tuple[float, float] = (0.03, 0.15)  # [s] from the measurement to the robot: pose age and message time
    period_s: tuple[float, float] = (0.05, 0.1)  # [s] between two messages; the task node sends every 0.05 s
    loss: tuple[float, float] = (0.0, 0.3)  # probability that a message is lost

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            TestudoError: a range is out of order, or beyond what can be simulated.
        """
        for name, least, most in (("delay_s", 0.0, 1.0), ("period_s", 0.0, 1.0), ("loss", 0.0, 0.9)):
            low, high = getattr(self, name)
            if not least <= low <= high <= most:
                raise TestudoError(
                    f"task channel: {name}: found {(low, high)}, expected a range within {least:g} to {most:g}"
                )

    def ages_s(self, keys: jax.Array, elapsed: jax.Array, limit_s: float) -> jax.Array:
        """Return the age (E,) [s] of the values of the task at the end of a decision.

        A message is as old as its delay when it arrives, and its values are held until the next one that is not lost.
        ``limit_s`` bounds the age: beyond it a robot brakes, so that a policy never reads such values.

        Args:
            keys: of the course of each world (E,), which also draw its delay, period and loss.
            elapsed: number of the decision (E,).
            limit_s: greatest age.
        """

        def units(key: jax.Array, number: jax.Array) -> jax.Array:
            decision = jax.random.fold_in(jax.random.fold_in(key, _DECISION_STREAM), number)
            world = jax.random.fold_in(key, _WORLD_STREAM)
            return jnp.concatenate([jax.random.uniform(world, (3,)), jax.random.uniform(decision, (2,))])

        drawn = jax.vmap(units, out_axes=-1)(keys, elapsed)
        delay_s, period_s, loss = (
            low + unit * (high - low)
            for unit, (low, high) in zip(drawn[:3], (self.delay_s, self.period_s, self.loss), strict=True)
        )
        # at least n messages in a row are lost with probability loss^n
        lost = jnp.floor(jnp.log(jnp.maximum(drawn[4], 1e-6)) / jnp.log(jnp.maximum(loss, 1e-6)))
        return jnp.minimum(delay_s + period_s * (drawn[3] + lost), limit_s)


def scene_between(before: Scene, after: Scene, share: jax.Array) -> Scene:
    """Return the scenes at a share (E,) of the way from one to another, along straight lines, by the shorter turn."""

    def mixed(first: jax.Array, last: jax.Array) -> jax.Array:
        return first + share * (last - first)

    def turned(first: jax.Array, last: jax.Array) -> jax.Array:
        return first + share * wrap_angle(last - first)

    robots, bodies = after.robots, None
    if before.bodies is not None and after.bodies is not None:
        bodies = BodyState(
            mixed(before.bodies.position_world, after.bodies.position_world),
            turned(before.bodies.yaw, after.bodies.yaw),
        )
    motion = type(robots)(
        mixed(before.robots.position_world, robots.position_world),
        turned(before.robots.yaw, robots.yaw),
        mixed(before.robots.velocity, robots.velocity),
    )
    return replace(after, robots=motion, bodies=bodies)
