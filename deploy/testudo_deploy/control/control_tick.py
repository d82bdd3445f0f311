"""One control tick: when it is due, what it reads and computes, and its record."""

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from testudo_deploy.contract.messages import Echo, PeerMessage, SegmentEnds, SuspectedPeer, TickRecord
from testudo_deploy.control.goal_hold import YIELDS
from testudo_deploy.control.task_receiver import TaskReading
from testudo_deploy.shield.reservations import NOTHING_HEARD, PeerReservations, ReservedSpace
from testudo_deploy.shield.sensed_bodies import SensedBodies
from testudo_deploy.shield.velocity_projection import PeerTable, ShieldResult, ShieldStatus
from testudo_hardware.motion import MotionState, StoppingPoint

_AT_REST = 0.01  # a robot with a smaller velocity [m/s, rad/s] stands


class BrakeReason(Exception):  # noqa: N818 -- not an error: a reason to brake
    """Why this tick must brake; the text is a stable code."""


@dataclass(frozen=True)
class PoseSample:
    """A measured pose in the fleet's world frame, with its time on the steady clock."""

    stamp_s: float
    position_world: tuple[float, ...]
    yaw: float
    velocity: tuple[float, ...]  # (D,): command channels, see `MotionState.velocity`

    @property
    def moves(self) -> bool:
        """Return whether the robot does not stand."""
        return max(map(abs, self.velocity)) > _AT_REST


@dataclass(frozen=True)
class FlightPhase:
    """The part of a flight in which a tick runs; the default is a robot that follows its commands."""

    flown_by_itself: bool = False
    """The vehicle's own planner moves it, so that its motion is not compared with the commands."""
    climbs: bool = False  # it takes off; any robot that enters its column ends that
    take_off_to_m: float | None = None
    """Height [m] to which a vehicle on the ground is to climb; the column below it is reserved as well."""
    lands_to_m: float | None = None
    """Height of the ground [m] on which the vehicle lands by itself; the column down to there is requested."""
    velocity_world: tuple[float, ...] | None = None
    """Velocity (D,) [m/s] of a landing: it replaces the policy's and the order to brake. The shield of a landing checks
    it; faults of brakes or actuators do not keep a vehicle in the air."""


FOLLOWS_COMMANDS = FlightPhase()


@dataclass
class Tick:
    """Inputs and results of one tick, filled in order; a missing value was not reached."""

    now_s: float
    late_s: float
    goal_world: tuple[float, ...] = ()  # (D,) [m]
    pose: PoseSample | None = None
    pending: tuple[np.ndarray, ...] = ()
    pending_s: tuple[float, ...] = ()
    estimate: MotionState | None = None
    stop: StoppingPoint | None = None
    table: PeerTable | None = None
    peers: PeerReservations | None = None
    bodies: SensedBodies | None = None  # what the robot's scanner sees that neither map nor peer explains
    space: ReservedSpace | None = None  # what the robot had reserved when the tick began
    decided: bool = False
    result: ShieldResult | None = None
    deadlock_memory: tuple[float, ...] = ()  # of the deadlock rule after the tick, if it ran
    wanted_world: np.ndarray | None = None  # (D,) [m/s]: what the robot wants, for its peers
    caution: tuple[float, ...] = ()  # see `Caution`; empty without
    untrusted_speed_m_s: float = 0.0  # of rule R5
    nominal_yaw_rate: float = 0.0  # [rad/s], of a policy that commands one
    yaw_rate: float = 0.0  # [rad/s] that is sent
    waypoint_world: np.ndarray | None = None  # (D,) [m], of a policy that chooses one
    message: np.ndarray | None = None  # (M,): learned message to the peers, of a policy that has one
    task: TaskReading | None = None  # newest values of the task
    holds: str = ""  # why the robot stands, see `goal_hold`; empty where its policy drives it
    reason: str = ""
    lost: tuple[bool, ...] = ()  # by slot: declared lost by an operator; empty if none is
    echoes: dict[str, Echo] = field(default_factory=dict)
    """As received when the tick began: a later echo would make the announcement look younger."""
    suspected: dict[str, SuspectedPeer] = field(default_factory=dict)  # at the same moment


def tick_record(
    robot: str,
    peers: tuple[str, ...],
    tick: Tick,
    *,
    sequence: int,
    nominal: np.ndarray | None,
    command: np.ndarray,
    hidden: tuple[np.ndarray, np.ndarray],
    duration_s: float,
) -> TickRecord:
    """Return the record of a robot's tick; ``hidden`` is the policy's memory before and after."""
    pose, estimate, result = tick.pose, tick.estimate, tick.result
    return TickRecord(
        robot=robot,
        sequence=sequence,
        stamp_s=tick.now_s,
        late_s=tick.late_s,
        duration_s=duration_s,
        pose_stamp_s=pose and pose.stamp_s,
        measured_position_world=pose and pose.position_world,
        measured_yaw=pose and pose.yaw,
        measured_velocity=pose and pose.velocity,
        pending_commands=tuple(map(floats, tick.pending)),
        pending_time_s=tick.pending_s,
        estimate_position_world=estimate and floats(estimate.position_world),
        estimate_yaw=estimate and float(estimate.yaw),
        estimate_velocity=estimate and floats(estimate.velocity),
        control_point_world=tick.stop and floats(tick.stop.position_world),
        goal_world=tick.goal_world,
        neighbour_names=peers,
        **_neighbours(tick.table),
        **_spaces(tick.peers, tick.space),
        decided=tick.decided,
        hidden_before=floats(hidden[0]),
        hidden_after=floats(hidden[1]),
        nominal_world=None if nominal is None else floats(nominal),
        shielded_world=None if result is None else floats(result.control_velocity_world),
        sent_command=floats(command),
        change_m_s=0.0 if result is None else float(result.change_m_s),
        status="braked" if result is None else ShieldStatus(int(result.status)).name.lower(),
        reason=tick.reason,
        nominal_yaw_rate=tick.nominal_yaw_rate,
        sent_yaw_rate=0.0 if tick.holds else tick.yaw_rate,
        neighbour_lost=tick.lost,
        deadlock_memory=tick.deadlock_memory,
        caution=tick.caution,
        holds=_holds(tick),
        untrusted_speed_m_s=tick.untrusted_speed_m_s,
        waypoint_world=() if tick.waypoint_world is None else floats(tick.waypoint_world),
        message=() if tick.message is None else floats(tick.message),
        **_task(tick),
        **_bodies(tick.bodies),
    )


def _holds(tick: Tick) -> str:
    """Return why the robot stands; it gives way while the deadlock rule wants a velocity in place of none."""
    if tick.reason or not tick.holds or tick.pose is None:
        return ""
    return YIELDS if any(tick.deadlock_memory[-len(tick.pose.position_world) :]) else tick.holds


def _bodies(bodies: SensedBodies | None) -> dict[str, Any]:
    if bodies is None:
        return {}
    speed_m_s = float(bodies.speed_m_s)
    return {
        "body_points_world": _rows(bodies.point_world),
        "scan_age_s": float(bodies.age_s),
        "body_speed_m_s": speed_m_s,
    }


def _task(tick: Tick) -> dict[str, Any]:
    task = tick.task
    if task is None:
        return {}
    return {
        "task_values": task.values if tick.decided else {},
        "task_age_s": tick.now_s - task.bound_s,
        "task_epoch": task.epoch,
        "task_sequence": task.sequence,
        "task_contract": task.contract,
        "sensed_age_s": {name: tick.now_s - stamp_s for name, stamp_s in task.sensed_stamp_s.items()},
    }


class Announcer:
    """Makes the messages of one robot to its peers."""

    def __init__(self, robot: str, epoch: str, contract_hash: str, message_size: int = 0) -> None:
        self._robot, self._epoch, self._contract_hash = robot, epoch, contract_hash
        self._silent = (0.0,) * message_size
        """Learned message of a robot without a decision."""
        self._last: PeerMessage | None = None
        """The last message that rested on a pose."""

    def forget(self) -> None:
        """Forget the last message, whose times are of another clock."""
        self._last = None

    def announce(
        self, tick: Tick, space: ReservedSpace, sequence: int, now_s: float, *, without_pose: bool
    ) -> PeerMessage | None:
        """Return the message after a tick; None without a pose.

        ``space`` is what the robot reserves and requests from now on. ``without_pose`` repeats the last message, older,
        with the new request; it acknowledges nothing new.
        """
        requested = segment_ends(space.announced_world)
        if tick.stop is None or tick.estimate is None or tick.pose is None:
            last = self._last
            if last is None or not without_pose or now_s < last.stamp_s:
                return None
            return replace(
                last,
                sequence=sequence,
                stamp_s=now_s,
                sample_age_s=last.sample_age_s + now_s - last.stamp_s,
                requested_segment_world=requested,
                message=self._silent,
            )
        velocity = np.zeros(len(tick.pose.velocity)) if tick.result is None else tick.result.control_velocity_world
        self._last = PeerMessage(
            robot=self._robot,
            epoch=self._epoch,
            sequence=sequence,
            stamp_s=now_s,
            sample_age_s=now_s - tick.pose.stamp_s,
            control_point_world=floats(tick.stop.position_world),
            control_velocity_world=floats(velocity),
            position_world=floats(tick.estimate.position_world),
            yaw=float(tick.estimate.yaw),
            contract=self._contract_hash,
            reserved_segment_world=segment_ends(space.owned_world),
            requested_segment_world=requested,
            echoes=tick.echoes,
            suspected=tick.suspected,
            wanted_world=() if tick.wanted_world is None or tick.result is None else floats(tick.wanted_world),
            message=self._silent if tick.message is None else floats(tick.message),
        )
        return self._last


def _neighbours(table: PeerTable | None) -> dict[str, Any]:
    if table is None:
        kinds = ("control_point_world", "control_velocity_world", "age_s", "valid", "untrusted")
        return dict.fromkeys((f"neighbour_{kind}" for kind in kinds), ())
    untrusted = np.zeros(table.age_s.shape, bool) if table.untrusted is None else table.untrusted
    return {
        "neighbour_control_point_world": _rows(table.control_point_world),
        "neighbour_control_velocity_world": _rows(table.control_velocity_world),
        "neighbour_age_s": floats(table.age_s),
        "neighbour_valid": tuple(table.valid.tolist()),
        "neighbour_untrusted": tuple(untrusted.tolist()),
        "neighbour_wanted_world": () if table.wanted_world is None else _rows(table.wanted_world),
        "neighbour_message": () if table.message is None else _rows(table.message),
    }


def _rows(values: np.ndarray) -> tuple[tuple[float, ...], ...]:
    """Return (D, K) by slot, then axis."""
    return tuple(map(tuple, values.T.tolist()))


def _spaces(peers: PeerReservations | None, own: ReservedSpace | None) -> dict[str, Any]:
    def of_peers(segments_world: np.ndarray) -> tuple[SegmentEnds, ...]:
        by_peer: list[list[list[float]]] = segments_world.transpose(2, 0, 1).tolist()
        return tuple([(tuple(first), tuple(last)) for first, last in by_peer])

    return {
        "neighbour_reserved_segment_world": () if peers is None else of_peers(peers.owned_world),
        "neighbour_requested_segment_world": () if peers is None else of_peers(peers.announced_world),
        "neighbour_acknowledged": () if peers is None else tuple(map(int, peers.acknowledged.tolist())),
        "neighbour_excused": () if peers is None else tuple(peers.excused.tolist()),
        "reserved_segment_world": own and segment_ends(own.owned_world),
        "requested_segment_world": own and segment_ends(own.announced_world),
        "request_pending": own is not None and bool(own.pending),
        "requested_since": NOTHING_HEARD if own is None else int(own.since),
    }


def floats(values: np.ndarray) -> tuple[float, ...]:
    """Return an array (n,) as plain numbers."""
    return tuple(np.asarray(values, float).tolist())


def segment_ends(segment_world: np.ndarray) -> SegmentEnds:
    """Return both ends of a segment (2, D) as plain numbers."""
    first, last = np.asarray(segment_world, float).tolist()
    return tuple(first), tuple(last)


LATE_S = 0.01  # a tick that begins later than this after its time counts as late
EARLY_SHARE = 0.25  # a pose that is early by at most this share of the period begins a tick
WAIT_SHARE = 0.25  # a tick waits for a pose for this share of the period
_BACK_PERIODS = 3  # a tick is due within this many periods
_FOLLOW = 0.2  # share of its offset from the poses by which the grid of ticks follows them


class TickPacer:
    """Decides when to tick, and counts ticks, late ticks and missed ticks, on the caller's clock.

    Its grid has the robot's period and moves slowly with the poses, whose clock may run a little faster or slower and
    whose times jitter.
    """

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self._due_s: float | None = None
        self._early_s: float | None = None
        """Arrival of the newest pose that was too early to begin a tick; None after a tick began."""
        self.ticks = 0
        self.late_ticks = 0
        self.missed_ticks = 0
        """Ticks that were left out because an earlier one took too long; they are not repeated."""
        self.worst_late_s = 0.0

    def is_due(self, now_s: float) -> bool:
        """Return whether a pose that arrives now begins a tick."""
        due_s = self._next_s(now_s)
        is_due = due_s is None or now_s >= due_s - EARLY_SHARE * self._period_s
        if not is_due:
            self._early_s = now_s
        return is_due

    def alone_s(self, now_s: float) -> float:
        """Return the time after which the robot ticks without a pose [s]."""
        due_s, waits_s = self._next_s(now_s), WAIT_SHARE * self._period_s
        return self._period_s + waits_s if due_s is None else max(due_s + waits_s - now_s, 0.0)

    def begin(self, now_s: float, *, on_pose: bool = True) -> float:
        """Note that a tick begins, on a pose or alone, and return how late it is [s]."""
        due_s = self._next_s(now_s)
        due_s = now_s if due_s is None else due_s
        off_s = now_s - due_s
        late_s = max(0.0, off_s - (0.0 if on_pose else WAIT_SHARE * self._period_s))
        missed = math.floor(late_s / self._period_s)
        if missed:
            due_s, off_s = now_s, 0.0
        elif not on_pose:  # no pose came; if all poses were too early for their ticks, this would repeat without end
            off_s = 0.0 if self._early_s is None else -EARLY_SHARE * self._period_s
        self._early_s = None
        self._due_s = due_s + self._period_s + _FOLLOW * off_s
        self.ticks += 1
        self.late_ticks += late_s > LATE_S
        self.missed_ticks += missed
        self.worst_late_s = max(self.worst_late_s, late_s)
        return late_s

    def _next_s(self, now_s: float) -> float | None:
        """Return when the next tick is due; None before the first one.

        None also after the clock was set back, so that the grid lies in a future that does not come.
        """
        due_s = self._due_s
        return None if due_s is None or due_s - now_s > _BACK_PERIODS * self._period_s else due_s
