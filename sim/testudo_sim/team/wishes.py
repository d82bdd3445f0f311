"""What the policies of a team ask for, apart: velocities, yaw rates and messages; and robots that hold."""

import jax
import jax.numpy as jnp

from testudo_hardware.motion import StoppingPoint
from testudo_sim.team.team_tick import SimulatedTeam, split_command, split_message


def wishes(
    team: SimulatedTeam, stop: StoppingPoint, commands: jax.Array, holds: jax.Array | None
) -> tuple[jax.Array, jax.Array | None, jax.Array | None]:
    """Return velocities (D, N, E) [m/s], yaw rates (N, E) [rad/s] and messages of commands; of who holds, zeros."""
    velocity_world, said = split_message(team, commands)
    velocity_world, yaw_rate = split_command(team, velocity_world, stop)
    if holds is not None:
        velocity_world = jnp.where(holds, 0.0, velocity_world)
        yaw_rate = None if yaw_rate is None else jnp.where(holds, 0.0, yaw_rate)
    return velocity_world, yaw_rate, said
