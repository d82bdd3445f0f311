"""Optimal reciprocal collision avoidance (ORCA), and a team that it keeps apart in place of the shield."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from testudo_deploy.shield.arena import obstacle_rows, wall_rows
from testudo_deploy.shield.geometry import project_onto_halfspaces
from testudo_deploy.shield.sensed_bodies import SensedBodies
from testudo_deploy.shield.velocity_projection import PeerTable, ShieldResult
from testudo_hardware.motion import StoppingPoint
from testudo_hardware.motion.motion_state import TINY, length, matrix_vector, shorten
from testudo_sim.environment import Environment

HORIZON_S = 2.0  # time horizon of ORCA
_FAR_M = 1e3  # where an empty slot's peer is


@dataclass(frozen=True)
class AvoidanceScene:
    """Inputs of one robot (...); all robots have the same size."""

    position_world: jax.Array  # (D, ...) [m]
    velocity_world: jax.Array  # (D, ...) [m/s]
    peer_position_world: jax.Array  # (D, K, ...) [m]
    peer_velocity_world: jax.Array  # (D, K, ...) [m/s]
    separation_m: float  # required distance of two centres
    speed_m_s: float
    period_s: float

    @classmethod
    def seen(
        cls, stop: StoppingPoint, table: PeerTable, separation_m: float, speed_m_s: float, period_s: float
    ) -> "AvoidanceScene":
        """Return what a robot with this stopping point knows of its peers; all that their messages say is believed."""
        return cls(
            stop.position_world,
            matrix_vector(stop.jacobian, stop.deceleration),
            jnp.where(table.valid, table.control_point_world, _FAR_M),
            jnp.where(table.valid, table.control_velocity_world, 0.0),
            separation_m,
            speed_m_s,
            period_s,
        )


def orca(
    scene: AvoidanceScene, nominal_world: jax.Array, static: tuple[jax.Array, jax.Array] | None = None
) -> jax.Array:
    """Return the velocity of optimal reciprocal collision avoidance.

    Each robot makes half of the smallest change of the relative velocity that leaves the velocity obstacle of the
    horizon: van den Berg, Guy, Lin and Manocha, Reciprocal n-body collision avoidance, ISRR 2011, in 2-D and 3-D. If no
    velocity satisfies all half-spaces, the robot stops. ``static`` are normals (D, R, ...) and bounds (R, ...) of
    half-spaces for what does not move, of which a robot does all: n . v <= bound.
    """
    offset = scene.peer_position_world - scene.position_world[:, None]
    relative = scene.velocity_world[:, None] - scene.peer_velocity_world
    # smallest change (D, K, ...) of the relative velocity to the obstacle's boundary, and its normal. The obstacle is
    # a cone about the offset, truncated by the ball of radius separation / time about offset / time
    distance, radius = length(offset), scene.separation_m
    overlaps = distance <= radius
    time_s = jnp.where(overlaps, scene.period_s, HORIZON_S)
    from_ball = relative - offset / time_s
    along = jnp.sum(from_ball * offset, axis=0)
    ball = (along < 0) & (along**2 > radius**2 * length(from_ball) ** 2) | overlaps
    ball_outward = from_ball / (length(from_ball) + TINY)
    ball_change = (radius / time_s - length(from_ball)) * ball_outward
    # the leg: the line from the origin at the half-angle of the cone, in the plane of offset and relative velocity
    axis = offset / (distance + TINY)
    forward = jnp.sum(relative * axis, axis=0)
    sideways = relative - forward * axis
    # exactly head-on both sides are equal: all robots choose their right
    right = jnp.stack([axis[1], -axis[0], *(0 * axis[d] for d in range(2, axis.shape[0]))])
    side = jnp.where(length(sideways) > 1e-6, sideways / (length(sideways) + TINY), right)
    sine = jnp.clip(radius / (distance + TINY), 0.0, 1.0)
    cosine = jnp.sqrt(1 - sine**2)
    leg = cosine * axis + sine * side
    leg_outward = cosine * side - sine * axis
    leg_change = jnp.sum(relative * leg, axis=0) * leg - relative
    change, outward = jnp.where(ball, ball_change, leg_change), jnp.where(ball, ball_outward, leg_outward)
    # outward . (v - (own + change / 2)) >= 0
    bounds = -jnp.sum(outward * (scene.velocity_world[:, None] + change / 2), axis=0)
    normals = -outward
    if static is not None:
        normals = jnp.concatenate([normals, static[0]], axis=1)
        bounds = jnp.concatenate([bounds, static[1]])
    return shorten(
        project_onto_halfspaces(shorten(nominal_world, scene.speed_m_s), normals, bounds)[0], scene.speed_m_s
    )


@dataclass(frozen=True)
class OrcaEnvironment(Environment):
    """A team without the shield, whose velocities ORCA changes at every control tick."""

    @classmethod
    def of(cls, environment: Environment) -> "OrcaEnvironment":
        """Return the team of an environment with ORCA in place of the shield; it takes velocities only."""
        team = replace(environment.team, shielded=False, tracking=None, yaw_rate_limit=0.0, message_size=0)
        return cls(environment.scenario, team, environment.spread, failures=environment.failures)

    def tick(
        self,
        state: Any,
        nominal_world: jax.Array,
        key: jax.Array,
        standing: jax.Array | None = None,
        bodies: SensedBodies | None = None,
    ) -> tuple[Any, ShieldResult]:
        """See `Environment.tick`; ORCA does not know what ranges see."""
        team, spec = self.team, self.team.model.spec
        stop = team.model.stopping_point(state.estimate)
        separation_m, speed_m_s = team.shield.separation_m, spec.control_point_speed_m_s
        scene = AvoidanceScene.seen(stop, state.table, separation_m, speed_m_s, spec.control_period_s)
        return super().tick(state, orca(scene, nominal_world, self._static(stop)), key, standing)

    def _static(self, stop: StoppingPoint) -> tuple[jax.Array, jax.Array] | None:
        """Return half-spaces for walls and obstacles: in the horizon a robot drives at most up to the shield's margin.

        They are those of the shield, with ORCA's horizon in place of the shield's hold.
        """
        shield, arena = self.team.shield, self.team.arena
        found = [rows for rows in (wall_rows(shield, arena, stop), obstacle_rows(shield, arena, stop)) if rows]
        if not found:
            return None
        scale = shield.reach_s / (shield.gap_share * HORIZON_S)
        normals = jnp.concatenate([normal for normal, _ in found], axis=1)
        return normals, scale * jnp.concatenate([bound for _, bound in found])
