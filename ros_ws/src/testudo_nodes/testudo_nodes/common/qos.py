"""Quality of service of every topic, offered and requested, in one place.

What a robot senses is offered reliable and requested best effort, so that any partner matches and
an old sample never holds up a new one. Commands keep only the newest. What peers say may be lost:
ages are checked.
"""

from __future__ import annotations

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
    "amcl_pose": _profile(10),
    "cmd_vel": _profile(1),
    "cmd_vel_policy": _profile(1),
    "applied_cmd_vel": _profile(10),
    "peer_state": _profile(100),  # peers ask for the newest only; a recorder gets every one, or replay cannot tell ages
    "tick": _profile(100, latched=True),  # a recorder that comes late still gets the first ticks
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
    "diagnostics": _profile(10),
    "score": _profile(10, latched=True),
    "goals": _profile(1, latched=True),
    "markers": _profile(1),
    "clock": _profile(10),
}
"""By the last part of the topic's name."""

REQUESTED: dict[str, QoSProfile] = {
    "odom": _profile(5, reliable=False),
    "pose": _profile(5, reliable=False),
    "amcl_pose": _profile(5, reliable=False),
    "tf": _profile(100, reliable=False),
    "cmd_vel": _profile(1),
    "cmd_vel_policy": _profile(1),
    "peer_state": _profile(1, reliable=False),
    "events": _profile(50, latched=True),
    "guard_status": _profile(1, latched=True),
    "mode": _profile(1, latched=True),
    "flight_order": _profile(1),
    "flight_request": _profile(10),
    "vehicle_state": _profile(1, reliable=False),
    "plant_fault": _profile(5),
    "estop": _profile(1),  # not latched: a partner that only publishes, as most do, still matches
    "estop_level": _profile(1, latched=True),  # and beside it: what was pressed before the listener came
    "estop_button": _profile(1, reliable=False),  # and: buttons on small controllers offer best effort only
}
"""What the nodes that act on a topic ask for."""

SHOWN: dict[str, QoSProfile] = {
    "odom": _profile(1, reliable=False),
    "tick": _profile(5, reliable=False),
    "peer_state": _profile(1, reliable=False),
    "pose": _profile(5, reliable=False),
    "mode": _profile(1, latched=True),
    "guard_status": _profile(1, latched=True),
}
"""What those ask for who only look on: the newest, and never anything again."""

_RECORDER_DEPTH = 200
_ROUNDS_DEPTH = 100


def measured(*, reliable: bool) -> QoSProfile:
    """Return what a stand-in for a robot's driver offers on the topics of the pose source."""
    return _profile(10, reliable=reliable)


def offered(topic: str) -> QoSProfile:
    """Return what is offered on a topic, given by its absolute name."""
    return OFFERED[topic.rpartition("/")[2]]


def recorded(topic: str, *, reliable: bool = True) -> QoSProfile:
    """Return what the recorder asks for: as good as what is offered, with room for a burst.

    Args:
        topic: by its absolute name, or the last part of it.
        reliable: whether the driver of a robot offers that.
    """
    profile = offered(topic)
    if topic.rpartition("/")[2] == "estop":
        return REQUESTED["estop_button"]  # whoever presses, whatever he offers; guards say reliably that they stopped
    return _profile(
        _RECORDER_DEPTH,
        reliable=reliable and profile.reliability == ReliabilityPolicy.RELIABLE,
        latched=profile.durability == DurabilityPolicy.TRANSIENT_LOCAL,
    )


def in_rounds(profile: QoSProfile | None = None, *, depth: int = _ROUNDS_DEPTH) -> QoSProfile:
    """Return the profile in lock-step: nothing is lost and who comes late still gets all; with room for a burst."""
    return _profile(max(depth, profile.depth if profile else 0), latched=True)


def mismatch_of_offer(topic: str, report: Callable[[str], None]) -> PublisherEventCallbacks:
    """Return the callbacks of a publisher that report a partner which asks for more than is offered."""
    return PublisherEventCallbacks(
        incompatible_qos=lambda info: report(f"{topic}: a subscriber wants more {_policy(info)} than is offered")
    )


def mismatch_of_request(topic: str, report: Callable[[str], None]) -> SubscriptionEventCallbacks:
    """Return the callbacks of a subscription that report a partner which offers less than is asked for."""
    return SubscriptionEventCallbacks(
        incompatible_qos=lambda info: report(f"{topic}: a publisher offers less {_policy(info)} than is needed")
    )


def _policy(info: Any) -> str:
    return QoSPolicyKind(info.last_policy_kind).name.lower()
