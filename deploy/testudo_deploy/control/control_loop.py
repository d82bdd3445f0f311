"""The control loop of one robot: inputs in, one shielded command and one record out, at every tick.

Pure logic on one injected steady clock, no ROS. Whatever goes wrong ends in a brake command and a
record that says why; `tick` never raises.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from testudo_deploy.contract.command_types import check_shielded, limited_yaw_rate, split_output, turns
from testudo_deploy.contract.messages import PeerMessage, TickRecord
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.contract.signals import policy_signals
from testudo_deploy.control.control_tick import PoseSample, Tick, TickRecorder, floats, segment_ends
from testudo_deploy.control.motion_monitor import MotionMonitor
from testudo_deploy.control.peer_tracker import PeerMeasurement, PeerTracker
from testudo_deploy.control.pending_commands import PendingCommands
from testudo_deploy.control.pose_validator import PoseValidator
from testudo_deploy.control.state_prediction import predict_state
from testudo_deploy.shield.flight_column import (
    column_below,
    landing_shield,
    requesting_landing_column,
    unknown_robots_near,
)
from testudo_deploy.shield.peer_table import PeerTable
from testudo_deploy.shield.reservations import ShieldInputs
from testudo_deploy.shield.reserved_space import (
    NOTHING_HEARD,
    PeerReservations,
    ReservedSpace,
    conflicts,
    reserved_at_rest,
)
from testudo_deploy.shield.segment_distance import point_distance
from testudo_deploy.shield.shield import Shield
from testudo_deploy.shield.tube_margins import stop_tube_parameters
from testudo_deploy.shield.velocity_projection import ShieldStatus
from testudo_hardware.motion import LagResponse, MotionModel, MotionState, motion_model
from testudo_hardware.motion.motion_model import effective_command
from testudo_hardware.spec import RobotSpec

_CLOCK_TOLERANCE_S = 0.002
"""A stamp this far in the future is a clock problem, not rounding."""
_CLOSER_M = 0.001
"""Lanes this much closer than the clearance are no rounding."""
_LARGEST = 1e12
"""SI numbers beyond this are no measurement, and their squares may not be finite."""


class BrakeReason(Exception):  # noqa: N818 -- not an error: a reason to brake
    """Why this tick must brake; the text is a stable code."""


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
        untrusted: tuple[str, ...] = (),
        pose_max_age_s: float | None = None,
        stopwatch: Callable[[], float] = time.perf_counter,
    ) -> None:
        contract = artefact.contract
        check_shielded(contract.command.type, robot)
        self._artefact, self._spec, self._robot, self._epoch = artefact, spec, robot, epoch
        self._model = motion_model(spec)
        self._shield = Shield(self._model, contract.shield, stop_tube_parameters(spec), contract.arena)
        self._landing = landing_shield(self._shield)
        self._decision_ticks, self._command = contract.decision_ticks, contract.command
        self._goal_world, self._stopwatch = tuple(goal_world), stopwatch
        self._contract_hash = contract.contract_hash
        self._roster = PeerTracker(robot, epoch, peers, self._contract_hash, spec.dimension)
        self._roster.untrusted.update(untrusted)
        self._sent = PendingCommands(spec.command_delay_s, spec.dead_man_s)
        self._pose_max_age_s = spec.pose_max_age_s if pose_max_age_s is None else pose_max_age_s
        self._pose: PoseSample | None = None
        self._whereabouts = PoseValidator(spec, self._pose_max_age_s, turns=turns(contract.command))
        self._motion = MotionMonitor(spec, self._sent)
        self._space: ReservedSpace | None = None
        self._placed = False
        """The robot's first lane is clear of all others; only then does it own and ask for space."""
        self._told_since = NOTHING_HEARD
        """Number of the first message from a new place; peers have to know it before the robot asks for space."""
        self._recorder = TickRecorder(robot, self._roster.peers)
        self._hidden = np.zeros(contract.hidden_size, np.float32)
        self._nominal: np.ndarray | None = None
        self._yaw_rate = 0.0
        """[rad/s] beside it, from a policy that commands one; nothing has to be checked for it."""
        self._ticks_since_decision = 0
        self._sequence = 0
        self._last_now_s, self._behind_s = -math.inf, math.inf
        self._last_tick: Tick | None = None
        self._announced: PeerMessage | None = None
        """The last announcement that rested on a pose."""
        self.take_off_to_m: float | None = None
        """Height to which a vehicle that stands on the ground is to climb: the column below it is asked for, too."""
        self.lands_to_m: float | None = None
        """Height of the ground on which its vehicle lands it by itself: the column down to there is asked for."""
        self.climbs = False
        """It takes off: whoever comes into its column ends that."""
        self.flown_by_itself = False
        """The vehicle's own planner moves it, and not the commands: what it does with them is not judged."""
        self.refused_poses = 0
        """Pose samples that were not finite, absurdly large, out of order or from the future."""

    @property
    def pose(self) -> PoseSample | None:
        """Return the newest pose; None before the first."""
        return self._pose

    @property
    def located(self) -> bool:
        """Return whether the newest pose is believed."""
        return self._whereabouts.located

    @property
    def strays(self) -> str:
        """Return how far off the lane that it owns it was seen, if that is more than others keep clear of."""
        tick, space = self._last_tick, self._shield.space
        if tick is None or tick.pose is None or self._space is None:
            return ""
        off_m = float(point_distance(np.array(tick.pose.position_world, float), *self._space.owned_world))
        most_m = space.lane_m + space.tube_error_m
        return "" if off_m <= most_m else f"found {off_m:.2f} m off the lane that it owns, allowed {most_m:.2f} m"

    @property
    def refused_peer_messages(self) -> int:
        """Peer messages that were replayed, foreign or under another contract."""
        return self._roster.refused

    def on_odometry(
        self,
        stamp_s: float,
        received_s: float,
        position_world: tuple[float, ...],
        yaw: float,
        velocity: tuple[float, ...],
    ) -> bool:
        """Take a pose sample; returns False (and counts) if it is refused."""
        numbers = (stamp_s, yaw, *position_world, *velocity)
        late = self._pose is not None and stamp_s <= self._pose.stamp_s
        size = self._spec.dimension
        if (
            not all(abs(number) < _LARGEST for number in numbers)
            or late
            or stamp_s > received_s + _CLOCK_TOLERANCE_S
            or len(position_world) != size
            or len(velocity) != size
        ):
            self.refused_poses += 1
            return False
        measured = MotionState(np.array(position_world, float), np.array(yaw, float), np.array(velocity, float))
        before = self._pose
        if self._whereabouts.take(measured, stamp_s):
            self._motion.begin(measured)
            if before is not None:
                self._placed, self._told_since = False, self._sequence + 1
        elif self.flown_by_itself:
            self._motion.begin(measured)
        else:
            self._motion.follow(self._whereabouts.anchor, self.located, before.stamp_s, stamp_s, received_s)
        self._pose = PoseSample(stamp_s, tuple(position_world), yaw, tuple(velocity))
        return True

    def on_guard(self, *, passes: bool, received_s: float) -> None:
        """Note whether the guard passes commands on; a robot that it brakes need not move as commanded."""
        self._motion.hear_guard(passes=passes, received_s=received_s)

    def on_vehicle(self, *, passes: bool) -> None:
        """Note whether the driver of a vehicle that flies passes commands on, as with the guard."""
        self._motion.hear_vehicle(passes=passes)

    def on_peer(self, message: PeerMessage, received_s: float) -> bool:
        """Take a peer's announcement; returns False (and counts) if it is refused."""
        return message.robot not in self._roster.untrusted and self._roster.hear(message, received_s)

    def on_sighting(self, peer: str, sighting: PeerMeasurement) -> bool:
        """Take where a tracking system saw a peer; returns False (and counts) if it is refused."""
        return self._roster.see(peer, sighting)

    def aim(self, goal_world: tuple[float, ...]) -> None:
        """Give the robot another goal (D,) [m]; the shield takes no notice of goals."""
        self._goal_world = tuple(goal_world)

    def let_go(self) -> None:
        """Forget the own space: the robot may be carried. From the next tick it owns where it stands, if that is free.

        Only for a robot that does not drive.
        """
        self._placed = False
        self._whereabouts.pardon()

    def tick(
        self, now_s: float, late_s: float = 0.0, order: str = "", wish_world: Sequence[float] | None = None
    ) -> TickRecord:
        """Run one control tick and return its record; ``record.sent_command`` is what to send.

        Args:
            now_s: the clock.
            late_s: how late the tick begins.
            order: why the robot has to brake whatever the loop finds, ``code: details``; empty if it may drive. The
                loop still looks around: its own doubts, which come first in the record, say whether it could drive.
            wish_world: velocity (D,) [m/s] that is wanted in spite of the order and in place of the policy's, to land:
                the shield of a landing looks at it, and what is wrong with brakes or actuators keeps nobody up.
        """
        begin = self._stopwatch()
        hidden_before = self._hidden
        tick = Tick(now_s, late_s, self._goal_world, space=self._space, echoes=self._roster.echoes())
        try:
            self._locate(tick)
            if wish_world is None:
                self._check_motion()
            self._look_around(tick)
            if wish_world is None:
                _obey(order)
                self._decide(tick)
            else:
                self._nominal, self._yaw_rate = np.array(wish_world, float), 0.0
            self._check_command(tick, self._shield if wish_world is None else self._landing)
        except BrakeReason as doubt:
            tick.reason = str(doubt)
        except Exception as error:  # noqa: BLE001  (nothing may keep the robot from braking)
            tick.reason = f"internal_error: {type(error).__name__}: {error}"
        if tick.reason:
            tick.result = None
            self._nominal, nominal = None, None  # decide afresh once the doubt is over
        else:
            nominal, tick.nominal_yaw_rate = self._nominal, self._yaw_rate
            tick.yaw_rate = limited_yaw_rate(self._command, self._yaw_rate)
            if wish_world is not None:
                tick.reason, self._nominal = order, None
        command = np.zeros(self._spec.dimension) if tick.result is None else tick.result.command
        self._last_now_s = max(now_s, self._last_now_s)
        self._sent.push(now_s, effective_command(self._model, command))
        self._last_tick = tick
        if self.lands_to_m is not None and self._space is not None and self._whereabouts.anchor is not None:
            self._space = requesting_landing_column(
                self._space, np.asarray(self._whereabouts.anchor.position_world, float), self.lands_to_m
            )
        self._sequence += 1
        return self._recorder.record(
            tick,
            sequence=self._sequence - 1,
            nominal=nominal,
            command=command,
            hidden=(hidden_before, self._hidden),
            duration_s=self._stopwatch() - begin,
        )

    def announcement(self, now_s: float) -> PeerMessage | None:
        """Return what to tell the peers after a tick; None while the own pose is not known.

        One whose vehicle lands it without a pose goes on to say where it was last, and which column it comes down in.
        """
        tick = self._last_tick
        space = self._space
        if tick is None or space is None:
            return None
        if tick.stop is None or tick.estimate is None or tick.pose is None:
            return self._announcement_without_pose(now_s, space)
        velocity = np.zeros(self._spec.dimension) if tick.result is None else tick.result.control_velocity_world
        self._announced = PeerMessage(
            robot=self._robot,
            epoch=self._epoch,
            sequence=self._sequence,
            stamp_s=now_s,
            sample_age_s=now_s - tick.pose.stamp_s,
            control_point_world=floats(tick.stop.position_world),
            control_velocity_world=floats(velocity),
            position_world=floats(tick.estimate.position_world),
            yaw=float(tick.estimate.yaw),
            contract=self._contract_hash,
            reserved_segment_world=segment_ends(space.owned_world),
            requested_segment_world=segment_ends(space.announced_world),
            echoes=tick.echoes,
        )
        return self._announced

    def _announcement_without_pose(self, now_s: float, space: ReservedSpace) -> PeerMessage | None:
        """Return the last announcement, older, with the column of a landing; it acknowledges nothing new."""
        last = self._announced
        if last is None or self.lands_to_m is None or now_s < last.stamp_s:
            return None
        return replace(
            last,
            sequence=self._sequence,
            stamp_s=now_s,
            sample_age_s=last.sample_age_s + now_s - last.stamp_s,
            requested_segment_world=segment_ends(space.announced_world),
        )

    def _locate(self, tick: Tick) -> None:
        """Predict the own state at which this tick's command will begin to act."""
        pose = self._pose
        self._check_clock(tick.now_s)
        if pose is None:
            raise BrakeReason("no_pose")
        age_s = tick.now_s - pose.stamp_s
        if age_s > self._pose_max_age_s:
            raise BrakeReason("stale_pose")
        if age_s < -_CLOCK_TOLERANCE_S:
            raise BrakeReason("clock_backwards")
        if not self.located:
            raise BrakeReason("pose_jump")
        pending, pending_s = self._sent.since(pose.stamp_s, tick.now_s)
        measured = MotionState(np.array(pose.position_world), np.array(pose.yaw), np.array(pose.velocity))
        tick.pose, tick.pending, tick.pending_s = pose, tuple(pending), pending_s
        tick.estimate = estimate_state(self._model, measured, tick.pending, pending_s)
        tick.stop = self._model.stopping_point(tick.estimate)

    def _check_motion(self) -> None:
        if self._motion.finding:
            raise BrakeReason(self._motion.finding)
        if self._whereabouts.restless:
            raise BrakeReason("pose_restless")

    def _check_clock(self, now_s: float) -> None:
        """Brake while the clock is behind; once it goes on there, as after a jump, nothing of before counts."""
        if now_s > self._last_now_s:
            self._behind_s = math.inf
            return
        if now_s > self._behind_s:
            self._pose = self._announced = None
            self._whereabouts.forget()
            self._sent.clear()
            self._roster.forget()
            self._last_now_s, self._behind_s = -math.inf, math.inf
        elif now_s < math.inf:
            self._behind_s = now_s
        raise BrakeReason("clock_backwards")

    def _look_around(self, tick: Tick) -> None:
        if not self._placed:  # at rest since the start: what it owns is where it stands
            self._space = reserved_at_rest(np.array(tick.pose.position_world, float))
        tick.space = self._space
        for code, names in (("peer_unheard", self._roster.unheard()), ("untrusted_unseen", self._roster.unseen())):
            if names:
                raise BrakeReason(f"{code}: {', '.join(names)}")
        space = self._shield.space
        self._roster.untrusted.update(self._roster.doubtful(space, tick.now_s, self._spec.control_point_speed_m_s))
        tick.table = self._roster.table(tick.now_s)
        tick.peers = self._roster.spaces(tick.now_s, space.silence_s)
        if not self._placed:
            self._locate_self(tick.peers, tick.table)
            tick.space = self._space
        # no two robots own the same place, unless one of them was wrong about where it is
        hits, _ = conflicts(
            self._space.owned_world[:, :, None], tick.peers, space.clearance_m - _CLOSER_M, space.height_ratio
        )
        code = "column_entered" if self.climbs else "peer_in_space"
        self._reject_peers(code, hits[:, 0] & tick.peers.reserves)
        if self.climbs:
            self._reject_peers(code, self._unknown_robots_near(self._space, tick.table))

    def _locate_self(self, peers: PeerReservations, table: PeerTable) -> None:
        """Begin to own space, if the place where the robot stands is clear of the others'."""
        lanes = self._space.owned_world[:, :, None]
        space = self._shield.space
        hits = np.any(conflicts(lanes, peers, space.clearance_m, space.height_ratio), axis=(0, 2))
        self._reject_peers("too_close", hits & peers.reserves)
        alone = peers.silent & peers.first & (peers.acknowledged > NOTHING_HEARD)  # as in `judge`
        self._reject_peers("peer_unaware", ~((peers.acknowledged >= self._told_since) | alone) & peers.reserves)
        if self.take_off_to_m is not None:
            column = column_below(self._space, self.take_off_to_m)
            lanes = column.owned_world[:, :, None]
            hits = np.any(conflicts(lanes, peers, space.clearance_m, space.height_ratio), axis=(0, 2))
            self._reject_peers("column_taken", hits & peers.reserves)
            self._reject_peers("column_taken", self._unknown_robots_near(column, table))
            self._space = column
        self._placed = True

    def _unknown_robots_near(self, space: ReservedSpace, table: PeerTable) -> np.ndarray:
        return unknown_robots_near(self._spec, self._shield.space, space.owned_world, table)

    def _reject_peers(self, code: str, which: np.ndarray) -> None:
        names = [name for name, is_meant in zip(self._roster.peers, which, strict=True) if is_meant]
        if names:
            raise BrakeReason(f"{code}: {', '.join(names)}")

    def _decide(self, tick: Tick) -> None:
        """Run the policy at its period; in between, its last command is held."""
        if self._nominal is not None and self._ticks_since_decision < self._decision_ticks:
            self._ticks_since_decision += 1
            return
        signals = policy_signals(
            tick.estimate,
            tick.stop,
            tick.table,
            self._shield.parameters.hold_s,
            {"goal_world": np.array(self._goal_world)},
        )
        try:
            nominal, hidden = self._artefact.step(slots_first(signals), self._hidden)
        except Exception as error:
            raise BrakeReason(f"policy_error: {error}") from error
        if not (np.all(np.abs(nominal) < np.inf) and np.all(np.abs(hidden) < np.inf)):
            raise BrakeReason("policy_error: the policy gave numbers that are not finite")
        self._nominal, self._yaw_rate = split_output(self._command, np.asarray(nominal, float))
        self._hidden = hidden
        self._ticks_since_decision = 1
        tick.decided = True

    def _check_command(self, tick: Tick, shield: Shield) -> None:
        sight = ShieldInputs(
            np.array(tick.pose.position_world, float), tick.estimate, tick.stop, tick.table, tick.peers
        )
        result, space = shield.step(sight, self._space, self._nominal, np.array(float(self._sequence + 1)))
        tick.result = result
        if int(result.status) == ShieldStatus.BRAKED:
            raise BrakeReason("shield_braked")
        self._space = space


def _obey(order: str) -> None:
    if order:
        raise BrakeReason(order)


def estimate_state(
    model: MotionModel, measured: MotionState, pending: Sequence[np.ndarray], pending_s: tuple[float, ...]
) -> MotionState:
    """Return the state after pending effective commands, newest first, each for its own time [s]."""
    if not pending:
        return measured
    responses = LagResponse.create(np.array(pending_s), model.spec.velocity_lag_s)
    return predict_state(model, measured, np.stack(pending), responses)


def slots_first(signals: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the signals of one robot with the component last: (D,), (K, D) and (K,)."""
    return {name: value.T for name, value in signals.items()}
