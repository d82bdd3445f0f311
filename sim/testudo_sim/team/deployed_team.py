"""Simulates the control tick of a deployed team: all layers of the shield, messages with echo, and faults.

The tick in `team_tick` has layer 1 and perfect clocks, for training; this one serves the shield test protocol and
`evaluate --layers all`. Arrays are (component, robot, world).
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from testudo_deploy.control.peer_tracker import left_reserved_segments
from testudo_deploy.control.pose_validator import follow_pose
from testudo_deploy.control.state_prediction import predict_state
from testudo_deploy.monitoring.brake_monitor import BrakeMonitorState, begin_brake_monitor
from testudo_deploy.shield.deadlock_resolution import (
    DeadlockState,
    ResolvedVelocity,
    initial_deadlock_state,
    resolve_deadlock,
)
from testudo_deploy.shield.passages import passages
from testudo_deploy.shield.reservations import ReservedSpace, ShieldInputs, reserved_at_rest
from testudo_deploy.shield.residual_margin import fastest_m_s
from testudo_deploy.shield.sensed_bodies import SensedBodies
from testudo_deploy.shield.shield import Shield
from testudo_deploy.shield.velocity_projection import PeerTable, ShieldResult, ShieldStatus
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import MotionState, StoppingPoint
from testudo_hardware.motion.motion_model import actuator_command, effective_command
from testudo_hardware.motion.motion_state import length
from testudo_hardware.spec import RobotSpec
from testudo_sim import devices  # noqa: F401  (registers the pytrees)
from testudo_sim.physics.kinematic_tier import KinematicPhysics
from testudo_sim.physics.scene import BodyState
from testudo_sim.physics.world_parameters import Slots, WorldParameters
from testudo_sim.team.fault_schedule import (
    FALSE_SENDER,
    PURSUER,
    Faults,
    LostLinkVehicle,
    coasted,
    falsified,
    is_hostile,
    listening,
    receive,
)
from testudo_sim.team.message_radio import (
    MessageRadio,
    by_slot,
    exchange,
    lower_priority,
    message,
    neighbour_table,
    peer_numbers,
    peer_spaces,
    receive_messages,
)
from testudo_sim.team.simulated_brake_monitors import earlier_slots, update_brake_monitors
from testudo_sim.team.team_tick import (
    SimulatedTeam,
    advanced,
    braked,
    initial_motion,
    measure,
    no_message,
    no_turns,
    per_robot,
    stopping_segment,
    turned_on,
    with_residual,
)
from testudo_sim.team.wishes import wishes

_RADIO_STREAM = 7  # separate random stream of the radio to the vehicles, so that other draws do not change


@dataclass(frozen=True)
class DeployedTeam:
    """Constants besides the team: layers of the shield, and length of the message history."""

    shield: Shield
    gate: bool = True  # layers 2 and 3
    stride: int = 1  # simulation ticks per control period of a robot; 2 and more allow asynchronous ticks
    longest_message_ticks: int = 2
    has_hostile_robot: bool = False
    """Worlds have neighbours without a safety contract (`Faults.hostile_kind`), which a tracking system measures."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class DeployedTeamState:
    """State of all worlds."""

    physics: Any
    sent: jax.Array  # (H, D, N, E): effective commands that reached the drivers, newest first
    past: MotionState  # (M, D, N, E)
    table: PeerTable
    estimate: MotionState
    measured: MotionState  # (D, N, E): last measurement
    anchor: MotionState  # (D, N, E): expected next pose, see `follow_pose`
    located: jax.Array  # (N, E) bool: the pose is accepted
    earlier: jax.Array  # (H', D, N, E): commands before `sent`, which can have acted on the latest pose
    watch: BrakeMonitorState
    weak: jax.Array  # (N, E) bool: braking weaker than in the robot file was detected; the robot stays braked
    space: ReservedSpace
    radio: MessageRadio
    flagged: jax.Array  # (K, N, E) bool: neighbours not trusted by this robot
    pause: jax.Array  # (N, E) int: remaining ticks of a pause of the process
    held: jax.Array  # (N, E) int: ticks for which the driver has held the last command
    number: jax.Array  # () int: tick
    parameters: WorldParameters
    faults: Faults
    deadlock: DeadlockState  # (N, E)
    moved_world: jax.Array  # (D, N, E) [m/s]: velocities that the shield allowed in the previous tick
    resolves: jax.Array  # (E,) bool: the deadlock rule is active
    vehicle: LostLinkVehicle | None = None  # received commands of drones behind a lossy radio
    turns: jax.Array | None = None  # (H, N, E) [rad/s]: see `TeamState.turns`
    residual: jax.Array | None = None  # (C, N, E): see `TeamState.residual`

    @property
    def announcement(self) -> jax.Array:
        """See `TeamState.announcement`."""
        return self.radio.announcement((self.number - 1) % self.radio.sent.shape[0])


def start_deployed(
    team: SimulatedTeam,
    deployment: DeployedTeam,
    position_world: jax.Array,
    yaw: jax.Array,
    parameters: WorldParameters,
    faults: Faults,
    velocity: jax.Array | None = None,
    *,
    bodies: BodyState | None = None,
    resolves: jax.Array | None = None,
    residual: jax.Array | None = None,
) -> DeployedTeamState:
    """Return the initial state, with all first messages received, at rest or at velocities (D, N, E).

    ``bodies`` are the boxes of the scenario; ``resolves`` (E,) says in which worlds the deadlock rule is active; None:
    in all; ``residual`` is as for `team_tick.start`.
    """
    begin = initial_motion(team, position_world, yaw, parameters, bodies, velocity)
    sent, seen, estimate = begin.sent, begin.measured, begin.estimate
    space = reserved_at_rest(position_world) if velocity is None else stopping_segment(team.model, seen, estimate)
    first = message(begin.stop.position_world, begin.control, space, begin.control, no_message(team, yaw[None]))
    radio = receive_messages(first, deployment.longest_message_ticks + 1, team.message_size)
    size, slots = yaw.shape[0], Slots.create(team.model.spec, team.channels)
    last = peer_numbers(size) == size - 1
    flagged = last[..., None] & (faults.hostile_kind == PURSUER) & ~faults.blind_tracking
    zero = jnp.zeros(yaw.shape, jnp.int32)
    number = jnp.zeros((), jnp.int32)
    table = neighbour_table(radio, number, team.model.spec.control_period_s, faults)
    table = replace(table, untrusted=flagged) if deployment.has_hostile_robot else table
    return DeployedTeamState(
        begin.physics,
        sent,
        begin.past,
        table,
        estimate,
        seen,
        seen,
        zero == 0,
        jnp.broadcast_to(sent[0], (earlier_slots(team.model.spec, slots), *sent.shape[1:])),
        begin_brake_monitor(team.model.spec, seen, zero == 0),
        zero > 0,
        space,
        radio,
        flagged,
        zero,
        zero + 1000,
        number,
        parameters,
        faults,
        initial_deadlock_state(jnp.zeros(yaw.shape)),
        jnp.zeros_like(position_world),
        jnp.ones(yaw.shape[1:], bool) if resolves is None else resolves,
        listening(sent) if faults.radio is not None else None,
        no_turns(team, sent),
        residual,
    )


def tick_deployed(
    team: SimulatedTeam,
    deployment: DeployedTeam,
    state: DeployedTeamState,
    nominal_world: jax.Array,
    key: jax.Array,
    standing: jax.Array | None = None,
    bodies: SensedBodies | None = None,
    holds: jax.Array | None = None,
) -> tuple[DeployedTeamState, ShieldResult]:
    """Return the state one tick later and the result of the shield; arguments as for `team_tick.tick`.

    Robots that ``holds`` (N, E) want no velocity, as at their goals: shield and deadlock rule act as before.
    """
    late_key, noise_key, radio_key = jax.random.split(key, 3)
    runs, pause = _running(deployment, state, late_key)
    stop = team.model.stopping_point(state.estimate)
    nominal_world, yaw_rate, said = wishes(team, stop, nominal_world, holds)
    nominal, deadlock = _nominal(team, state, stop, nominal_world)
    stands = jnp.zeros_like(runs) if standing is None else standing  # wants nothing, and so reserves no way ahead
    nominal = jax.tree.map(lambda x: jnp.where(stands, 0.0, x), nominal)
    result, space = _shielded(team, deployment, state, stop, nominal.velocity_world, bodies)
    result = braked(result, standing)
    sound = runs & state.located & ~state.weak
    effective = jnp.where(sound, effective_command(team.model, result.command), 0.0)
    kept = jnp.where(state.held < state.faults.driver_ticks, state.sent[0], 0.0)
    effective = jnp.where(runs, effective, kept)
    sent = jnp.concatenate([effective[None], state.sent[:-1]])
    space = jax.tree.map(lambda new, old: jnp.where(sound, new, old), space, state.space)
    drives = sound & (result.status != int(ShieldStatus.BRAKED))
    velocity, wanted = (jnp.where(sound, x, 0.0) for x in (result.control_velocity_world, nominal.wanted_world))
    said = None if said is None else jnp.where(drives, said, 0.0)
    sent_message = message(stop.position_world, velocity, space, wanted, said)
    # radio after the messages (7 D + M, N, E) of this tick; `runs` (N, E) marks running processes
    sends = runs & state.located & ~is_hostile(state.faults, PURSUER, runs)
    faults, loss = state.faults, state.parameters.message_loss
    told, silent = falsified(faults, sent_message), _silent_ticks(deployment, team.model.spec)
    radio = exchange(state.radio, told, sends, state.number, loss, faults, radio_key, silent)
    turns = turned_on(state.turns, yaw_rate, ~drives)
    physics, vehicle = _moved(team, state, sent, turns, key)
    physics, residual = with_residual(team, state, physics, key)
    motion = team.physics.scene(physics).robots
    past = jax.tree.map(lambda new, old: jnp.concatenate([new[None], old[:-1]]), motion, state.past)
    measured = _displaced(state, measure(team, past, state.parameters, noise_key))
    located, anchor = _followed(team, state, measured)
    earlier = jnp.concatenate([state.sent[-1:], state.earlier[:-1]])
    acting = jnp.concatenate([sent, earlier])
    watch, weak = update_brake_monitors(team.model.spec, state.watch, anchor, located, acting, state.parameters)
    estimate = predict_state(team.model, measured, sent, per_robot(state.parameters.pending))
    number = state.number + 1
    table = neighbour_table(radio, number, team.model.spec.control_period_s, state.faults)
    flagged = state.flagged
    if deployment.has_hostile_robot:
        table, flagged = _watch(team, deployment, state, radio, table, measured)
    status = jnp.where(sound, result.status, jnp.where(runs, int(ShieldStatus.BRAKED), int(ShieldStatus.PASSED)))
    rule = _deadlock_memory(state, runs, drives, deadlock, result)
    seen = (table, estimate, measured, anchor, located, earlier, watch, state.weak | weak)
    known = (space, radio, flagged, pause, jnp.where(runs, 1, state.held + 1), number, state.parameters, state.faults)
    after = DeployedTeamState(physics, sent, past, *seen, *known, *rule, state.resolves, vehicle, turns, residual)
    return after, replace(result, status=status, change_m_s=jnp.where(sound, result.change_m_s, 0.0))


def _followed(team: SimulatedTeam, state: DeployedTeamState, measured: MotionState) -> tuple[jax.Array, MotionState]:
    """Return whether the new pose of each robot (N, E) is plausible, and the last plausible one."""
    spec = team.model.spec
    turned_rad = team.yaw_rate_limit * spec.control_period_s
    return follow_pose(spec, state.anchor, measured, spec.control_period_s, turned_rad)


def _nominal(
    team: SimulatedTeam, state: DeployedTeamState, stop: StoppingPoint, nominal_world: jax.Array
) -> tuple[ResolvedVelocity, DeadlockState]:
    """Return the velocities (D, N, E) [m/s] after the deadlock rule, or of pursuers, and the memory of the rule."""
    place, table, period_s = stop.position_world, state.table, team.model.spec.control_period_s
    first, before = lower_priority(nominal_world.shape[1], table.age_s), state.deadlock
    known = (before, place, table, first, nominal_world, state.moved_world, period_s)
    narrow = passages(team.arena, team.shield.separation_m, team.shield.wall_m)
    found, deadlock = resolve_deadlock(team.shield, team.arena, narrow, *known)
    place = team.physics.scene(state.physics).robots.position_world
    offset = place[:, :-1] - place[:, -1:]
    distance = length(offset)
    nearest = jnp.argmin(distance, axis=0)
    towards = jnp.take_along_axis(offset / (distance + 1e-6), nearest[None, None], axis=1)
    pursuer = is_hostile(state.faults, PURSUER, nominal_world[0])
    to_nearest = team.model.spec.control_point_speed_m_s * towards
    resolved = jax.tree.map(lambda x: jnp.where(state.resolves, x, nominal_world), found)
    return jax.tree.map(lambda x: jnp.where(pursuer, to_nearest, x), resolved), deadlock


def _deadlock_memory(
    state: DeployedTeamState, runs: jax.Array, drives: jax.Array, deadlock: DeadlockState, result: ShieldResult
) -> tuple[DeadlockState, jax.Array]:
    """Return the memory of the deadlock rule (N, E) and the allowed velocities (D, N, E) [m/s] after a tick.

    A robot that braked begins anew, one whose process does not run keeps its memory, as on the robot.
    """
    begin = initial_deadlock_state(jnp.zeros(runs.shape))

    def after(new: jax.Array, start: jax.Array, old: jax.Array) -> jax.Array:
        return jnp.where(runs, jnp.where(drives, new, start), old)

    moved = after(result.control_velocity_world, jnp.zeros_like(state.moved_world), state.moved_world)
    return jax.tree.map(after, deadlock, begin, state.deadlock), moved


def _moved(
    team: SimulatedTeam, state: DeployedTeamState, sent: jax.Array, turns: jax.Array | None, key: jax.Array
) -> tuple[Any, LostLinkVehicle | None]:
    """Return the physics one tick later under the sent commands (H, D, N, E), and what the vehicles received.

    Raises:
        TestudoError: yaw rates with a lossy radio.
    """
    loss = state.faults.radio
    if state.vehicle is None or loss is None:
        return advanced(team, state.physics, sent, turns, state.parameters), None
    if turns is not None:
        raise TestudoError("a lossy radio: found yaw rates, which it does not carry; expected a policy without them")
    vehicle = receive(state.vehicle, loss, sent[0], state.number, jax.random.fold_in(key, _RADIO_STREAM))
    after = team.physics.advance(state.physics, vehicle.reached, state.parameters)
    if not isinstance(team.physics, KinematicPhysics):  # the other tiers have only vehicles that brake by themselves
        return after, vehicle
    floor_m = team.arena.low_world[2] if team.arena else 0.0
    return coasted(team.model.spec, floor_m, state.physics, after, vehicle, loss), vehicle


def _shielded(
    team: SimulatedTeam,
    deployment: DeployedTeam,
    state: DeployedTeamState,
    stop: Any,
    nominal_world: jax.Array,
    bodies: SensedBodies | None,
) -> tuple[ShieldResult, ReservedSpace]:
    """Return the result of the active layers for the nominal velocity, and the reserved space."""
    zero = jnp.zeros(nominal_world.shape[1:])
    unshielded = ShieldResult(
        actuator_command(team.model, stop, nominal_world), nominal_world, zero, zero.astype(jnp.int32)
    )
    if deployment.gate:
        peers = peer_spaces(state.radio, _silent_ticks(deployment, team.model.spec), ~state.flagged)
        peers = replace(peers, acknowledged=jnp.where(state.faults.blind_take, 1e6, peers.acknowledged))
        inputs = ShieldInputs(state.measured.position_world, state.estimate, stop, state.table, peers, bodies)
        number = jnp.broadcast_to(state.number.astype(jnp.float32), zero.shape)
        result, space = deployment.shield.step(inputs, state.space, nominal_world, number)
    elif team.shielded:
        result = deployment.shield.layer1(stop, state.table, nominal_world, bodies)
        space = state.space
    else:
        return unshielded, state.space
    if deployment.has_hostile_robot:
        hostile = is_hostile(state.faults, PURSUER, zero > 0) | is_hostile(state.faults, FALSE_SENDER, zero > 0)
        result = jax.tree.map(lambda a, b: jnp.where(hostile, a, b), unshielded, result)
    return result, space


def _running(deployment: DeployedTeam, state: DeployedTeamState, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the processes that run at this tick (N, E), and the remaining pause of each [ticks]."""
    faults = state.faults
    due = (state.number + faults.phase) % deployment.stride == 0
    dead = (state.number >= faults.dead_from) & (state.number < faults.dead_until)
    runs = due & (state.pause == 0) & ~dead
    chance_key, length_key = jax.random.split(key)
    late = runs & (jax.random.uniform(chance_key, runs.shape) < faults.late_chance)
    low, high = faults.late_ticks
    pause = jax.random.randint(length_key, runs.shape, low, high + 1)
    return runs, jnp.where(late, pause, jnp.maximum(state.pause - 1, 0))


def _displaced(state: DeployedTeamState, measured: MotionState) -> MotionState:
    """Return the measurement with the localisation jump of robot 0."""
    faults = state.faults
    wrong = (state.number >= faults.jump[0]) & (state.number < faults.jump[1])
    first = (jnp.arange(measured.yaw.shape[0]) == 0)[:, None] & wrong
    return MotionState(
        measured.position_world + jnp.where(first, faults.jump_world[:, None], 0.0),
        measured.yaw + jnp.where(first, faults.jump_yaw, 0.0),
        measured.velocity,
    )


def _watch(
    team: SimulatedTeam,
    deployment: DeployedTeam,
    state: DeployedTeamState,
    radio: MessageRadio,
    table: PeerTable,
    measured: MotionState,
) -> tuple[PeerTable, jax.Array]:
    """Return the table with measured poses of untrusted neighbours, and the new mask of untrusted ones."""
    spec = team.model.spec
    seen = by_slot(measured.position_world)
    age = jnp.full_like(table.age_s, spec.pose_max_age_s)
    peers = peer_spaces(radio, _silent_ticks(deployment, spec), ~state.flagged)
    left = left_reserved_segments(deployment.shield.space, peers, seen, age, table.age_s, fastest_m_s(spec))
    watched = (state.faults.hostile_kind > 0) & ~state.faults.blind_tracking
    flagged = state.flagged | (left & watched)
    return replace(
        table,
        control_point_world=jnp.where(flagged, seen, table.control_point_world),
        control_velocity_world=jnp.where(flagged, 0.0, table.control_velocity_world),
        age_s=jnp.where(flagged, age, table.age_s),
        untrusted=flagged,
    ), flagged


def _silent_ticks(deployment: DeployedTeam, spec: RobotSpec) -> float:
    """Return the silence after which robots suspect a peer; without layers 2 and 3 nobody does."""
    return deployment.shield.space.silence_s / spec.control_period_s if deployment.gate else math.inf
