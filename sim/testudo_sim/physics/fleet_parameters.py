"""Parameters of worlds whose robots each have a robot file of their own, beside the one that they believe."""

import math
from collections.abc import Sequence
from dataclasses import replace

import jax
import jax.numpy as jnp

from testudo_deploy.control.state_prediction import pending_time_s
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import LagResponse
from testudo_hardware.spec import RobotSpec
from testudo_sim.physics.world_parameters import Channels, Slots, WorldParameters, draw_parameters, of_robots

_ROBOT_STREAM = 200  # separate random stream of each robot
_DELAY = "dynamics.command_delay"


def with_longest_delay(described: RobotSpec, specs: Sequence[RobotSpec]) -> RobotSpec:
    """Return the described robot with an interval of the delay that holds those of all ``specs``.

    Histories of commands then suffice for every robot. Only for the simulated motion: the shield keeps its own file.
    """
    every = [spec.quantities[_DELAY] for spec in (described, *specs)]
    widest = replace(
        described.quantities[_DELAY], low=min(one.low for one in every), high=max(one.high for one in every)
    )
    return replace(described, quantities={**described.quantities, _DELAY: widest})


def draw_fleet_parameters(
    keys: jax.Array,
    described: RobotSpec,
    specs: Sequence[RobotSpec],
    channels: Channels,
    spread: float = 1.0,
    delays: Sequence[RobotSpec] = (),
) -> WorldParameters:
    """Draw for each key (E,) a world in which robot k has parameters from the intervals of ``specs[k]``.

    ``described`` is what the software of all robots believes: commands are compensated and states predicted by it, so
    that scales are relative to its own. ``spread`` is the share of the intervals: 0 gives the values of the files.
    Histories of commands are long enough for ``delays``, too. For the kinematic tier: no rotors are drawn.

    Raises:
        TestudoError: a robot file of another kind or control period.
    """
    for spec in specs:
        if (spec.kind, spec.control_period_s) != (described.kind, described.control_period_s):
            raise TestudoError(
                f"robot file of {spec.name}: found {spec.kind} with a control period of {spec.control_period_s:g} s, "
                f"expected {described.kind} with {described.control_period_s:g} s, as the policy is for"
            )
    slots = Slots.create(with_longest_delay(described, (*specs, *delays)), channels)
    robots = [_of_robot(_own_keys(keys, k), described, spec, channels, slots, spread) for k, spec in enumerate(specs)]
    share = jnp.full(keys.shape[0], spread, jnp.float32)  # also where the first robot has no residual motion
    return replace(of_robots(robots), drone=None, residual_share=share)


def _own_keys(keys: jax.Array, robot: int) -> jax.Array:
    return jax.vmap(lambda key: jax.random.fold_in(key, _ROBOT_STREAM + robot))(keys)


def _of_robot(
    keys: jax.Array, described: RobotSpec, spec: RobotSpec, channels: Channels, slots: Slots, spread: float
) -> WorldParameters:
    """Return draws (E,) of one robot, relative to what its software believes, with histories of ``slots``."""
    drawn = draw_parameters(keys, spec, channels, spread)
    scale = drawn.scale * spec.speed_scale / described.speed_scale
    slip = None
    if math.isfinite(described.turn_scale):
        scale = scale.at[1].set(drawn.scale[1] * spec.turn_scale / described.turn_scale)
        own = jnp.zeros_like(scale[0]) if drawn.turn_slip is None else drawn.turn_slip[1] * spec.turn_scale
        believed = jnp.full_like(own, described.turn_slip_s_rad)
        slip = jnp.stack([believed, own]) / described.turn_scale
    period = described.control_period_s
    ages = jnp.arange(drawn.age_weights.shape[0])[:, None]
    age_s = period * jnp.sum(ages * drawn.age_weights, axis=0)
    pending_s = pending_time_s(described, age_s, slots.commands)
    pending = LagResponse.create(pending_s, jnp.float32(described.velocity_lag_s))
    missing = slots.commands - drawn.delay_weights.shape[0]
    return replace(
        drawn,
        scale=scale,
        delay_weights=jnp.pad(drawn.delay_weights, [(0, missing), (0, 0)]),
        pending=pending,
        turn_slip=slip,
        residual_share=None,
    )
