"""What a bag holds, whichever file it lies in: topics with their definitions, enclosed files, and messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from testudo_hardware.errors import TestudoError

NANO = 1_000_000_000
CDR = "cdr"


class BagError(TestudoError):
    """A bag cannot be read, or does not say enough: the text names the file and how to mend it."""


@dataclass(frozen=True)
class BagTopic:
    """One topic as the bag tells of it."""

    name: str
    type: str
    """For example `nav_msgs/msg/Odometry`."""
    encoding: str = CDR
    """Of its messages."""
    definition: str = ""
    """Of its type with all that it refers to; empty if the bag holds none."""
    definition_kind: str = ""
    """`ros2msg` or `ros2idl`."""
    qos: str = ""
    """Offered profiles as the bag writes them: numbers until version 8, words since version 9."""
    type_hash: str = ""


class BagMessage(NamedTuple):
    """One message, still serialised."""

    topic: BagTopic
    log_ns: int
    publish_ns: int
    sequence: int
    data: bytes
    order: int = 0
    """Its place among the messages of its bag that were asked for."""


class Enclosure(NamedTuple):
    """A file that stands in a bag."""

    name: str
    media_type: str
    log_ns: int
    data: bytes


@dataclass
class BagContents:
    """What is known of a bag beside its messages; filled while it is read."""

    topics: dict[str, BagTopic] = field(default_factory=dict)
    enclosed: list[Enclosure] = field(default_factory=list)
    records: dict[str, dict[str, str]] = field(default_factory=dict)
    """Facts by the name of their record."""
    counts: dict[str, int] = field(default_factory=dict)
    """Messages by topic, those that were not asked for, too."""
    first_ns: int | None = None
    last_ns: int | None = None

    def take(self, topic: BagTopic, log_ns: int) -> None:
        """Count one message."""
        self.counts[topic.name] = self.counts.get(topic.name, 0) + 1
        if self.first_ns is None or log_ns < self.first_ns:
            self.first_ns = log_ns
        if self.last_ns is None or log_ns > self.last_ns:
            self.last_ns = log_ns

    @property
    def count(self) -> int:
        """Return how many messages were read."""
        return sum(self.counts.values())


Keep = Callable[[BagTopic], bool]
"""Says whether the messages of a topic are wanted; the others are only counted."""
Tell = Callable[[float], None]
"""Is told a share between 0 and 1."""


def clock_time(time_ns: int) -> str:
    """Return nanoseconds of the epoch as a readable time; times of other clocks as seconds."""
    if time_ns < 100_000_000 * NANO:
        return f"{time_ns / NANO:.3f} s"
    try:
        return datetime.fromtimestamp(time_ns / NANO, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"
    except (OverflowError, ValueError, OSError):
        return f"{time_ns} ns"
