"""The control loop of one robot: inputs in, one shielded command and one record out, at every tick.

Pure logic on one injected steady clock, without ROS. Any fault ends in a brake command and a record that says why;
`tick` never raises.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import astuple

import numpy as np

from testudo_deploy.contract.command_types import check_shielded, turns
from testudo_deploy.contract.contract import policy_signals, slots_first
from testudo_deploy.contract.messages import PeerMessage, TickRecord
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.control.control_tick import (
    FOLLOWS_COMMANDS,
    Announcer,
    BrakeReason,
    FlightPhase,
    PoseSample,
    Tick,
    tick_record,
)
from testudo_deploy.control.deadlock_resolver import DeadlockResolver
from testudo_deploy.control.goal_hold import GoalHold, standing
from testudo_deploy.control.peer_tracker import PeerMeasurement, PeerTracker
from testudo_deploy.control.policy_decisions import PolicyDecisions, PolicyFault
from testudo_deploy.control.pose_validator import MotionMonitor, PoseValidator
from testudo_deploy.control.scan_receiver import ScanReceiver
from testudo_deploy.control.segment_position import off_segment, off_segment_text
from testudo_deploy.control.state_prediction import PendingCommands
from testudo_deploy.control.task_receiver import TaskReceiver
from testudo_deploy.control.tick_bodies import CompiledTickBodies, TickBodies, compiled_bodies
from testudo_deploy.guard.command_guard import CLOCK_TOLERANCE_S
from testudo_deploy.shield.caution import slower, wider
from testudo_deploy.shield.flight_column import column_below, landing_shield, unknown_robots_near, with_landing_column
from testudo_deploy.shield.reservations import (
    NOTHING_HEARD,
    PeerReservations,
    ReservedSpace,
    ShieldInputs,
    kept_at_rest,
    reserved_at_rest,
)
from testudo_deploy.shield.residual_margin import fastest_m_s
from testudo_deploy.shield.shield import Shield
from testudo_deploy.shield.stop_tube import stop_tube_parameters, with_untrusted_speed
from testudo_deploy.shield.velocity_projection import PeerTable, ShieldStatus
from testudo_hardware.motion import MotionState, StoppingPoint, motion_model
from testudo_hardware.motion.motion_model import effective_command
from testudo_hardware.spec import RobotSpec

_LARGEST = 1e12  # larger SI numbers are not measurements, and their squares may not be finite


class ControlLoop:
    """One robot's loop; times are seconds on one steady clock that the caller injects."""

    def __init__(
        self,
        artefact: PolicyArtefact,
        spec: RobotSpec,
        *,
        robot: str,
        peers: tuple[str, ...],
        goal_world: tuple[float, ...],
        epoch: str,
        untrusted: Mapping[str, float] | None = None,
        pose_max_age_s: float | None = None,
        stopwatch: Callable[[], float] = time.perf_counter,
    ) -> None:
        contract = artefact.contract
        check_shielded(contract.command.type, robot)
        self._policy = PolicyDecisions(artefact)
        self._spec, self._robot, self._epoch, self._model = spec, robot, epoch, motion_model(spec)
        self._fastest_m_s = fastest_m_s(spec)
        stated = untrusted or {}  # highest speeds of untrusted peers [m/s]; 0 for that of the robot file
        space = with_untrusted_speed(stop_tube_parameters(spec), max(stated.values(), default=0.0))
        self._shield = Shield(self._model, contract.shield, space, contract.arena)
        self._landing = landing_shield(self._shield)
        self._deadlock = DeadlockResolver(contract.shield, contract.arena, contract.control_period_s, spec.dimension)
        self._bodies = TickBodies(self._shield, self._deadlock.rule)
        self._goal_world, self._stopwatch, self.hold = tuple(goal_world), stopwatch, GoalHold()
        self._contract_hash = contract.contract_hash
        self.task = TaskReceiver((), contract.task_hash, robot=robot, epoch=epoch, peers=peers)
        """Of a task of goals, it takes no messages; replaced by `TaskReceiver.of` where a task node sends signals."""
        self.scans: ScanReceiver | None = None  # set where the shield has rows for what the robot's scanner sees
        says = contract.command.message_size
        self._peers = PeerTracker(robot, epoch, peers, self._contract_hash, spec.dimension, tuple(stated), says)
        self._sent = PendingCommands(spec.command_delay_s, spec.dead_man_s)
        self._pose_max_age_s = spec.pose_max_age_s if pose_max_age_s is None else pose_max_age_s
        self.pose: PoseSample | None = None  # the newest
        self._pose_validator = PoseValidator(spec, self._pose_max_age_s, turns=turns(contract.command))
        self.lose_place = self._pose_validator.lose
        self.motion = MotionMonitor(spec, self._sent)
        self._space: ReservedSpace | None = None
        self._placed = False  # its first segment is clear of all others; only then it reserves and requests space
        self._known_since = NOTHING_HEARD
        """Number of the first message from a new place; peers must have it before the robot requests space."""
        self._sequence, self._last_now_s, self._behind_s = 0, -math.inf, math.inf
        self._last_tick: Tick | None = None
        self._announcer = Announcer(robot, epoch, self._contract_hash, says)
        self.lost, self.declare_lost = self._peers.lost, self._peers.declare_lost
        self._flight, self.refused_poses = FOLLOWS_COMMANDS, 0  # not finite, too large, out of order, of the future

    def use_compiled_bodies(self) -> CompiledTickBodies:
        """Compute the arrays of a tick as machine code from now on; raises NotCompiledError if they stay in NumPy."""
        self._bodies = compiled = compiled_bodies(self._bodies, self._peers)
        self._deadlock.step = compiled.rule
        return compiled

    @property
    def located(self) -> bool:
        """Return whether the newest pose is valid."""
        return self._pose_validator.located

    @property
    def drift_fault(self) -> str:
        """Return how far the robot is outside of its reserved segment, if others do not keep clear of that place."""
        tick = self._last_tick
        if tick is None or tick.pose is None or self._space is None:
            return ""
        return off_segment_text(self._space, self._shield.space, tick.pose.position_world)

    @property
    def warning(self) -> str:
        """Return what of the motion is outside of the robot file, `assumption_...: ...`; empty if nothing is."""
        return self.motion.assumptions.finding

    @property
    def refused_peer_messages(self) -> int:
        """Return the number of peer messages that were replayed, foreign or under another contract."""
        return self._peers.refused

    def on_odometry(
        self,
        stamp_s: float,
        received_s: float,
        position_world: tuple[float, ...],
        yaw: float,
        velocity: tuple[float, ...],
    ) -> bool:
        """Take a pose sample; returns False (and counts) if it is refused."""
        finite = all(abs(number) < _LARGEST for number in (stamp_s, yaw, *position_world, *velocity))
        late = self.pose is not None and stamp_s <= self.pose.stamp_s
        of_future = stamp_s > received_s + CLOCK_TOLERANCE_S
        if not finite or late or of_future or {len(position_world), len(velocity)} != {self._spec.dimension}:
            self.refused_poses += 1
            return False
        measured = MotionState(np.array(position_world, float), np.array(yaw, float), np.array(velocity, float))
        before = self.pose
        if self._pose_validator.take(measured, stamp_s):
            self.motion.begin(measured)
            if before is not None:
                self._placed, self._known_since = False, self._sequence + 1
        elif self._flight.flown_by_itself:
            self.motion.begin(measured)
        elif before is not None and self._pose_validator.anchor is not None:
            self.motion.follow(self._pose_validator.anchor, self.located, before.stamp_s, stamp_s, received_s)
        self.pose = PoseSample(stamp_s, tuple(position_world), yaw, tuple(velocity))
        if self.scans is not None and self.located:
            self.scans.hear_pose(stamp_s, tuple(position_world), yaw)
        return True

    def on_guard(self, *, passes: bool, received_s: float) -> None:
        """Take whether the guard passes commands on; a robot that it brakes does not follow the commands."""
        self.motion.hear_guard(passes=passes, received_s=received_s)

    def on_vehicle(self, *, passes: bool) -> None:
        """Take whether the driver of a flying vehicle passes commands on."""
        self.motion.hear_vehicle(passes=passes)

    def on_peer(self, message: PeerMessage, received_s: float) -> bool:
        """Take a peer's announcement; returns False (and counts) if it is refused."""
        return message.robot not in self._peers.untrusted and self._peers.hear(message, received_s)

    def on_sighting(self, peer: str, sighting: PeerMeasurement) -> bool:
        """Take a peer's place as a tracking system measured it; returns False (and counts) if it is refused."""
        return self._peers.see(peer, sighting)

    def aim(self, goal_world: tuple[float, ...]) -> None:
        """Set the goal (D,) [m]; it does not affect the shield."""
        self._goal_world = tuple(goal_world)

    def release_space(self) -> None:
        """Release the reserved space, since the robot may be carried; the next tick reserves where it stands, if free.

        Only for a robot that does not drive. While it still moves inside its space it keeps it: its peers may take
        what it releases, and it needs the way to rest.
        """
        if not self._is_stopping():
            self._placed = False
        self._pose_validator.reset_jumps()

    def _is_stopping(self) -> bool:
        """Return whether the robot moves, inside of what it reserves."""
        if self.pose is None or self._space is None or not self._placed or not self.pose.moves:
            return False
        return not off_segment(self._space, self._shield.space, self.pose.position_world)[0]

    def tick(
        self, now_s: float, late_s: float = 0.0, order: str = "", flight: FlightPhase = FOLLOWS_COMMANDS
    ) -> TickRecord:
        """Run one control tick and return its record; ``record.sent_command`` is what to send.

        Args:
            now_s: the clock.
            late_s: how late the tick begins.
            order: why the robot must brake whatever the loop finds, ``code: details``; empty if it may drive. The loop
                runs all checks anyway: its own reasons come first in the record and say whether the robot could drive.
            flight: the part of the flight; it holds until the next tick.
        """
        begin = self._stopwatch()
        policy, hidden_before, self._flight = self._policy, self._policy.hidden, flight
        tick = Tick(now_s, late_s, self._goal_world, space=self._space, echoes=self._peers.echoes())
        tick.untrusted_speed_m_s, tick.task = self._shield.space.untrusted_speed_m_s, self.task.reading
        tick.suspected = self._peers.suspected(now_s, self._shield.space.silence_s)
        lands = flight.velocity_world is not None
        try:
            self._run_checked(tick, order)
        except BrakeReason as reason:
            tick.reason = str(reason)
        except Exception as error:  # noqa: BLE001  (every fault must end in a brake)
            tick.reason = f"internal_error: {type(error).__name__}: {error}"
        if tick.reason:
            tick.result, nominal = None, None
            policy.drop()
            self._deadlock.reset()
            self.hold.reset()
        else:
            nominal, tick.nominal_yaw_rate, tick.yaw_rate = policy.nominal_world, policy.yaw_rate, policy.sent_yaw_rate
            tick.waypoint_world, tick.message = policy.waypoint_world, policy.message
            if lands:
                tick.reason = order
                policy.drop()
        command = np.zeros(self._spec.dimension) if tick.result is None else tick.result.command
        self._last_now_s = max(now_s, self._last_now_s)
        self._sent.push(now_s, effective_command(self._model, command))
        self._last_tick = tick
        if self._space is not None:
            self._space = with_landing_column(self._space, self._pose_validator.anchor, self._flight.lands_to_m)
        self._sequence += 1
        return tick_record(
            self._robot,
            self._peers.peers,
            tick,
            sequence=self._sequence - 1,
            nominal=nominal,
            command=command,
            hidden=(hidden_before, policy.hidden),
            duration_s=self._stopwatch() - begin,
        )

    def announcement(self, now_s: float) -> PeerMessage | None:
        """Return the message to the peers after a tick; None while the own pose is not known.

        A robot whose vehicle lands without a pose announces its last known place and the column of its landing.
        """
        if self._last_tick is None or self._space is None:
            return None
        return self._announcer.announce(
            self._last_tick, self._space, self._sequence, now_s, without_pose=self._flight.lands_to_m is not None
        )

    def _run_checked(self, tick: Tick, order: str) -> None:
        """Fill in the tick.

        Raises:
            BrakeReason: the robot must brake.
        """
        landing = self._flight.velocity_world
        pose, estimate, stop = self._locate(tick)
        if landing is None and self.motion.finding:
            raise BrakeReason(self.motion.finding)
        if landing is None and self._pose_validator.jumps_often:
            raise BrakeReason("pose_restless")
        own_space, table, peers = self._check_peers(tick, pose)
        if landing is None:
            if fault := self.task.fault(tick.now_s) or (self.scans and self.scans.fault(tick.now_s)) or order:
                raise BrakeReason(fault)
            self._decide(tick, estimate, stop, table)
            self._policy.track(np.asarray(stop.position_world))
        else:
            self._policy.replace(np.array(landing, float))
        tick.bodies = None if self.scans is None else self.scans.bodies(tick.now_s, peers)
        inputs = ShieldInputs(np.array(pose.position_world, float), estimate, stop, table, peers, tick.bodies)
        self._check_command(tick, inputs, own_space, self._shield if landing is None else self._landing)

    def _locate(self, tick: Tick) -> tuple[PoseSample, MotionState, StoppingPoint]:
        """Return the newest pose, and state and stopping point at which this tick's command will begin to act."""
        pose = self.pose
        self._check_clock(tick.now_s)
        if pose is None:
            raise BrakeReason("no_pose")
        age_s = tick.now_s - pose.stamp_s
        if age_s > self._pose_max_age_s:
            raise BrakeReason("stale_pose")
        if age_s < -CLOCK_TOLERANCE_S:
            raise BrakeReason("clock_backwards")
        if not self.located:
            raise BrakeReason("pose_jump")
        pending, pending_s = self._sent.since(pose.stamp_s, tick.now_s)
        measured = MotionState(np.array(pose.position_world), np.array(pose.yaw), np.array(pose.velocity))
        tick.pose, tick.pending, tick.pending_s = pose, tuple(pending), pending_s
        tick.estimate, tick.stop = self._bodies.locate(measured, tick.pending, pending_s)
        return pose, tick.estimate, tick.stop

    def _check_clock(self, now_s: float) -> None:
        """Brake while the clock is behind; once it runs on from there, as after a jump, forget what came before."""
        if now_s > self._last_now_s:
            self._behind_s = math.inf
            return
        if now_s > self._behind_s:
            self.pose = None
            for memory in (self._announcer, self._pose_validator, self._peers, self.task, self.scans):
                if memory is not None:
                    memory.forget()
            self._sent.clear()
            self._last_now_s, self._behind_s = -math.inf, math.inf
        elif now_s < math.inf:
            self._behind_s = now_s
        raise BrakeReason("clock_backwards")

    def _check_peers(self, tick: Tick, pose: PoseSample) -> tuple[ReservedSpace, PeerTable, PeerReservations]:
        """Return the own space and what is known of the peers; brake if one is unknown, or in the reserved space."""
        own = self._space
        if not self._placed or own is None:  # at rest: the reserved space is where the robot stands
            place = np.array(pose.position_world, float)
            kept = None if own is None else kept_at_rest(own, place, self._shield.space.lane_m)
            if own is not None and kept is None:
                self._known_since = self._sequence + 1  # its peers must know of a place that it did not reserve
            own = self._space = kept or reserved_at_rest(place)
        tick.space = own
        for code, names in (("peer_unheard", self._peers.unheard()), ("untrusted_unseen", self._peers.unseen())):
            if names:
                raise BrakeReason(f"{code}: {', '.join(names)}")
        space = self._shield.space
        self._peers.untrusted.update(self._peers.outside_reservations(space, tick.now_s, self._fastest_m_s))
        tick.table = table = self._peers.table(tick.now_s)
        tick.peers = peers = self._peers.spaces(tick.now_s, space.silence_s)
        tick.lost = tuple(peer in self.lost for peer in self._peers.peers) if self.lost else ()
        if not self._placed:
            tick.space = own = self._space = self._first_space(own, peers, table)
            self._placed = True
        # two robots reserve the same place only if the pose of one of them was wrong
        code = "column_entered" if self._flight.climbs else "peer_in_space"
        self._reject_peers(code, self._bodies.reserved_twice(own, peers) & peers.reserves)
        if self._flight.climbs:
            self._reject_peers(code, unknown_robots_near(self._spec, space, own.owned_world, table))
        return own, table, peers

    def _first_space(self, own: ReservedSpace, peers: PeerReservations, table: PeerTable) -> ReservedSpace:
        """Return what the robot reserves at the start; brake if its place or its column is not clear of the peers."""
        self._reject_peers("too_close", self._bodies.conflicting(own, peers))
        aware = (peers.acknowledged >= self._known_since) | peers.excused
        self._reject_peers("peer_unaware", ~aware & peers.reserves)
        if self._flight.take_off_to_m is None:
            return own
        column = column_below(own, self._flight.take_off_to_m)
        self._reject_peers("column_taken", self._bodies.conflicting(column, peers))
        unknown = unknown_robots_near(self._spec, self._shield.space, column.owned_world, table)
        self._reject_peers("column_taken", unknown)
        return column

    def _reject_peers(self, code: str, which: np.ndarray) -> None:
        names = [name for name, is_meant in zip(self._peers.peers, which, strict=True) if is_meant]
        if names:
            raise BrakeReason(f"{code}: {', '.join(names)}")

    def _decide(self, tick: Tick, estimate: MotionState, stop: StoppingPoint, table: PeerTable) -> None:
        """Run the policy at its period; in between, its last command is held."""
        if not self._policy.is_due():
            return
        task = {"goal_world": np.array(self._goal_world), **(tick.task.arrays if tick.task else {})}
        signals = policy_signals(estimate, stop, table, self._shield.parameters.hold_s, task)
        try:
            self._policy.decide(slots_first(signals))
        except PolicyFault as fault:
            raise BrakeReason(str(fault)) from fault
        tick.decided = True

    def _check_command(self, tick: Tick, inputs: ShieldInputs, space: ReservedSpace, shield: Shield) -> None:
        nominal = self._policy.nominal_world
        if shield is self._shield and nominal is not None:  # a landing keeps its direction
            tick.holds = self.hold.step(tick.now_s, inputs.measured_position_world, self._goal_world, tick.task)
            nominal = slower(caution := standing(tick.holds, self.motion.assumptions.caution), nominal)
            nominal = self._deadlock.resolved(inputs.stop.position_world, inputs.table, inputs.peers.first, nominal)
            tick.wanted_world = self._deadlock.wanted_world
            tick.deadlock_memory = self._deadlock.memory
            shield, tick.caution = wider(caution, shield), () if caution is None else astuple(caution)
        number = np.array(float(self._sequence + 1))
        tick.result, space = self._bodies.check(shield, inputs, space, nominal, number)
        if int(tick.result.status) == ShieldStatus.BRAKED:
            raise BrakeReason("shield_braked")
        self._deadlock.moved(tick.result.control_velocity_world)
        self._space = space
