"""What one control tick comes to know and to do, and its record."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from testudo_deploy.contract.messages import SegmentEnds, TickRecord
from testudo_deploy.shield.peer_table import PeerTable
from testudo_deploy.shield.reserved_space import NOTHING_HEARD, PeerReservations, ReservedSpace
from testudo_deploy.shield.velocity_projection import ShieldResult, ShieldStatus
from testudo_hardware.motion import MotionState, StoppingPoint


@dataclass(frozen=True)
class PoseSample:
    """A measured pose in the fleet's world frame, with its time on the steady clock."""

    stamp_s: float
    position_world: tuple[float, ...]
    yaw: float
    velocity: tuple[float, ...]
    """(D,): command channels, see `MotionState.velocity`."""


@dataclass
class Tick:
    """What one tick has come to know and to do, filled in order; what is missing was not reached."""

    now_s: float
    late_s: float
    goal_world: tuple[float, ...] = ()
    """(D,) [m]."""
    pose: PoseSample | None = None
    pending: tuple[np.ndarray, ...] = ()
    pending_s: tuple[float, ...] = ()
    estimate: MotionState | None = None
    stop: StoppingPoint | None = None
    table: PeerTable | None = None
    peers: PeerReservations | None = None
    space: ReservedSpace | None = None
    """What the robot owned when the tick began."""
    decided: bool = False
    result: ShieldResult | None = None
    nominal_yaw_rate: float = 0.0
    """[rad/s], of a policy that commands one."""
    yaw_rate: float = 0.0
    """[rad/s] that is sent."""
    reason: str = ""
    echoes: dict[str, tuple[str, float, int]] = field(default_factory=dict)
    """As heard when the tick began: an echo heard later would make the announcement look younger."""


@dataclass(frozen=True)
class TickRecorder:
    """Makes the records of one robot."""

    robot: str
    peers: tuple[str, ...]

    def record(
        self,
        tick: Tick,
        *,
        sequence: int,
        nominal: np.ndarray | None,
        command: np.ndarray,
        hidden: tuple[np.ndarray, np.ndarray],
        duration_s: float,
    ) -> TickRecord:
        """Return the record of a tick; ``hidden`` is the policy's memory before and after."""
        pose, estimate, result = tick.pose, tick.estimate, tick.result
        return TickRecord(
            robot=self.robot,
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
            neighbour_names=self.peers,
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
            sent_yaw_rate=tick.yaw_rate,
        )


def _neighbours(table: PeerTable | None) -> dict[str, Any]:
    if table is None:
        return {
            "neighbour_control_point_world": (),
            "neighbour_control_velocity_world": (),
            "neighbour_age_s": (),
            "neighbour_valid": (),
            "neighbour_untrusted": (),
        }
    untrusted = np.zeros(table.age_s.shape, bool) if table.untrusted is None else table.untrusted
    return {
        "neighbour_control_point_world": _rows(table.control_point_world),
        "neighbour_control_velocity_world": _rows(table.control_velocity_world),
        "neighbour_age_s": floats(table.age_s),
        "neighbour_valid": tuple(table.valid.tolist()),
        "neighbour_untrusted": tuple(untrusted.tolist()),
    }


def _spaces(peers: PeerReservations | None, own: ReservedSpace | None) -> dict[str, Any]:
    count = 0 if peers is None else len(peers.acknowledged)
    return {
        "neighbour_reserved_segment_world": tuple(segment_ends(peers.owned_world[..., k]) for k in range(count)),
        "neighbour_requested_segment_world": tuple(segment_ends(peers.announced_world[..., k]) for k in range(count)),
        "neighbour_acknowledged": () if peers is None else tuple(map(int, peers.acknowledged.tolist())),
        "neighbour_silent": () if peers is None else tuple(peers.silent.tolist()),
        "reserved_segment_world": own and segment_ends(own.owned_world),
        "requested_segment_world": own and segment_ends(own.announced_world),
        "request_pending": own is not None and bool(own.pending),
        "requested_since": NOTHING_HEARD if own is None else int(own.since),
    }


def floats(values: np.ndarray) -> tuple[float, ...]:
    """Return an array (n,) as plain numbers."""
    return tuple(np.asarray(values, float).tolist())


def segment_ends(lane_world: np.ndarray) -> SegmentEnds:
    """Return both ends of a lane (2, D) as plain numbers."""
    first, last = np.asarray(lane_world, float).tolist()
    return tuple(first), tuple(last)


def _rows(values: np.ndarray) -> tuple[tuple[float, ...], ...]:
    """Return (D, K) by slot, then axis."""
    return tuple(map(tuple, values.T.tolist()))
