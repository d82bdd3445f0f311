"""Quality of service of every topic, offered and requested, in one place.

Measurements are offered reliable and requested best effort, so that any partner matches and an old sample never delays
a new one. Commands keep only the newest. Peer messages may be lost: their ages are checked.
"""

from collections.abc import Callable
from typing import Any

from rclpy.event_handler import PublisherEventCallbacks, SubscriptionEventCallbacks
from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSPolicyKind, QoSProfile, ReliabilityPolicy


def _profile(depth: int, *, reliable: bool = True, latched: bool = False) -> QoSProfile:
    return QoSProfile(
        history=HistoryPolicy.KEEP_LAST,
        depth=depth,
        reliability=ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT,
        durability=DurabilityPolicy.TRANSIENT_LOCAL if latched else DurabilityPolicy.VOLATILE,
    )


OFFERED: dict[str, QoSProfile] = {
    "odom": _profile(10),
    "pose": _profile(10, reliable=False),
    "signal": _profile(10),
    "amcl_pose": _profile(10),
    "cmd_vel": _profile(1),
    "cmd_vel_policy": _profile(1),
    "applied_cmd_vel": _profile(10),
    "peer_state": _profile(100),  # peers request the newest only; a recorder needs all, for the ages in a replay
    "task": _profile(100),  # as peer_state
    "tick": _profile(100, latched=True),  # a late recorder still gets the first ticks
    "truth": _profile(10),
    "events": _profile(50, latched=True),
    "guard_status": _profile(1, latched=True),
    "mode": _profile(1, latched=True),
    "flight_order": _profile(1),
    "flight_request": _profile(10),
    "vehicle_state": _profile(10),
    "battery_state": _profile(1),
    "tf": _profile(100),
    "estop": _profile(1, latched=True),
    "station_heartbeat": _profile(1, reliable=False),
    "diagnostics": _profile(10),
    "score": _profile(10, latched=True),
    "goals": _profile(1, latched=True),
    "markers": _profile(1),
    "clock": _profile(10),
    "epochs": _profile(100),
    "lost": _profile(10),
    "order": _profile(10, latched=True),  # as a recorder requests it
    "change": _profile(10),
    "policy_in_use": _profile(10),
}
"""By the last part of the topic's name."""

REQUESTED: dict[str, QoSProfile] = {
    "odom": _profile(5, reliable=False),
    "pose": _profile(5, reliable=False),
    "signal": _profile(1, reliable=False),
    "amcl_pose": _profile(5, reliable=False),
    "tf": _profile(100, reliable=False),
    "cmd_vel": _profile(1),
    "cmd_vel_policy": _profile(1),
    "peer_state": _profile(1, reliable=False),
    "task": _profile(1, reliable=False),
    "score": _profile(10, latched=True),
    "events": _profile(50, latched=True),
    "guard_status": _profile(1, latched=True),
    "mode": _profile(1, latched=True),
    "flight_order": _profile(1),
    "flight_request": _profile(10),
    "vehicle_state": _profile(1, reliable=False),
    "plant_fault": _profile(5),
    "lost": _profile(10),
    "order": _profile(10),
    "change": _profile(10),
    "policy_in_use": _profile(10),
    "station_heartbeat": _profile(1, reliable=False),
    "scan": _profile(1, reliable=False),
    "joy": _profile(5, reliable=False),
    "estop": _profile(1),  # not latched: matches publishers that are not latched, as most are
    "estop_level": _profile(1, latched=True),  # in addition: receives a stop from before the subscription
    "estop_button": _profile(1, reliable=False),  # in addition: buttons on small controllers offer best effort only
}
"""Requested by nodes that act on a topic."""

SHOWN: dict[str, QoSProfile] = {
    "odom": _profile(1, reliable=False),
    "tick": _profile(5, reliable=False),
    "peer_state": _profile(1, reliable=False),
    "pose": _profile(5, reliable=False),
    "mode": _profile(1, latched=True),
    "guard_status": _profile(1, latched=True),
}
"""Requested by nodes that only display: the newest message, without repetition."""

_RECORDER_DEPTH = 200
_LOCK_STEP_DEPTH = 100


def measured(*, reliable: bool) -> QoSProfile:
    """Return the profile that the plant, or a driver of ours, offers on the topics of the pose source."""
    return _profile(10, reliable=reliable)


def offered(topic: str) -> QoSProfile:
    """Return the offered profile of a topic, given by its absolute name."""
    return OFFERED[topic.rpartition("/")[2]]


def recorded(topic: str, *, reliable: bool = True) -> QoSProfile:
    """Return the profile of the recorder: that of the offer, with a queue for bursts.

    Args:
        topic: its absolute name, or the last part of it.
        reliable: whether the robot's driver offers reliable messages.
    """
    profile = offered(topic)
    if topic.rpartition("/")[2] == "estop":
        return REQUESTED["estop_button"]  # matches every publisher; guards report the stop reliably
    return _profile(
        _RECORDER_DEPTH,
        reliable=reliable and profile.reliability == ReliabilityPolicy.RELIABLE,
        latched=profile.durability == DurabilityPolicy.TRANSIENT_LOCAL,
    )


def lock_step_profile(profile: QoSProfile | None = None, *, depth: int = _LOCK_STEP_DEPTH) -> QoSProfile:
    """Return the profile in lock-step: nothing is lost, late subscribers get everything, with a queue for bursts."""
    return _profile(max(depth, profile.depth if profile else 0), latched=True)


def mismatch_of_offer(topic: str, report: Callable[[str], None]) -> PublisherEventCallbacks:
    """Return the callbacks of a publisher that report a subscriber which requests more than is offered."""
    return PublisherEventCallbacks(
        incompatible_qos=lambda info: report(f"{topic}: a subscriber requests more {_policy(info)} than is offered")
    )


def mismatch_of_request(topic: str, report: Callable[[str], None]) -> SubscriptionEventCallbacks:
    """Return the callbacks of a subscription that report a publisher which offers less than is requested."""
    return SubscriptionEventCallbacks(
        incompatible_qos=lambda info: report(f"{topic}: a publisher offers less {_policy(info)} than is needed")
    )


def _policy(info: Any) -> str:
    return QoSPolicyKind(info.last_policy_kind).name.lower()
