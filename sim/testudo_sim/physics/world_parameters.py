"""Parameters that differ between worlds: dynamics, sensing and communication, drawn from a robot's intervals."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp

from testudo_deploy.control.state_prediction import pending_time_s
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import LagResponse
from testudo_hardware.motion.battery import minimum_charge
from testudo_hardware.spec import Quantity, RobotSpec
from testudo_sim import devices  # noqa: F401  (registers the pytrees)

_CONTACT_STREAM, _SLIP_STREAM, _DRONE_STREAM, _CHARGE_STREAM, _BIAS_STREAM, _ROBOT_STREAM = 1, 2, 3, 4, 5, 100
"""Separate random streams, so that the other draws of a seed do not change."""


def uncertain(spec: RobotSpec) -> dict[str, Quantity]:
    """Return the quantities of `[attitude]`, `[rotors]` and `[propellers]` that have an interval, in a fixed order."""
    tables = {**spec.attitude, **spec.rotors, **spec.propellers}
    return {key: quantity for key, quantity in sorted(tables.items()) if quantity.high > quantity.low}


def draw_drones(keys: jax.Array, spec: RobotSpec, spread: float) -> dict[str, jax.Array] | None:
    """Return one draw (E,) of each uncertain quantity for each key (E,), from ``spread`` times its interval.

    None for a robot without such tables.
    """
    found = uncertain(spec)
    if not found:
        return None
    units = _units(keys, _DRONE_STREAM, len(found))
    return {
        key: quantity.value + spread * (quantity.low - quantity.value + unit * (quantity.high - quantity.low))
        for unit, (key, quantity) in zip(units, found.items(), strict=True)
    }


def draw_charges(keys: jax.Array, spec: RobotSpec, size: int, spread: float) -> jax.Array:
    """Return the initial charge (N, E) of the batteries of ``size`` drones for each key (E,).

    From full down to just above the charge at which a drone in hover has to land, times ``spread``.

    Raises:
        TestudoError: the robot file has no `[power]`, or one of another kind of battery.
    """
    return 1 - spread * (1 - minimum_charge(spec)) * _units(keys, _CHARGE_STREAM, size)


def _units(keys: jax.Array, stream: int, count: int) -> jax.Array:
    """Return random numbers (count, E) in 0 to 1 of a separate stream of each key (E,)."""
    return jax.vmap(lambda key: jax.random.uniform(jax.random.fold_in(key, stream), (count,)))(keys).T


@dataclass(frozen=True)
class Channels:
    """Delays, losses and noise of poses and messages: the ranges from which each world draws."""

    pose_age_s: tuple[float, float] = (0.02, 0.06)  # age of the pose at a tick
    message_ticks: tuple[int, int] = (1, 2)  # ticks that a peer's message takes
    message_loss: tuple[float, float] = (0.0, 0.1)  # probability that a message is lost
    noise_share: float = 1.0  # pose noise as a share of the robot's (its error bound is three sigma)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class WorldParameters:
    """One draw for each world E, which its robots share; from `draw_robot_parameters` one for each robot.

    Then (E,) of response, delay, scale, pose age, lag and slip are (N, E).
    """

    response: LagResponse  # (E,): response of the true velocity to commands in one tick
    delay_weights: jax.Array  # (H, E): share of each past command, newest first, that acts in a tick
    scale: jax.Array  # (D, E): realised over effective velocity, which contains the scale of the robot file
    age_weights: jax.Array  # (M, E): share of each past state, newest first, in the measured one
    pending: LagResponse  # (H, E): the model of the robot for commands that do not act yet
    velocity_lag_s: jax.Array  # (E,)
    friction_scale: jax.Array  # (E,): friction on the floor over that of the robot file (MuJoCo tiers)
    mass_scale: jax.Array  # (E,): masses over those of the robot file (MuJoCo tiers)
    grip: jax.Array  # (E,): friction of the wheels on the floor (planar form of the MuJoCo tiers)
    message_ticks: jax.Array  # (E,) int
    message_loss: jax.Array  # (E,) probability
    brake_share: jax.Array | None = None
    """(E,) deceleration over the identified one (kinematic tier); None is as identified."""
    turn_slip: jax.Array | None = None
    """(2, E) [s/rad]: turn slip of the robot file and of the world, for effective turn rates; None without slip."""
    drone: dict[str, jax.Array] | None = None
    """(E,) of each uncertain quantity of `[attitude]`, `[rotors]` and `[propellers]`, by `table.key`; None without."""
    pose_bias: jax.Array | None = None
    """(D + 1, N, E): constant error of position and yaw as shares of the error bounds; noise has the rest. None: 0."""
    charge: jax.Array | None = None
    """(N, E): of the batteries at the start, 0 to 1; None where there are none, or all are full."""
    residual_share: jax.Array | None = None
    """(E,): share of the residual motion of the robot file (`team.residual_motion`); None is all of it."""


@dataclass(frozen=True)
class Slots:
    """Lengths of the histories in ticks, no longer than a robot and its channels need."""

    commands: int
    states: int
    messages: int

    @classmethod
    def create(cls, spec: RobotSpec, channels: Channels) -> "Slots":
        """Return the lengths that cover the longest delay, pose age and message time."""
        period, age_s = spec.control_period_s, channels.pose_age_s[1]
        delay_s = spec.quantities["dynamics.command_delay"].high
        pending = math.ceil((age_s + spec.command_delay_s) / period)
        acting = math.ceil(delay_s / period) + 1
        return cls(max(pending, acting), math.ceil(age_s / period) + 1, channels.message_ticks[1])


def draw_parameters(
    keys: jax.Array, spec: RobotSpec, channels: Channels, spread: float = 1.0, batteries: int = 0
) -> WorldParameters:
    """Draw the parameters of one world for each key (E,), from ``spread`` times the intervals of the robot file.

    ``batteries`` is the number of drones in a world whose charge is drawn, see `draw_charges`.

    Raises:
        TestudoError: a range of the channels is out of order, or poses are older than the robot accepts.
    """
    low, high = channels.pose_age_s
    if not 0 <= low <= high <= spec.pose_max_age_s:
        raise TestudoError(
            f"channels: pose_age_s: found {channels.pose_age_s}, expected a range within 0 "
            f"and sensing.pose_max_age of {spec.name} ({spec.pose_max_age_s:g} s)"
        )
    first, last = channels.message_ticks
    if not 1 <= first <= last:
        raise TestudoError(f"channels: message_ticks: found {channels.message_ticks}, expected a range from 1 on")
    units = iter(jax.vmap(lambda key: jax.random.uniform(key, (8,)))(keys).T)
    lag = _draw(next(units), spec, "dynamics.velocity_lag", spread)
    delay = _draw(next(units), spec, "dynamics.command_delay", spread)
    scales = [_over_described(next(units), spec, "dynamics.speed_scale", spread)] * spec.dimension
    turn = next(units)
    if "dynamics.turn_scale" in spec.quantities:
        scales[1] = _over_described(turn, spec, "dynamics.turn_scale", spread)
    age = _between(next(units), channels.pose_age_s)
    first, last = channels.message_ticks
    message_ticks = first + jnp.floor(next(units) * (last - first + 1)).astype(jnp.int32)
    friction, mass = _draw_contact(keys, spec, spread)
    period, slots = spec.control_period_s, Slots.create(spec, channels)
    return WorldParameters(
        LagResponse.create(jnp.full(lag.shape, period), lag),
        interpolation(delay / period, slots.commands),
        jnp.stack(scales),
        interpolation(age / period, slots.states),
        LagResponse.create(pending_time_s(spec, age, slots.commands), jnp.float32(spec.velocity_lag_s)),
        lag,
        friction,
        mass,
        friction * (spec.wheel_friction if "contact.wheel_friction" in spec.quantities else 1.0),
        message_ticks,
        _between(next(units), channels.message_loss),
        turn_slip=_draw_slip(keys, spec, spread),
        drone=draw_drones(keys, spec, spread),
        charge=draw_charges(keys, spec, batteries, spread) if batteries else None,
        residual_share=jnp.broadcast_to(jnp.float32(spread), lag.shape) if spec.motion_noise else None,
    )


def draw_robot_parameters(keys: jax.Array, spec: RobotSpec, channels: Channels, size: int) -> WorldParameters:
    """Draw for each key (E,) a world in which each of ``size`` robots has its own parameters and a constant pose bias.

    Contact, messages and the uncertain quantities of drones remain those of the world.
    """
    robots = [
        draw_parameters(jax.vmap(lambda key, i=i: jax.random.fold_in(key, i))(keys), spec, channels)
        for i in range(_ROBOT_STREAM, _ROBOT_STREAM + size)
    ]
    units = _units(keys, _BIAS_STREAM, size * (spec.dimension + 2)).reshape(spec.dimension + 2, size, -1)
    direction = 2 * units[: spec.dimension] - 1
    direction = direction / jnp.maximum(jnp.sqrt(jnp.sum(direction**2, axis=0)), 1e-6)
    bias = jnp.concatenate([direction * units[-2], 2 * units[-1:] - 1])
    return replace(of_robots(robots), pose_bias=bias)


def of_robots(robots: Sequence[WorldParameters]) -> WorldParameters:
    """Return the parameters of worlds (E,) whose robots differ, from one draw for each; the rest is the first one's."""
    each = jax.tree.map(lambda *parts: jnp.stack(parts, axis=-2), *robots)
    return replace(
        robots[0],  # contact and messages are those of the world
        response=each.response,
        delay_weights=each.delay_weights,
        scale=each.scale,
        age_weights=each.age_weights,
        pending=each.pending,
        velocity_lag_s=each.velocity_lag_s,
        turn_slip=each.turn_slip,
    )


def _over_described(unit: jax.Array, spec: RobotSpec, name: str, spread: float) -> jax.Array:
    """Return a drawn scale over that of the robot file, which the effective command contains."""
    return _draw(unit, spec, name, spread) / spec.quantities[name].value


def _draw_slip(keys: jax.Array, spec: RobotSpec, spread: float) -> jax.Array | None:
    """Return the turn slip of the robot file and a drawn one (2, E) [s/rad], for effective turn rates."""
    if "dynamics.turn_slip" not in spec.quantities:
        return None
    unit = jax.vmap(lambda key: jax.random.uniform(jax.random.fold_in(key, _SLIP_STREAM)))(keys)
    drawn = _draw(unit, spec, "dynamics.turn_slip", spread)
    return jnp.stack([jnp.full_like(drawn, spec.turn_slip_s_rad), drawn]) / spec.turn_scale


def _draw_contact(keys: jax.Array, spec: RobotSpec, spread: float) -> tuple[jax.Array, jax.Array]:
    """Return the scale of friction and of mass (E,)."""
    friction, mass = _units(keys, _CONTACT_STREAM, 2)
    return (
        _draw_scale(friction, spec, "contact.wheel_friction", spread),
        _draw_scale(mass, spec, "geometry.mass", spread),
    )


def _draw_scale(unit: jax.Array, spec: RobotSpec, name: str, spread: float) -> jax.Array:
    """Return a drawn value over that of the robot file; 1 for a quantity that the robot does not have."""
    quantity = spec.quantities.get(name)
    if quantity is None:
        return jnp.ones_like(unit)
    low, width = quantity.low - quantity.value, quantity.high - quantity.low
    return 1 + spread * (low + unit * width) / quantity.value


def _draw(unit: jax.Array, spec: RobotSpec, name: str, spread: float) -> jax.Array:
    quantity = spec.quantities[name]
    low = quantity.value + spread * (quantity.low - quantity.value)
    return low + unit * spread * (quantity.high - quantity.low)


def _between(unit: jax.Array, interval: tuple[float, float]) -> jax.Array:
    return interval[0] + unit * (interval[1] - interval[0])


def interpolation(ticks: jax.Array, slots: int) -> jax.Array:
    """Return weights (slots, E) that read a history at a fractional number of ticks ago."""
    distance = jnp.abs(jnp.arange(slots, dtype=jnp.float32)[:, None] - jnp.minimum(ticks, slots - 1.0))
    return jnp.maximum(1 - distance, 0)


def weighted(weights: jax.Array, history: jax.Array) -> jax.Array:
    """Return the sum of a history (H, ..., E) with weights (H, E)."""
    return jnp.asarray(sum(weights[h] * history[h] for h in range(history.shape[0])))
