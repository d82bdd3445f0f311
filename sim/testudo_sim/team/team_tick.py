"""One control tick of a team in many worlds: measure, shield, send messages, move.

Estimate, peer table and shield are those of the robots.
Arrays are (component, robot, world); neighbour slot k of robot i is robot i + 1 + k (modulo N). In a crowd the slots
hold the nearest peers, see `crowd_links`.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from testudo_deploy.contract.waypoint_tracking import WaypointTracking
from testudo_deploy.control.state_prediction import predict_state
from testudo_deploy.shield.projection_margins import ProjectionParameters
from testudo_deploy.shield.reservations import ReservedSpace
from testudo_deploy.shield.sensed_bodies import SensedBodies
from testudo_deploy.shield.velocity_projection import (
    Arena,
    PeerTable,
    ShieldResult,
    ShieldStatus,
    project_velocity,
    update_peer_table,
)
from testudo_hardware.arrays import stacked
from testudo_hardware.motion import LagResponse, MotionModel, MotionState, StoppingPoint
from testudo_hardware.motion.motion_model import actuator_command, control_velocity, effective_command
from testudo_hardware.motion.motion_noise import MotionNoise
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_sim import devices  # noqa: F401  (registers the pytrees)
from testudo_sim.physics.scene import BodyState, Physics
from testudo_sim.physics.world_parameters import Channels, Slots, WorldParameters, weighted
from testudo_sim.team.crowd_links import CrowdLinks, find_links, heard_in_crowd, of_peers
from testudo_sim.team.message_radio import by_slot
from testudo_sim.team.residual_motion import displaced

_REQUEST_TICKS = 3
_VELOCITY_STREAM = 1  # separate random stream, so that the other draws of a seed do not change


def motion_history(model: MotionModel, motion: MotionState, count: int) -> MotionState:
    """Return the present and past states (M, D, N, E) of a motion at constant velocity, newest first."""
    spec = model.spec
    tick = LagResponse.create(jnp.full(motion.yaw.shape, spec.control_period_s), jnp.float32(spec.velocity_lag_s))
    states, back = [motion], replace(motion, velocity=-motion.velocity)  # the same arc backwards
    for _ in range(1, count):
        back = model.step(back, back.velocity, tick)
        states.append(replace(back, velocity=motion.velocity))
    return jax.tree.map(lambda *parts: jnp.stack(parts), *states)


def delayed_measurements(past: MotionState, parameters: WorldParameters) -> MotionState:
    """Return the poses (D, N, E) with the sensor age of each world, without noise, from ``past`` (M, D, N, E)."""
    return jax.tree.map(lambda x: weighted(parameters.age_weights, x), past)


def held_velocity(model: MotionModel, stop: StoppingPoint, motion: MotionState) -> jax.Array:
    """Return the velocity of the control point (D, N, E) [m/s] at constant robot velocity."""
    scale = jnp.asarray(model.scale, motion.velocity.dtype).reshape(-1, 1, 1)
    return control_velocity(model, stop, motion.velocity / scale)


def stopping_segment(model: MotionModel, seen: MotionState, motion: MotionState) -> ReservedSpace:
    """Return the reserved space of moving robots, from the measured position to the rest position after a late brake.

    Braking starts after the hold time and the ticks of a request for more space; a shorter segment would make the
    robots brake immediately.
    """
    here, spec = seen.position_world, model.spec
    number = 0 * here[0, ...]
    soon_s = spec.hold_s + _REQUEST_TICKS * spec.control_period_s
    ahead = model.step(
        motion,
        motion.velocity,
        LagResponse.create(jnp.full(motion.yaw.shape, soon_s), jnp.float32(spec.velocity_lag_s)),
    )
    segment = stacked(here, model.rest_position(ahead))
    return ReservedSpace(segment, segment, number > 0, number)


@dataclass(frozen=True)
class SimulatedTeam:
    """Constants of a team of one kind of robot."""

    model: MotionModel
    shield: ProjectionParameters
    arena: Arena | None
    physics: Physics
    size: int
    channels: Channels = Channels()  # noqa: RUF009 -- frozen
    shielded: bool = True  # False is the negative control without a shield
    yaw_rate_limit: float = 0.0
    """Yaw rate limit [rad/s] of drones whose commands end with a yaw rate; 0 without yaw rates."""
    tracking: WaypointTracking | None = None  # of commands that are way-points; None for velocities
    message_size: int = 0  # last numbers of a command that are a learned message to the peers
    noise: MotionNoise | None = None  # residual motion of the kinematic tier, of all robots or with arrays (N, 1)

    @property
    def batteries(self) -> int:
        """Return the number of simulated batteries per world."""
        return self.size if getattr(self.physics, "battery", False) else 0


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TeamState:
    """State of all worlds."""

    physics: Any
    sent: jax.Array  # (H, D, N, E): effective commands, newest first
    past: MotionState  # (M, D, N, E): true states, newest first, for delayed sensors
    announced: jax.Array
    """(L, 2D + M, N, E): control points, velocities and learned messages sent to the peers, newest first."""
    table: PeerTable  # (D, K, N, E); K is N - 1, or the slots of a crowd
    estimate: MotionState  # (D, N, E): delay-compensated estimate of each robot; the heading is not compensated
    parameters: WorldParameters
    turns: jax.Array | None = None  # (H, N, E) [rad/s]: yaw rates sent, newest first; None where none is commanded
    links: CrowdLinks | None = None  # who is in the slots of the table; None: everybody, in the order of robots
    residual: jax.Array | None = None  # (C, N, E): process of the residual motion; None without

    @property
    def announcement(self) -> jax.Array:
        """Return the newest announcement (2D + M, N, E) of each robot: control point, velocity, learned message."""
        return self.announced[0]


class InitialMotion(NamedTuple):
    """Motion, measurements and commands that precede a simulated start."""

    physics: Any
    sent: jax.Array  # (H, D, N, E): effective commands, newest first
    past: MotionState  # (M, D, N, E): true states, newest first
    measured: MotionState
    estimate: MotionState
    stop: StoppingPoint
    control: jax.Array  # (D, N, E) [m/s]: velocities of the control points


def initial_motion(
    team: SimulatedTeam,
    position_world: jax.Array,
    yaw: jax.Array,
    parameters: WorldParameters,
    bodies: BodyState | None,
    velocity: jax.Array | None,
) -> InitialMotion:
    """Return the motion of robots that begin at rest, or at velocities (D, N, E)."""
    model, slots = team.model, Slots.create(team.model.spec, team.channels)
    physics = team.physics.reset(position_world, yaw, bodies, velocity)
    motion = team.physics.scene(physics).robots
    held = jnp.zeros_like(position_world) if velocity is None else motion.velocity
    sent = jnp.broadcast_to(held, (slots.commands, *held.shape))
    if velocity is None:
        past = jax.tree.map(lambda x: jnp.broadcast_to(x, (slots.states, *x.shape)), motion)
        return InitialMotion(physics, sent, past, motion, motion, model.stopping_point(motion), held)
    past = motion_history(model, motion, slots.states)
    measured = delayed_measurements(past, parameters)
    estimate = predict_state(model, measured, sent, per_robot(parameters.pending))
    stop = model.stopping_point(estimate)
    return InitialMotion(physics, sent, past, measured, estimate, stop, held_velocity(model, stop, estimate))


def start(
    team: SimulatedTeam,
    position_world: jax.Array,
    yaw: jax.Array,
    parameters: WorldParameters,
    bodies: BodyState | None = None,
    velocity: jax.Array | None = None,
    residual: jax.Array | None = None,
) -> TeamState:
    """Return the initial state, with all first messages received, at rest or at velocities (D, N, E).

    ``residual`` is the process of `begin_residual`; None: robots move as their model says.
    """
    begin = initial_motion(team, position_world, yaw, parameters, bodies, velocity)
    announcement = announced_by(begin.stop, begin.control, no_message(team, begin.control))
    messages = Slots.create(team.model.spec, team.channels).messages
    announced = jnp.broadcast_to(announcement, (messages, *announcement.shape))
    links = find_links(team.shield, begin.stop.position_world)
    heard = values_by_slot(announcement, links)
    age = jnp.broadcast_to(_message_age(team, parameters), heard.shape[1:])
    table = heard_table(heard, position_world.shape[0], age, _slots_in_use(age, links))
    turns = no_turns(team, begin.sent)
    motion = (begin.physics, begin.sent, begin.past)
    return TeamState(*motion, announced, table, begin.estimate, parameters, turns, links, residual)


def no_turns(team: SimulatedTeam, sent: jax.Array) -> jax.Array | None:
    """Return zero yaw rates (H, N, E) [rad/s] beside commands (H, D, N, E); None without yaw rates."""
    return jnp.zeros_like(sent[:, 0]) if team.yaw_rate_limit else None


def split_message(team: SimulatedTeam, command: jax.Array) -> tuple[jax.Array, jax.Array | None]:
    """Return policy commands (C, N, E) without their learned messages, and these (M, N, E); None without messages."""
    if not team.message_size:
        return command, None
    return command[: -team.message_size], command[-team.message_size :]


def no_message(team: SimulatedTeam, like: jax.Array) -> jax.Array | None:
    """Return the zeros (M, N, E) of robots that say nothing, beside values (C, N, E); None without messages."""
    return jnp.zeros((team.message_size, *like.shape[1:])) if team.message_size else None


def announced_by(stop: StoppingPoint, velocity: jax.Array, message: jax.Array | None) -> jax.Array:
    """Return the announcements (2D + M, N, E) of control points, their velocities and learned messages."""
    said = () if message is None else (message,)
    return jnp.concatenate([stop.position_world, velocity, *said])


def heard_table(heard: jax.Array, dimension: int, age_s: jax.Array, valid: jax.Array) -> PeerTable:
    """Return the table of announcements (2D + M, K, N, E) with their ages and whether there is one (K, N, E)."""
    message = heard[2 * dimension :] if heard.shape[0] > 2 * dimension else None
    return PeerTable(heard[:dimension], heard[dimension : 2 * dimension], age_s, valid, message=message)


def split_command(team: SimulatedTeam, command: jax.Array, stop: StoppingPoint) -> tuple[jax.Array, jax.Array | None]:
    """Return velocity (D, N, E) and limited yaw rate (N, E) of policy commands; None without yaw rates.

    A way-point becomes the velocity from the control points ``stop`` to it. The commands are those without a learned
    message, see `split_message`.
    """
    if team.tracking is not None:
        return team.tracking.velocity_world(command, stop.position_world), None
    if not team.yaw_rate_limit:
        return command, None
    return command[:-1], jnp.clip(command[-1], -team.yaw_rate_limit, team.yaw_rate_limit)


def turned_on(turns: jax.Array | None, yaw_rate: jax.Array | None, braked: jax.Array) -> jax.Array | None:
    """Return the sent yaw rates (H, N, E), newest first; zero where a robot is ``braked`` (N, E)."""
    if turns is None or yaw_rate is None:
        return None
    return jnp.concatenate([jnp.where(braked, 0.0, yaw_rate)[None], turns[:-1]])


def tick(
    team: SimulatedTeam,
    state: TeamState,
    nominal_world: jax.Array,
    key: jax.Array,
    standing: jax.Array | None = None,
    bodies: SensedBodies | None = None,
) -> tuple[TeamState, ShieldResult]:
    """Return the state one control period later and the result of the shield.

    ``nominal_world`` (D, N, E) [m/s] are nominal control-point velocities, with a yaw rate [rad/s] as last number where
    the team turns, or way-points [m] where it tracks them, and the learned message after them where it has one; ``key``
    is the randomness of noise and loss. Robots that are ``standing`` (N, E) brake. ``bodies`` (2, R, N, E) are those
    that the ranges of the robots see.
    """
    stop = team.model.stopping_point(state.estimate)
    nominal_world, message = split_message(team, nominal_world)
    nominal_world, yaw_rate = split_command(team, nominal_world, stop)
    result = braked(layer1(team, stop, state.table, nominal_world, bodies), standing)
    effective = effective_command(team.model, result.command)
    sent = jnp.concatenate([effective[None], state.sent[:-1]])
    has_braked = result.status == int(ShieldStatus.BRAKED)
    message = None if message is None else jnp.where(has_braked, 0.0, message)
    announcement = announced_by(stop, result.control_velocity_world, message)
    announced = jnp.concatenate([announcement[None], state.announced[:-1]])
    turns = turned_on(state.turns, yaw_rate, has_braked)
    physics = advanced(team, state.physics, sent, turns, state.parameters)
    physics, residual = with_residual(team, state, physics, key)
    motion = team.physics.scene(physics).robots
    past = jax.tree.map(lambda new, old: jnp.concatenate([new[None], old[:-1]]), motion, state.past)
    noise_key, loss_key = jax.random.split(key)
    measured = measure(team, past, state.parameters, noise_key)
    estimate = predict_state(team.model, measured, sent, per_robot(state.parameters.pending))
    links, table = _heard(team, state, announced, loss_key)
    known = (announced, table, estimate, state.parameters, turns, links, residual)
    return TeamState(physics, sent, past, *known), result


def with_residual(team: SimulatedTeam, state: Any, physics: Any, key: jax.Array) -> tuple[Any, jax.Array | None]:
    """Return the physics that a tick led to, moved by the residual motion, and its process (C, N, E) after the tick.

    ``state`` is that before the tick, of this module or of a deployed team.
    """
    share, period_s = state.parameters.residual_share, team.model.spec.control_period_s
    return displaced(team.noise, state.residual, state.physics, physics, share, key, period_s)


def advanced(
    team: SimulatedTeam, physics: Any, sent: jax.Array, turns: jax.Array | None, parameters: WorldParameters
) -> Any:
    """Return the physics one tick later under sent commands (H, D, N, E) and yaw rates (H, N, E) or None."""
    if turns is None:
        return team.physics.advance(physics, sent, parameters)
    return team.physics.advance(physics, sent, parameters, turns)


def layer1(
    team: SimulatedTeam,
    stop: StoppingPoint,
    table: PeerTable,
    nominal_world: jax.Array,
    bodies: SensedBodies | None = None,
) -> ShieldResult:
    """Return the result of layer 1 in training: the call that `Shield.layer1` makes on the robot, or no shield."""
    if team.shielded:
        return project_velocity(team.model, team.shield, team.arena, stop, table, nominal_world, bodies)
    zero = jnp.zeros(nominal_world.shape[1:])
    command = actuator_command(team.model, stop, nominal_world)
    return ShieldResult(command, nominal_world, zero, zero.astype(jnp.int32))


def braked(result: ShieldResult, standing: jax.Array | None) -> ShieldResult:
    """Return the result of the shield with the brake of robots that are ``standing`` (N, E), whatever it allowed."""
    if standing is None:
        return result
    still = jax.tree.map(lambda x: jnp.where(standing, 0, x), result)
    return replace(still, status=jnp.where(standing, int(ShieldStatus.BRAKED), result.status))


def per_robot(response: Any) -> Any:
    """Return a (H, E) response as (H, 1, E), to broadcast over robots; one of each robot (H, N, E) as it is."""
    return jax.tree.map(lambda x: x if x.ndim > 2 else x[:, None, :], response)


def measure(team: SimulatedTeam, past: MotionState, parameters: WorldParameters, key: jax.Array) -> MotionState:
    """Return the measured pose: delayed, with noise bounded by three sigma, of which a constant bias takes a part."""
    state = delayed_measurements(past, parameters)
    spec, share = team.model.spec, team.channels.noise_share
    size = state.position_world.shape[0]
    words = jax.random.bits(key, ((size + 1), *state.yaw.shape), jnp.uint32)
    noise = _bounded_noise(words) * share
    if parameters.pose_bias is not None:
        noise = noise * (1 - jnp.abs(parameters.pose_bias)) + 3 * share * parameters.pose_bias
    return MotionState(
        state.position_world + noise[:size] * (spec.position_error_m / 3),
        state.yaw + noise[size] * (spec.yaw_error_rad / 3),
        _measured_velocity(team, state.velocity, key),
    )


def _measured_velocity(team: SimulatedTeam, velocity: jax.Array, key: jax.Array) -> jax.Array:
    """Return velocities (D, N, E) with noise bounded by three sigma; of a differential drive at each wheel's rim."""
    spec = team.model.spec
    if not spec.velocity_error_m_s:
        return velocity
    words = jax.random.bits(jax.random.fold_in(key, _VELOCITY_STREAM), velocity.shape, jnp.uint32)
    error = _bounded_noise(words) * (team.channels.noise_share * spec.velocity_error_m_s / 3)
    if spec.kind != DIFFERENTIAL_DRIVE:
        return velocity + error
    return velocity + jnp.stack([(error[0] + error[1]) / 2, (error[0] - error[1]) / spec.wheel_base_m])


def _bounded_noise(words: jax.Array) -> jax.Array:
    """Return noise of unit variance: a sum of three uniform bytes of random words, thus bounded by 3 sigma."""
    total = (words & 0xFF) + ((words >> 8) & 0xFF) + ((words >> 16) & 0xFF)
    return (total.astype(jnp.float32) - 382.5) / 128.0


def values_by_slot(values: jax.Array, links: CrowdLinks | None) -> jax.Array:
    """Return the values (C, K, N, E) of the peers of each robot from values (C, N, E)."""
    return by_slot(values) if links is None else of_peers(links, values)


def _slots_in_use(like: jax.Array, links: CrowdLinks | None) -> jax.Array:
    return jnp.ones(like.shape, bool) if links is None else links.peers.valid


def true_table(stop: StoppingPoint, announced: jax.Array, links: CrowdLinks | None = None) -> PeerTable:
    """Return the table (D, K, N, E) of perfect communication: age zero, all peers that have a slot valid."""
    dimension = stop.position_world.shape[0]
    heard = values_by_slot(jnp.concatenate([stop.position_world, announced[dimension:]]), links)
    age = jnp.zeros(heard.shape[1:])
    return heard_table(heard, dimension, age, _slots_in_use(age, links))


def _message_age(team: SimulatedTeam, parameters: WorldParameters) -> jax.Array:
    """Return the age bound (E,) [s] by echo: both ways of the message (shield.md, "Age")."""
    return 2 * parameters.message_ticks.astype(jnp.float32) * team.model.spec.control_period_s


def _heard(
    team: SimulatedTeam, state: TeamState, announced: jax.Array, key: jax.Array
) -> tuple[CrowdLinks | None, PeerTable]:
    """Return links and table after the messages of this tick; ``announced`` (L, 2D + M, N, E) has the newest first."""
    parameters, period_s = state.parameters, team.model.spec.control_period_s
    ticks = jnp.arange(1, announced.shape[0] + 1)[:, None]
    due = weighted(jnp.where(parameters.message_ticks == ticks, 1.0, 0.0), announced)
    chance = jax.random.bits(key, state.table.age_s.shape, jnp.uint8)
    # as integers: in bytes a loss of 1 would be 255, and one message in 256 would arrive
    arrived = chance.astype(jnp.int32) >= (parameters.message_loss * 256).astype(jnp.int32)
    age = jnp.broadcast_to(_message_age(team, parameters), arrived.shape)
    dimension = state.estimate.position_world.shape[0]
    if state.links is not None:
        points = announced[0, :dimension]
        return heard_in_crowd(team.shield, state.links, state.table, points, due, arrived, age, period_s)
    return None, update_peer_table(state.table, heard_table(by_slot(due), dimension, age, arrived), period_s)
