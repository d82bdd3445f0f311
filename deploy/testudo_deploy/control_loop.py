"""The control loop of one robot: inputs in, one shielded command and one record out, at every tick.

Pure logic on one injected steady clock, no ROS. Whatever goes wrong ends in a brake command and a
record that says why; `tick` never raises.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from testudo_deploy.artefact import Artefact
from testudo_deploy.estimate import predict
from testudo_deploy.messages import PeerMessage, TickRecord
from testudo_deploy.neighbours import NeighbourTable
from testudo_deploy.pending import PendingCommands
from testudo_deploy.roster import Roster
from testudo_deploy.shield.layer1 import ShieldResult, ShieldStatus, shield_layer1
from testudo_deploy.signals import policy_signals
from testudo_hardware.motion import LagResponse, MotionModel, MotionState, StoppingPoint, motion_model
from testudo_hardware.motion.model import effective_command
from testudo_hardware.spec import RobotSpec

_CLOCK_TOLERANCE_S = 0.002
"""A stamp this far in the future is a clock problem, not rounding."""
_LARGEST = 1e12
"""SI numbers beyond this are no measurement, and their squares may not be finite."""


class Doubt(Exception):  # noqa: N818 -- not an error: a reason to brake
    """Why this tick must brake; the text is a stable code."""


@dataclass(frozen=True)
class PoseSample:
    """A measured pose in the fleet's world frame, with its time on the steady clock."""

    stamp_s: float
    position_world: tuple[float, ...]
    yaw: float
    velocity: tuple[float, ...]
    """(D,): command channels, see `MotionState.velocity`."""


@dataclass
class _Tick:
    """What one tick has come to know and to do, filled in order; what is missing was not reached."""

    now_s: float
    late_s: float
    pose: PoseSample | None = None
    pending: tuple[np.ndarray, ...] = ()
    pending_s: tuple[float, ...] = ()
    estimate: MotionState | None = None
    stop: StoppingPoint | None = None
    table: NeighbourTable | None = None
    decided: bool = False
    result: ShieldResult | None = None
    reason: str = ""
    echoes: dict[str, tuple[str, float]] = field(default_factory=dict)
    """As heard when the tick began: an echo heard later would make the announcement look younger."""


class ControlLoop:
    """One robot's loop; times are seconds on one steady clock that the caller injects."""

    def __init__(self, artefact: Artefact, spec: RobotSpec, *, robot: str, peers: tuple[str, ...],
                 goal_world: tuple[float, ...], epoch: str) -> None:
        contract = artefact.contract
        self._artefact, self._spec, self._robot, self._epoch = artefact, spec, robot, epoch
        self._model = motion_model(spec)
        self._shield, self._decision_ticks = contract.shield, contract.decision_ticks
        self._arena = contract.arena
        self._goal_world = goal_world
        self._contract_hash = contract.contract_hash
        self._roster = Roster(robot, epoch, peers, self._contract_hash, spec.dimension)
        self._sent = PendingCommands(spec.command_delay_s, spec.dead_man_s)
        self._pose: PoseSample | None = None
        self._hidden = np.zeros(contract.hidden_size, np.float32)
        self._nominal: np.ndarray | None = None
        self._ticks_since_decision = 0
        self._sequence = 0
        self._last_now_s = -math.inf
        self._last_tick: _Tick | None = None
        self.refused_poses = 0
        """Pose samples that were not finite, absurdly large, out of order or from the future."""

    @property
    def refused_peer_messages(self) -> int:
        """Peer messages that were replayed, foreign or under another contract."""
        return self._roster.refused

    def on_odometry(self, stamp_s: float, received_s: float, position_world: tuple[float, ...], yaw: float,
                    velocity: tuple[float, ...]) -> bool:
        """Take a pose sample; returns False (and counts) if it is refused."""
        numbers = (stamp_s, yaw, *position_world, *velocity)
        late = self._pose is not None and stamp_s <= self._pose.stamp_s
        size = self._spec.dimension
        if (not all(abs(number) < _LARGEST for number in numbers) or late or stamp_s > received_s + _CLOCK_TOLERANCE_S
                or len(position_world) != size or len(velocity) != size):
            self.refused_poses += 1
            return False
        self._pose = PoseSample(stamp_s, tuple(position_world), yaw, tuple(velocity))
        return True

    def on_peer(self, message: PeerMessage, received_s: float) -> bool:
        """Take a peer's announcement; returns False (and counts) if it is refused."""
        return self._roster.hear(message, received_s)

    def tick(self, now_s: float, late_s: float = 0.0) -> TickRecord:
        """Run one control tick and return its record; ``record.sent_command`` is what to send."""
        begin = time.perf_counter()
        hidden_before = self._hidden
        tick = _Tick(now_s, late_s, echoes=self._roster.echoes())
        try:
            self._locate(tick)
            self._look_around(tick)
            self._decide(tick)
            self._check_command(tick)
        except Doubt as doubt:
            tick.reason = str(doubt)
        except Exception as error:  # noqa: BLE001  (nothing may keep the robot from braking)
            tick.reason = f"internal_error: {type(error).__name__}: {error}"
        if tick.reason:
            tick.result = None
            self._nominal, nominal = None, None  # decide afresh once the doubt is over
        else:
            nominal = self._nominal
        command = np.zeros(self._spec.dimension) if tick.result is None else tick.result.command
        self._last_now_s = max(now_s, self._last_now_s)
        self._sent.push(now_s, effective_command(self._model, command))
        self._last_tick = tick
        self._sequence += 1
        return self._record(tick, nominal, command, hidden_before, time.perf_counter() - begin)

    def announcement(self, now_s: float) -> PeerMessage | None:
        """Return what to tell the peers after a tick; None while the own pose is not known."""
        tick = self._last_tick
        if tick is None or tick.stop is None or tick.estimate is None or tick.pose is None:
            return None
        velocity = np.zeros(self._spec.dimension) if tick.result is None else tick.result.control_velocity_world
        return PeerMessage(
            robot=self._robot, epoch=self._epoch, sequence=self._sequence, stamp_s=now_s,
            sample_age_s=now_s - tick.pose.stamp_s,
            control_point_world=_floats(tick.stop.position_world), control_velocity_world=_floats(velocity),
            position_world=_floats(tick.estimate.position_world), yaw=float(tick.estimate.yaw),
            contract=self._contract_hash, echoes=tick.echoes)

    def _locate(self, tick: _Tick) -> None:
        """Predict the own state at which this tick's command will begin to act."""
        pose = self._pose
        if not tick.now_s > self._last_now_s:
            raise Doubt("clock_backwards")
        if pose is None:
            raise Doubt("no_pose")
        age_s = tick.now_s - pose.stamp_s
        if age_s > self._spec.pose_max_age_s:
            raise Doubt("stale_pose")
        if age_s < -_CLOCK_TOLERANCE_S:
            raise Doubt("clock_backwards")
        pending, pending_s = self._sent.since(pose.stamp_s, tick.now_s)
        measured = MotionState(np.array(pose.position_world), np.array(pose.yaw), np.array(pose.velocity))
        tick.pose, tick.pending, tick.pending_s = pose, tuple(pending), pending_s
        tick.estimate = estimate_state(self._model, measured, tick.pending, pending_s)
        tick.stop = self._model.stopping_point(tick.estimate)

    def _look_around(self, tick: _Tick) -> None:
        unheard = self._roster.unheard()
        if unheard:
            raise Doubt(f"peer_unheard: {', '.join(unheard)}")
        tick.table = self._roster.table(tick.now_s)

    def _decide(self, tick: _Tick) -> None:
        """Run the policy at its period; in between, its last command is held."""
        if self._nominal is not None and self._ticks_since_decision < self._decision_ticks:
            self._ticks_since_decision += 1
            return
        signals = policy_signals(tick.estimate, tick.stop, tick.table, self._shield.hold_s,
                                 {"goal_world": np.array(self._goal_world)})
        try:
            nominal, hidden = self._artefact.step(slots_first(signals), self._hidden)
        except Exception as error:
            raise Doubt(f"policy_error: {error}") from error
        self._nominal, self._hidden = np.asarray(nominal, float), hidden
        self._ticks_since_decision = 1
        tick.decided = True

    def _check_command(self, tick: _Tick) -> None:
        tick.result = shield_layer1(self._model, self._shield, self._arena, tick.stop, tick.table,
                                    self._nominal)
        if int(tick.result.status) == ShieldStatus.BRAKED:
            raise Doubt("shield_braked")

    def _record(self, tick: _Tick, nominal: np.ndarray | None, command: np.ndarray,
                hidden_before: np.ndarray, duration_s: float) -> TickRecord:
        pose, estimate, table, result = tick.pose, tick.estimate, tick.table, tick.result
        return TickRecord(
            robot=self._robot, sequence=self._sequence - 1, stamp_s=tick.now_s, late_s=tick.late_s,
            duration_s=duration_s,
            pose_stamp_s=pose and pose.stamp_s, measured_position_world=pose and pose.position_world,
            measured_yaw=pose and pose.yaw, measured_velocity=pose and pose.velocity,
            pending_commands=tuple(map(_floats, tick.pending)), pending_time_s=tick.pending_s,
            estimate_position_world=estimate and _floats(estimate.position_world),
            estimate_yaw=estimate and float(estimate.yaw),
            estimate_velocity=estimate and _floats(estimate.velocity),
            control_point_world=tick.stop and _floats(tick.stop.position_world),
            goal_world=tuple(self._goal_world), neighbour_names=self._roster.peers,
            neighbour_control_point_world=_rows(table.control_point_world) if table else (),
            neighbour_control_velocity_world=(
                _rows(table.control_velocity_world) if table else ()),
            neighbour_age_s=_floats(table.age_s) if table else (),
            neighbour_valid=tuple(table.valid.tolist()) if table else (),
            decided=tick.decided, hidden_before=_floats(hidden_before), hidden_after=_floats(self._hidden),
            nominal_world=None if nominal is None else _floats(nominal),
            shielded_world=None if result is None else _floats(result.control_velocity_world),
            sent_command=_floats(command), change_m_s=0.0 if result is None else float(result.change_m_s),
            status="braked" if result is None else ShieldStatus(int(result.status)).name.lower(),
            reason=tick.reason)


def estimate_state(model: MotionModel, measured: MotionState, pending: Sequence[np.ndarray],
                   pending_s: tuple[float, ...]) -> MotionState:
    """Return the state after pending effective commands, newest first, each for its own time [s]."""
    if not pending:
        return measured
    responses = LagResponse.create(np.array(pending_s), model.spec.velocity_lag_s)
    return predict(model, measured, np.stack(pending), responses)


def slots_first(signals: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the signals of one robot with the component last: (D,), (K, D) and (K,)."""
    return {name: value.T for name, value in signals.items()}


def _floats(values: np.ndarray) -> tuple[float, ...]:
    return tuple(np.asarray(values, float).tolist())


def _rows(values: np.ndarray) -> tuple[tuple[float, ...], ...]:
    """Return (D, K) by slot, then axis."""
    return tuple(map(tuple, values.T.tolist()))
