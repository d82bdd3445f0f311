"""One robot's ticks through the same estimate, policy and shield as on the robot.

Every tick is teacher-forced: it starts from the recorded inputs, so that deviations do not add up. The order of the
ticks is checked too: the memory of the policy, the decision period, the held command, and the pending commands.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain
from math import isfinite
from typing import Any

import numpy as np

from testudo_analysis.replay.reinference_checks import FieldErrors
from testudo_analysis.replay.tick_batches import DeadlockTick, ShieldTick, TickBatches
from testudo_deploy.contract.command_types import limited_yaw_rate, split_message, split_output, tracking_of, turns
from testudo_deploy.contract.contract import Contract, policy_signals, slots_first
from testudo_deploy.contract.messages import EnvelopeError, TickRecord
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.contract.policy_header import ArtefactError
from testudo_deploy.contract.task_values import task_arrays
from testudo_deploy.control.deadlock_resolver import DeadlockResolver, is_former, resolved_by
from testudo_deploy.control.state_prediction import PendingCommands
from testudo_deploy.shield.caution import Caution, slower
from testudo_deploy.shield.flight_column import landing_shield
from testudo_deploy.shield.shield import Shield
from testudo_deploy.shield.stop_tube import stop_tube_parameters
from testudo_deploy.shield.velocity_projection import PeerTable
from testudo_deploy.supervision.modes import Mode
from testudo_hardware.motion import MotionModel, MotionState, StoppingPoint
from testudo_hardware.motion.motion_model import effective_command

FIELDS = {
    "pose": "the odometry sample of the same stamp",
    "goal": "the fleet file of the run",
    "pending": "the commands sent before, with their stamps",
    "estimate": "measured pose rolled through the pending commands",
    "control point": "stopping point of the recorded estimate",
    "neighbours": "a recorded announcement of the peer",
    "schedule": "decision period: 0 as expected, 1 otherwise",
    "memory": "hidden state after the previous tick",
    "nominal": "policy on the recorded inputs, held between decisions; velocity, yaw rate, way-point and message",
    "hidden": "policy on the recorded inputs",
    "deadlock": "deadlock rule on the recorded inputs and its memory of the tick before",
    "shielded": "shield on the recorded inputs and the nominal just inferred, turned as recorded",
    "sent": "actuator command of that shield and yaw rate within its limits; zero when braked",
}
"""Compared quantities, and their references."""
TASK_FIELDS = {
    "task": "a recorded message of the task node: values and age",
    "sensor": "a recorded message of the sensor of a signal: values and age",
}
"""Further ones of a run whose task node sends signals."""

_PLAIN = frozenset({float})
AFTER_A_LOSS = "held command after a lost tick"
_BRAKED_BY_SHIELD = "shield_braked"
_DOWN = (str(Mode.LAND), str(Mode.EMERGENCY))  # modes of a descent under the landing shield


@dataclass
class TickReplay:
    """Takes the ticks of one robot in order and compares them with recomputed ones."""

    artefact: PolicyArtefact
    model: MotionModel
    errors: FieldErrors = field(default_factory=lambda: FieldErrors(FIELDS))
    skipped: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    decisions: int = 0
    reinferred: int = 0
    _last: TickRecord | None = None
    _nominal: np.ndarray | None = None
    _waypoint: np.ndarray | None = None  # of a policy that chooses one
    _yaw_rate: float = 0.0  # [rad/s]: nominal, of a policy that commands one
    _message: np.ndarray | None = None  # of a policy that says one
    _since_decision: int = 0
    _sent: PendingCommands = field(init=False)
    _sent_from_s: float = -np.inf  # commands are known from this stamp on; -inf: from the first one
    _estimate: tuple[object, object, object] | None = None  # recorded, of the current tick: place, yaw, velocity
    _state: MotionState | None = None  # the same as arrays, where they are needed
    _batches: TickBatches = field(init=False)

    def __post_init__(self) -> None:
        self._batches = TickBatches(self.model, self.errors)

    def take_all(self, records: Sequence[TickRecord]) -> None:
        """Compare ticks in order."""
        for record, effective in zip(records, _effective_commands(self.model, records), strict=True):
            self.take(record, effective)

    def take(self, record: TickRecord, effective: np.ndarray | None = None) -> None:
        """Compare the next tick; ``effective`` is the effective command (D,) of what it sent, if that is known."""
        # compare the memory with the previous tick; forget what a lost tick makes unknown
        last = self._last
        if record.sequence == 0 or (last is not None and record.sequence <= last.sequence):
            self._forget(-np.inf)
            if record.sequence == 0:
                self.errors.add("memory", 0, np.zeros(self.artefact.contract.hidden_size), record.hidden_before)
        elif last is None or record.sequence > last.sequence + 1:
            self.lost += record.sequence - (last.sequence + 1 if last else 0)
            self._forget(record.stamp_s)
        else:
            self.errors.add("memory", record.sequence, last.hidden_after, record.hidden_before)
        try:
            self._check_estimate(record)
            code = record.reason.split(":")[0]
            if not code:
                self._infer(record)
            elif code in _DOWN and record.nominal_world is not None:
                # infer the shield of a landing, whose nominal command is the recorded one
                self._nominal = np.array(record.nominal_world)
                self._check_shield(record, self._landing_shield, 0.0)
                self._nominal = None
            else:
                self.skipped[code] += 1
                self.errors.add("sent", record.sequence, _flat(0 * np.array(record.sent_command), 0.0), _sent(record))
                if code == _BRAKED_BY_SHIELD:
                    self._infer_braked(record)
                self._nominal = None
            own = effective_command(self.model, np.array(record.sent_command)) if effective is None else effective
            self._sent.push(record.stamp_s, own)
        except (ValueError, TypeError, IndexError):
            # numbers are missing or inconsistent: the control loop cannot have computed such a tick
            self.errors.add("sent", record.sequence, None, record.sent_command)
            self._forget(record.stamp_s)
        self._last = record

    def finish(self) -> None:
        """Compare what needs the recorded inputs of a tick alone, for all ticks."""
        self._batches.compare()

    def _forget(self, sent_from_s: float) -> None:
        self._sent = PendingCommands(self.model.spec.command_delay_s, self.model.spec.dead_man_s)
        self._sent_from_s = sent_from_s
        self._nominal, self._since_decision = None, 0

    def _check_estimate(self, record: TickRecord) -> None:
        stamp_s, add = record.pose_stamp_s, partial(self._add, record)
        if (stamp_s is None or record.estimate_position_world is None) and record.reason:
            return
        self._state = None
        self._estimate = (record.estimate_position_world, record.estimate_yaw, record.estimate_velocity)
        if stamp_s is None:
            raise ValueError("a driven tick without a pose")
        if stamp_s - self.model.spec.command_delay_s >= self._sent_from_s:
            pending, pending_s = self._sent.since(stamp_s, record.stamp_s)
            found = [number for command in pending for number in command.tolist()]
            add("pending", [*found, *pending_s], _flat(record.pending_commands, record.pending_time_s))
        self._batches.add_estimate(record)

    def _add(self, record: TickRecord, name: str, found: object, recorded: object) -> None:
        self.errors.add(name, record.sequence, found, recorded)

    def _infer(self, record: TickRecord) -> None:
        """Infer policy and shield of a tick that sent a command."""
        if not self._decide(record):
            self.skipped[AFTER_A_LOSS] += 1
            return
        nominal = _flat(record.nominal_world, record.nominal_yaw_rate, record.waypoint_world, record.message)
        waypoint, said = (() if value is None else value for value in (self._waypoint, self._message))
        found = None if self._nominal is None else self._nominal.tolist()
        self._add(record, "nominal", _flat(found, self._yaw_rate, waypoint, said), nominal)
        turn = 0.0 if record.holds else limited_yaw_rate(self.artefact.contract.command, self._yaw_rate)
        self._check_deadlock(record)
        self._check_shield(record, self._whole_shield, turn)

    def _check_deadlock(self, record: TickRecord) -> None:
        """Compare the memory of the deadlock rule with one step of the rule from the tick before."""
        last, nominal = self._last, self._nominal
        if not record.deadlock_memory or is_former(record.deadlock_memory):
            return
        if nominal is None or last is None or last.sequence + 1 != record.sequence:
            return
        if last.deadlock_memory and last.shielded_world and not last.reason:
            memory, moved = last.deadlock_memory, last.shielded_world
        else:
            memory, moved = self._rule.initial_memory, (0.0,) * len(nominal)
        wanted = slower(_caution(record), nominal)
        self._batches.add_deadlock(DeadlockTick(record, self._rule, memory, moved, wanted))

    def _check_shield(self, record: TickRecord, shield: Shield, turn: float) -> None:
        """Compare the result of a shield that must not have braked, with a yaw rate [rad/s] beside it."""
        self.reinferred += 1
        wanted = self._wanted(record)
        if wanted is None:
            self._add(record, "shielded", None, record.shielded_world)
            self._add(record, "sent", None, _sent(record))
            return
        self._batches.add_shield(ShieldTick(record, shield, wanted, turn, brakes=False))

    def _infer_braked(self, record: TickRecord) -> None:
        """The shield must brake again; the record holds no nominal command to compare."""
        if not self._decide(record):
            return
        wanted = self._wanted(record)
        if wanted is None:
            self._add(record, "shielded", np.inf, 0.0)
            return
        self._batches.add_shield(ShieldTick(record, self._whole_shield, wanted, 0.0, brakes=True))

    def _decide(self, record: TickRecord) -> bool:
        """Update the nominal command to this tick; False if it is unknown."""
        contract = self.artefact.contract
        period = contract.decision_ticks
        if self._nominal is None and not record.decided:
            return False
        due = self._nominal is None or self._since_decision >= period
        self._add(record, "schedule", float(due), float(record.decided))
        if not record.decided:
            self._since_decision += 1
            self._add(record, "hidden", record.hidden_before, record.hidden_after)
            self._track()
            return True
        self._since_decision = 1
        self.decisions += 1
        task = recorded_task(record, contract)
        table = recorded_table(record, contract.command.message_size)
        signals = policy_signals(*self._known_state(), table, contract.shield.hold_s, task)
        try:
            nominal, hidden = self.artefact.step(slots_first(signals), np.array(record.hidden_before, np.float32))
        except ArtefactError:
            size = self.model.spec.dimension + turns(contract.command) + contract.command.message_size
            nominal, hidden = np.full(size, np.inf), None
        moves, self._message = split_message(np.asarray(nominal, float), contract.command.message_size)
        self._nominal, self._yaw_rate = split_output(contract.command, moves)
        self._waypoint = None if tracking_of(contract.command) is None else self._nominal
        self._add(record, "hidden", hidden, record.hidden_after)
        self._track()
        return True

    def _track(self) -> None:
        """Update the nominal velocity to that towards the way-point, where the policy chooses one."""
        tracking = tracking_of(self.artefact.contract.command)
        if tracking is not None and self._waypoint is not None:
            self._nominal = tracking.velocity_world(self._waypoint, self._known_state()[1].position_world)

    def _known_state(self) -> tuple[MotionState, StoppingPoint]:
        """Return the recorded estimate of the tick, and its stopping point."""
        if self._estimate is None:
            raise ValueError("a driven tick without an estimate")
        if self._state is None:
            self._state = MotionState(*map(np.array, self._estimate))
        return self._state, self.model.stopping_point(self._state)

    def _wanted(self, record: TickRecord) -> np.ndarray | None:
        """Return the velocity (D,) [m/s] that the shield got; None if the nominal one is unknown or not finite."""
        if self._nominal is None or not all(map(isfinite, self._nominal.tolist())):
            return None
        wanted = slower(_caution(record), self._nominal)
        return resolved_by(record.deadlock_memory, wanted) if record.deadlock_memory else wanted

    @cached_property
    def _rule(self) -> DeadlockResolver:
        contract, spec = self.artefact.contract, self.model.spec
        return DeadlockResolver(contract.shield, contract.arena, spec.control_period_s, spec.dimension)

    @cached_property
    def _whole_shield(self) -> Shield:
        contract = self.artefact.contract
        return Shield(self.model, contract.shield, stop_tube_parameters(self.model.spec), contract.arena)

    @cached_property
    def _landing_shield(self) -> Shield:
        return landing_shield(self._whole_shield)


def _caution(record: TickRecord) -> Caution | None:
    """Return the limits of a robot whose motion was outside of its file."""
    return Caution(*record.caution) if record.caution else None


def recorded_table(record: TickRecord, message_size: int = 0) -> PeerTable:
    """Return the recorded neighbour table (D, K), with learned messages (``message_size``, K) for a policy."""
    shape = (len(record.neighbour_names), len(record.goal_world))
    return PeerTable(
        np.array(record.neighbour_control_point_world, float).reshape(shape).T,
        np.array(record.neighbour_control_velocity_world, float).reshape(shape).T,
        np.array(record.neighbour_age_s, float).reshape(shape[:1]),
        np.array(record.neighbour_valid, bool).reshape(shape[:1]),
        np.array(record.neighbour_untrusted, bool) if any(record.neighbour_untrusted) else None,
        wanted_world=np.array(record.neighbour_wanted_world, float).reshape(shape).T
        if record.neighbour_wanted_world
        else None,
        message=np.array(record.neighbour_message, float).reshape(shape[0], message_size).T if message_size else None,
    )


def recorded_task(record: TickRecord, contract: Contract) -> dict[str, np.ndarray]:
    """Return the signals of the task at a decision, component first: the goal, and what the task node had sent.

    Raises:
        ValueError: the record does not have the signals of the contract.
    """
    task = {"goal_world": np.array(record.goal_world)}
    if not record.task_contract:
        return task
    try:
        # a robot whose sensors send all other signals has its goal from the fleet file
        read = [one for one in contract.task_signals if one.name in record.task_values or one.name not in task]
        return task | task_arrays(read, record.task_values, len(record.neighbour_names))
    except EnvelopeError as error:
        raise ValueError(str(error)) from error


def _effective_commands(model: MotionModel, records: Sequence[TickRecord]) -> list[np.ndarray] | list[None]:
    """Return the effective command (D,) of each tick, computed at once; nothing where a tick has another number."""
    if not records or {len(record.sent_command) for record in records} != {model.spec.dimension}:
        return [None] * len(records)
    sent = np.array([record.sent_command for record in records], float)
    return list(effective_command(model, sent.T).T)


def _sent(record: TickRecord) -> list[float] | None:
    """Return the sent command, the yaw rate last."""
    return _flat(record.sent_command, record.sent_yaw_rate)


def _is_table(part: tuple[Any, ...]) -> bool:
    """Return whether a part is rows of plain numbers, all of one length."""
    rows = {*map(type, part)} == {tuple} and len({*map(len, part)}) == 1
    return rows and {*map(type, chain.from_iterable(part))} <= _PLAIN


def _flat(*parts: object) -> list[float] | None:
    """Return all numbers of the parts in a row; None if one is missing.

    Raises:
        ValueError: the rows of a part have different lengths.
    """
    row: list[float] = []
    for part in parts:
        if part is None:
            return None
        if type(part) is float:
            row.append(part)
        elif type(part) is tuple or type(part) is list:
            row += part
        else:
            return _flat_slowly(parts)
    return row if {*map(type, row)} <= _PLAIN else _flat_slowly(parts)


def _flat_slowly(parts: tuple[object, ...]) -> list[float] | None:
    """Return the same for parts of any kind."""
    for part in parts:
        if part is None:
            return None
    row: list[float] = []
    for part in parts:
        if isinstance(part, tuple) and _is_table(part):
            row += chain.from_iterable(part)
        else:
            row += np.asarray(part, float).ravel().tolist()
    return row
