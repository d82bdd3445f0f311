"""Estimate, stopping point and shield of many ticks at once: their inputs are recorded, so that none waits for another.

One call of the shield costs the same for one tick and for hundreds; ticks with equal settings are one batch.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from testudo_analysis.replay.reinference_checks import FieldErrors
from testudo_deploy.contract.messages import TickRecord, Vector
from testudo_deploy.control.deadlock_resolver import DeadlockResolver
from testudo_deploy.control.state_prediction import predict_state
from testudo_deploy.shield.caution import Caution, wider
from testudo_deploy.shield.reservations import NOTHING_HEARD, PeerReservations, ReservedSpace, ShieldInputs
from testudo_deploy.shield.sensed_bodies import SensedBodies
from testudo_deploy.shield.shield import Shield
from testudo_deploy.shield.stop_tube import with_untrusted_speed
from testudo_deploy.shield.velocity_projection import PeerTable, ShieldStatus
from testudo_hardware.motion import LagResponse, MotionModel, MotionState

_MOST = 1024  # ticks of one call, so that its arrays fit the cache


class ShieldTick(NamedTuple):
    """One tick whose shield is computed again."""

    record: TickRecord
    shield: Shield  # of the robot, or of its landing; without what the record adds
    wanted_world: np.ndarray  # (D,) [m/s]: velocity that the shield got
    turn: float  # [rad/s]: yaw rate beside the command
    brakes: bool  # the shield must brake


class DeadlockTick(NamedTuple):
    """One tick whose deadlock rule is computed again."""

    record: TickRecord
    rule: DeadlockResolver
    memory: tuple[float, ...]  # of the tick before
    moved_world: Vector  # (D,) [m/s]: what the shield allowed in the tick before
    wanted_world: np.ndarray  # (D,) [m/s]: velocity that the rule got


@dataclass(frozen=True)
class ShieldBatch:
    """Results of the shield for ticks T."""

    braked: np.ndarray  # (T,) bool
    velocity_world: np.ndarray  # (D, T) [m/s]
    command: np.ndarray  # (D, T)


class TickBatches:
    """Collects the ticks of one robot, and compares them at the end."""

    def __init__(self, model: MotionModel, errors: FieldErrors) -> None:
        """Begin without any tick."""
        self._model, self._errors = model, errors
        self._estimated: list[TickRecord] = []
        self._shielded: list[ShieldTick] = []
        self._ruled: list[DeadlockTick] = []

    def add_estimate(self, record: TickRecord) -> None:
        """Add a tick with an estimate."""
        self._estimated.append(record)

    def add_shield(self, tick: ShieldTick) -> None:
        """Add a tick with a shielded command."""
        self._shielded.append(tick)

    def add_deadlock(self, tick: DeadlockTick) -> None:
        """Add a tick with a memory of the deadlock rule."""
        self._ruled.append(tick)

    def compare(self) -> None:
        """Compare all ticks. One whose numbers are missing or inconsistent deviates infinitely."""
        estimated = _grouped(self._estimated, lambda record: len(record.pending_commands))
        _in_batches(estimated, self._compare_estimates, self._spoil)
        shielded = _grouped(self._shielded, _settings)
        _in_batches(shielded, self._compare_shields, lambda tick: self._spoil(tick.record))
        ruled = _grouped(self._ruled, lambda tick: (_neighbours(tick.record), len(tick.memory)))
        _in_batches(ruled, self._compare_rules, lambda tick: self._spoil(tick.record))

    def _spoil(self, record: TickRecord) -> None:
        self._errors.add("sent", record.sequence, None, record.sent_command)

    def _compare_estimates(self, records: Sequence[TickRecord]) -> None:
        sequences = [record.sequence for record in records]
        measured = _state((r.measured_position_world, r.measured_yaw, r.measured_velocity) for r in records)
        recorded = _state((r.estimate_position_world, r.estimate_yaw, r.estimate_velocity) for r in records)
        rolled = measured
        if records[0].pending_commands:
            pending = _stacked([record.pending_commands for record in records], 2)
            times = _stacked([record.pending_time_s for record in records], 1)
            rolled = predict_state(self._model, measured, pending, LagResponse.create(times, self._lag_s))
        points = _stacked([record.control_point_world for record in records], 1)
        stop = self._model.stopping_point(recorded)
        self._errors.add_all("estimate", sequences, _rows(rolled), _rows(recorded))
        self._errors.add_all("control point", sequences, stop.position_world.T, points.T)

    def _compare_rules(self, ticks: Sequence[DeadlockTick]) -> None:
        records = [tick.record for tick in ticks]
        estimate = _state((r.estimate_position_world, r.estimate_yaw, r.estimate_velocity) for r in records)
        found = ticks[0].rule.memories(
            [tick.memory for tick in ticks],
            _stacked([tick.moved_world for tick in ticks], 1),
            self._model.stopping_point(estimate).position_world,
            _table(records),
            _lower_priorities(records),
            _stacked([tick.wanted_world for tick in ticks], 1),
        )
        recorded = _stacked([record.deadlock_memory for record in records], 1).T
        self._errors.add_all("deadlock", [record.sequence for record in records], found, recorded)

    @property
    def _lag_s(self) -> float:
        return self._model.spec.velocity_lag_s

    def _compare_shields(self, ticks: Sequence[ShieldTick]) -> None:
        found = shield_again(self._model, ticks)
        brakes = np.array([tick.brakes for tick in ticks])
        held, drives = np.flatnonzero(brakes), np.flatnonzero(~brakes)
        records = [ticks[row].record for row in drives.tolist()]
        turns = [ticks[row].turn for row in drives.tolist()]
        velocity = np.where(found.braked, np.inf, found.velocity_world).T[drives]
        command = np.column_stack([np.where(found.braked, np.inf, found.command).T[drives], turns])
        shielded = np.array([record.shielded_world for record in records], float)
        sent = np.array([(*record.sent_command, record.sent_yaw_rate) for record in records], float)
        zero = np.where(found.braked[held], 0.0, np.inf)
        stood = [ticks[row].record.sequence for row in held.tolist()]
        self._errors.add_all("shielded", stood, zero, np.zeros(len(held)))
        driven = [record.sequence for record in records]
        self._errors.add_all("shielded", driven, velocity, shielded)
        self._errors.add_all("sent", driven, command, sent)


def shield_again(model: MotionModel, ticks: Sequence[ShieldTick]) -> ShieldBatch:
    """Return the shield of ticks with equal `_settings`.

    Raises:
        ValueError: numbers of a record are missing or inconsistent; TypeError and IndexError likewise.
    """
    first, records = ticks[0].record, [tick.record for tick in ticks]
    caution = Caution(*first.caution) if first.caution else None
    shield = ticks[0].shield
    shield = wider(caution, replace(shield, space=with_untrusted_speed(shield.space, first.untrusted_speed_m_s)))
    estimate = _state((r.estimate_position_world, r.estimate_yaw, r.estimate_velocity) for r in records)
    measured = _stacked([record.measured_position_world for record in records], 1)
    own, peers = _spaces(records)
    inputs = ShieldInputs(measured, estimate, model.stopping_point(estimate), _table(records), peers, _bodies(records))
    wanted = _stacked([tick.wanted_world for tick in ticks], 1)
    numbers = np.array([float(record.sequence + 1) for record in records])
    result = shield.step(inputs, own, wanted, numbers)[0]
    braked = np.asarray(result.status) == int(ShieldStatus.BRAKED)
    return ShieldBatch(braked, result.control_velocity_world, result.command)


def _settings(tick: ShieldTick) -> Hashable:
    """Return what the ticks of a batch have in common."""
    record = tick.record
    scan = len(record.body_points_world), record.body_speed_m_s
    return id(tick.shield), record.caution, record.untrusted_speed_m_s, _neighbours(record), scan


def _neighbours(record: TickRecord) -> Hashable:
    """Return which neighbours a record names, and what of them is given."""
    given = (any(record.neighbour_untrusted), bool(record.neighbour_wanted_world), bool(record.neighbour_excused))
    return record.neighbour_names, given


def _grouped[Item](items: Iterable[Item], key: Callable[[Item], Hashable]) -> list[list[Item]]:
    groups: dict[Hashable, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.values())


def _in_batches[Item](
    groups: Iterable[list[Item]], compare: Callable[[Sequence[Item]], None], spoil: Callable[[Item], None]
) -> None:
    """Compare groups in batches; one with inconsistent numbers item by item."""
    for group in groups:
        for begin in range(0, len(group), _MOST):
            batch = group[begin : begin + _MOST]
            try:
                compare(batch)
            except (ValueError, TypeError, IndexError):
                if len(batch) == 1:
                    spoil(batch[0])
                else:
                    _in_batches([[item] for item in batch], compare, spoil)


def _stacked(values: Sequence[object], axes: int) -> np.ndarray:
    """Return arrays of ``axes`` axes each with the batch as the last axis.

    The batch is contiguous, as in `_slots`: every operation of shield and rule runs along it.
    """
    found = np.array(values, float)
    if found.ndim != axes + 1:
        raise ValueError("numbers are missing")
    return np.ascontiguousarray(np.moveaxis(found, 0, -1))


def _state(rows: Iterable[tuple[object, object, object]]) -> MotionState:
    positions, yaws, velocities = zip(*rows, strict=True)
    return MotionState(_stacked(positions, 1), _stacked(yaws, 0), _stacked(velocities, 1))


def _rows(state: MotionState) -> np.ndarray:
    """Return a state as rows (T, 2D + 1)."""
    return np.column_stack([state.position_world.T, state.yaw, state.velocity.T])


def _slots(records: Sequence[TickRecord], values: list[object], shape: tuple[int, ...]) -> np.ndarray:
    """Return a column of the neighbour tables, (T, K, ...) as recorded, with the batch last: (..., K, T)."""
    found = np.array(values, float).reshape(len(records), len(records[0].neighbour_names), *shape)
    return np.ascontiguousarray(np.moveaxis(found, (0, 1), (-1, -2)))


def _table(records: Sequence[TickRecord]) -> PeerTable:
    first, size = records[0], (len(records[0].goal_world),)
    return PeerTable(
        _slots(records, [r.neighbour_control_point_world for r in records], size),
        _slots(records, [r.neighbour_control_velocity_world for r in records], size),
        _slots(records, [r.neighbour_age_s for r in records], ()),
        _slots(records, [r.neighbour_valid for r in records], ()) > 0,
        _slots(records, [r.neighbour_untrusted for r in records], ()) > 0 if any(first.neighbour_untrusted) else None,
        wanted_world=_slots(records, [r.neighbour_wanted_world for r in records], size)
        if first.neighbour_wanted_world
        else None,
    )


def _bodies(records: Sequence[TickRecord]) -> SensedBodies | None:
    """Return what the robot's scanner saw (2, R, T); None where it saw nothing unknown, or there is none."""
    count = len(records[0].body_points_world)
    if not count:
        return None
    points = np.array([record.body_points_world for record in records], float).reshape(len(records), count, 2)
    age_s = np.array([record.scan_age_s for record in records])
    there, speed_m_s = np.ones((count, len(records)), bool), np.array(records[0].body_speed_m_s)
    return SensedBodies(points.transpose(2, 1, 0), there, age_s, speed_m_s)


def lower_priority(record: TickRecord) -> np.ndarray:
    """Return the peers (K,) bool to which the robot need not give way."""
    lost = np.array(record.neighbour_lost or (False,) * len(record.neighbour_names), bool)
    return np.array([record.robot < name for name in record.neighbour_names], bool) | lost


def _lower_priorities(records: Sequence[TickRecord]) -> np.ndarray:
    """Return `lower_priority` of the ticks of a batch (K, T), which is seldom more than one answer."""
    if len({(record.robot, record.neighbour_lost) for record in records}) == 1:
        return np.repeat(lower_priority(records[0])[:, None], len(records), axis=1)
    return np.stack([lower_priority(record) for record in records], axis=-1)


def _spaces(records: Sequence[TickRecord]) -> tuple[ReservedSpace, PeerReservations]:
    """Return the recorded space of the robot (2, D, T) and of its peers (2, D, K, T)."""
    size = (2, len(records[0].goal_world))
    first = _lower_priorities(records)
    acknowledged = _slots(records, [r.neighbour_acknowledged for r in records], ())
    own = ReservedSpace(
        _stacked([record.reserved_segment_world for record in records], 2),
        _stacked([record.requested_segment_world for record in records], 2),
        np.array([bool(record.request_pending) for record in records]),
        np.array([float(record.requested_since) for record in records]),
    )
    if records[0].neighbour_excused:
        excused = _slots(records, [r.neighbour_excused for r in records], ()) > 0
    else:  # before the fifth version no answer was required of peers that are silent, and of lower priority
        silent = _slots(records, [r.neighbour_silent for r in records], ()) > 0
        excused = silent & first & (acknowledged > NOTHING_HEARD)
    peers = PeerReservations(
        _slots(records, [r.neighbour_reserved_segment_world for r in records], size),
        _slots(records, [r.neighbour_requested_segment_world for r in records], size),
        acknowledged,
        excused,
        first,
        ~(_slots(records, [r.neighbour_untrusted for r in records], ()) > 0),
    )
    return own, peers
