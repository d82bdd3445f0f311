"""Baselines of the shield: three published rules, each as in its paper.

All use positions and velocities of peers and the position of the control point (for wheeled robots a point ahead of the
axle, as in the papers), without models of lag, delay or message age. Arrays are (D, ...), peers (D, K, ...).
"""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp

from testudo_bench.shield_protocol.protocol_cell import OTHERS, Rule
from testudo_deploy.shield.geometry import project_onto_halfspaces
from testudo_deploy.shield.projection_margins import ProjectionParameters
from testudo_deploy.shield.sensed_bodies import SensedBodies
from testudo_deploy.shield.velocity_projection import Arena, PeerTable, ShieldResult, ShieldStatus, project_velocity
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import MotionModel, StoppingPoint
from testudo_hardware.motion.motion_model import actuator_command
from testudo_hardware.motion.motion_state import TINY, length, matrix_vector, shorten
from testudo_policies.planners.orca import AvoidanceScene, orca

_TOUCHED_M_S = 1e-4


@dataclass(frozen=True)
class BaselineScene(AvoidanceScene):
    """Inputs of one robot (...), with its goal."""

    goal_world: jax.Array  # (D, ...) [m]


BARRIER_RATE_PER_S = 10.0  # alpha of the barrier certificate
GAIN_PER_S = 1.5  # gain towards the target point of a Voronoi cell, equal to that of the protocol's go-to-goal commands


def buffered_voronoi(scene: BaselineScene) -> jax.Array:
    """Return the velocity that stays in the robot's buffered Voronoi cell for one period.

    The cell is the set of points closer to the robot than to any peer, shrunk by half the separation: Zhou, Wang,
    Bandyopadhyay and Schwager, Fast, on-line collision avoidance for dynamic vehicles using buffered Voronoi
    cells, RA-L 2017. The robot drives to the point of its cell that is nearest to its goal.
    """
    offset = scene.peer_position_world - scene.position_world[:, None]
    distance = length(offset)
    normal = offset / (distance + TINY)
    room = distance / 2 - scene.separation_m / 2
    displacement, _ = project_onto_halfspaces(scene.goal_world - scene.position_world, normal, room)
    return shorten(displacement * GAIN_PER_S, scene.speed_m_s)


def barrier_certificate(scene: BaselineScene, nominal_world: jax.Array) -> jax.Array:
    """Return the velocity of the textbook control barrier certificate for single integrators.

    h = |p_i - p_j|² - D² and dh/dt >= -alpha h, of which each robot takes half: Wang, Ames and Egerstedt, Safety
    barrier certificates for collisions-free multirobot systems, T-RO 2017, in its single-integrator form.
    """
    offset = scene.position_world[:, None] - scene.peer_position_world
    h = jnp.sum(offset**2, axis=0) - scene.separation_m**2
    # -2 offset . u <= alpha h / 2, scaled to a unit normal
    distance = length(offset) + TINY
    bounds = BARRIER_RATE_PER_S * h / (4 * distance)
    return shorten(
        project_onto_halfspaces(shorten(nominal_world, scene.speed_m_s), -offset / distance, bounds)[0], scene.speed_m_s
    )


@dataclass(frozen=True)
class OtherShield:
    """Replaces `Shield` by each world's rule of `OTHERS`, for a model without stopping points."""

    model: MotionModel
    parameters: ProjectionParameters
    arena: Arena
    goal_world: jax.Array | None = None  # (D, N, E) [m]; set when worlds exist
    rule: jax.Array | None = None  # (E,) int: place in `OTHERS`

    def layer1(
        self, stop: StoppingPoint, table: PeerTable, nominal_world: jax.Array, bodies: SensedBodies | None = None
    ) -> ShieldResult:
        """Return the velocity of the world's rule for a nominal velocity; see `Shield.layer1`.

        Raises:
            TestudoError: there are `bodies`, which these rules do not avoid.
        """
        if bodies is not None:
            raise TestudoError("baselines of the shield: found bodies that robots sense, expected worlds without them")
        spec = self.model.spec
        scene = BaselineScene(
            stop.position_world,
            matrix_vector(stop.jacobian, stop.deceleration),
            table.control_point_world,
            table.control_velocity_world,
            self.parameters.separation_m,
            spec.control_point_speed_m_s,
            spec.control_period_s,
            self.goal_world,
        )
        plain = project_velocity(self.model, _textbook(self.parameters), self.arena, stop, table, nominal_world)
        velocities = {
            Rule.PLAIN: plain.control_velocity_world,
            Rule.NONE: nominal_world,
            Rule.ORCA: orca(scene, nominal_world),
            Rule.VORONOI: buffered_voronoi(scene),
            Rule.CERTIFICATE: barrier_certificate(scene, nominal_world),
        }
        velocity = nominal_world
        for place, rule in enumerate(OTHERS):
            velocity = jnp.where(self.rule == place, velocities[rule], velocity)
        change = length(velocity - nominal_world)
        return ShieldResult(
            actuator_command(self.model, stop, velocity),
            velocity,
            change,
            jnp.where(change > _TOUCHED_M_S, int(ShieldStatus.PROJECTED), int(ShieldStatus.PASSED)),
        )


def _textbook(parameters: ProjectionParameters) -> ProjectionParameters:
    """Return the margins without those for lag and model, which belong to the stopping point."""
    margin_m = sum(term.value_m for term in parameters.terms if term.name not in ("lag", "model"))
    return replace(parameters, separation_m=margin_m)
