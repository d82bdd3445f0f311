"""What differs between worlds: dynamics, sensing and communication, drawn from a robot's intervals."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from testudo_deploy.estimate import pending_time_s
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import LagResponse
from testudo_hardware.spec import RobotSpec
from testudo_sim import pytrees  # noqa: F401  (registers the types)


@dataclass(frozen=True)
class Channels:
    """How poses and messages travel; the ranges from which each world draws."""

    pose_age_s: tuple[float, float] = (0.02, 0.06)
    """Age of the pose at a tick."""
    message_ticks: tuple[int, int] = (1, 2)
    """Ticks that a peer's message takes."""
    message_loss: tuple[float, float] = (0.0, 0.1)
    """Probability that a message is lost."""
    noise_share: float = 1.0
    """Pose noise as a share of the robot's (its error bound is three sigma)."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class WorldParameters:
    """One draw for each world E; robots of one world share it."""

    response: LagResponse
    """(E,): how the true velocity follows commands in one tick."""
    delay_weights: jax.Array
    """(H, E): share of each past command, newest first, that acts in a tick."""
    scale: jax.Array
    """(D, E): realised over commanded velocity."""
    age_weights: jax.Array
    """(M, E): share of each past state, newest first, in the measured one."""
    pending: LagResponse
    """(H, E): the robot's own model of the commands that have yet to act."""
    message_ticks: jax.Array
    """(E,) int."""
    message_loss: jax.Array
    """(E,) probability."""


COMMAND_SLOTS = 5
STATE_SLOTS = 4
MESSAGE_SLOTS = 3


def draw_parameters(keys: jax.Array, spec: RobotSpec, channels: Channels, spread: float = 1.0
                    ) -> WorldParameters:
    """Draw the parameters of one world for each key (E,); ``spread`` scales the intervals (0: nominal).

    Raises:
        TestudoError: a delay or age is longer than the history that the simulation keeps.
    """
    _check_histories(spec, channels)
    units = iter(jax.vmap(lambda key: jax.random.uniform(key, (8,)))(keys).T)
    lag = _draw(next(units), spec, "dynamics.velocity_lag", spread)
    delay = _draw(next(units), spec, "dynamics.command_delay", spread)
    scales = [_draw(next(units), spec, "dynamics.speed_scale", spread)] * spec.dimension
    turn = next(units)
    if "dynamics.turn_scale" in spec.quantities:
        scales[1] = _draw(turn, spec, "dynamics.turn_scale", spread)
    age = _between(next(units), channels.pose_age_s)
    first, last = channels.message_ticks
    message_ticks = first + jnp.floor(next(units) * (last - first + 1)).astype(jnp.int32)
    period = spec.control_period_s
    return WorldParameters(
        LagResponse.create(jnp.full(lag.shape, period), lag),
        _interpolation(delay / period, COMMAND_SLOTS), jnp.stack(scales),
        _interpolation(age / period, STATE_SLOTS),
        LagResponse.create(pending_time_s(spec, age, COMMAND_SLOTS), jnp.float32(spec.velocity_lag_s)),
        message_ticks, _between(next(units), channels.message_loss))


def _check_histories(spec: RobotSpec, channels: Channels) -> None:
    period, age = spec.control_period_s, max(channels.pose_age_s)
    longest = spec.quantities["dynamics.command_delay"].high
    for what, time_s, most in (
            ("dynamics.command_delay", longest, COMMAND_SLOTS - 1),
            ("pose age", age, STATE_SLOTS - 1),
            ("pose age plus dynamics.command_delay", age + spec.command_delay_s, COMMAND_SLOTS)):
        if time_s > (most + 1e-6) * period:
            raise TestudoError(f"{spec.name}: {what}: found {time_s:g} s, expected at most {most} times "
                               f"timing.control_period ({period:g} s), which is what the simulation keeps")
    first, last = channels.message_ticks
    if not 1 <= first <= last <= MESSAGE_SLOTS:
        raise TestudoError(f"channels: message_ticks: found {channels.message_ticks}, "
                           f"expected a range within 1 to {MESSAGE_SLOTS}")


def _draw(unit: jax.Array, spec: RobotSpec, name: str, spread: float) -> jax.Array:
    quantity = spec.quantities[name]
    low = quantity.value + spread * (quantity.low - quantity.value)
    return low + unit * spread * (quantity.high - quantity.low)


def _between(unit: jax.Array, interval: tuple[float, float]) -> jax.Array:
    return interval[0] + unit * (interval[1] - interval[0])


def _interpolation(ticks: jax.Array, slots: int) -> jax.Array:
    """Return weights (slots, E) that read a history at a fractional number of ticks ago."""
    distance = jnp.abs(jnp.arange(slots, dtype=jnp.float32)[:, None] - jnp.minimum(ticks, slots - 1.0))
    return jnp.maximum(1 - distance, 0)
