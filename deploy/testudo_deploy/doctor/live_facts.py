"""What a listener finds of a fleet while it runs, or while only its robots' drivers run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from testudo_deploy.station.fleet_status import RobotStatus


@dataclass(frozen=True)
class Endpoint:
    """A publisher or a subscription of a topic."""

    topic: str
    node: str  # absolute name
    type: str  # such as `nav_msgs/msg/Odometry`
    publishes: bool
    reliable: bool
    latched: bool  # transient local


@dataclass(frozen=True)
class Stream:
    """Messages of one topic."""

    messages: int
    seconds: float  # for which it was heard
    lag_s: float | None = None  # median time from the stamp to the arrival, both on wall clocks; None without stamps

    @property
    def rate_hz(self) -> float:
        """Return the mean rate."""
        return self.messages / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True)
class LiveFacts:
    """Everything that was heard in a ROS domain."""

    domain_id: int
    endpoints: tuple[Endpoint, ...] = ()
    streams: Mapping[str, Stream] = field(default_factory=dict[str, Stream])  # of the pose sources, by topic
    robots: tuple[RobotStatus, ...] = ()

    def publishers(self, topic: str) -> tuple[Endpoint, ...]:
        """Return the publishers of a topic."""
        return tuple(one for one in self.endpoints if one.topic == topic and one.publishes)

    def subscriptions(self, topic: str) -> tuple[Endpoint, ...]:
        """Return the subscriptions to a topic."""
        return tuple(one for one in self.endpoints if one.topic == topic and not one.publishes)
