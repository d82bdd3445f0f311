"""The hand-written velocities of a scenario as commands, in the form in which a policy gives them."""

import jax
import jax.numpy as jnp

from testudo_sim.environment import Environment, WorldState
from testudo_sim.team.team_tick import no_message

HAND_WRITTEN = "hand-written"
"""Name of these commands where a policy is asked for: in figures, and as the teacher of a training run."""


def hand_written(environment: Environment, state: WorldState) -> jax.Array:
    """Return the hand-written commands (B, C) of all robots, as a policy does; see `Scenario.nominal_world`."""
    velocity = environment.scenario.nominal_world(state.task, environment.scene(state))
    if environment.team.yaw_rate_limit:  # it keeps its heading
        velocity = jnp.concatenate([velocity, 0 * velocity[:1]])
    if environment.team.tracking is not None:  # the way-point from which the law makes that velocity
        stop = environment.team.model.stopping_point(environment.scene(state).robots)
        velocity = environment.team.tracking.waypoint_world(velocity, stop.position_world)
    silent = no_message(environment.team, velocity)
    if silent is not None:
        velocity = jnp.concatenate([velocity, silent])
    return jnp.transpose(velocity, (2, 1, 0)).reshape(-1, velocity.shape[0])
