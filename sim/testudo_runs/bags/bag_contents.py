"""Content of a bag, independent of its file format: topics with definitions, attachments and messages."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from testudo_hardware.errors import TestudoError

NANO = 1_000_000_000
CDR = "cdr"


class BagError(TestudoError):
    """A bag is unreadable or incomplete: the text names the file and the remedy."""


@dataclass(frozen=True)
class BagTopic:
    """One topic of a bag."""

    name: str
    type: str  # for example `nav_msgs/msg/Odometry`
    encoding: str = CDR  # serialisation of its messages
    definition: str = ""  # definition of its type with all referenced types; empty if the bag has none
    definition_kind: str = ""  # `ros2msg` or `ros2idl`
    qos: str = ""  # offered QoS profiles as stored: numbers until version 8, words since version 9
    type_hash: str = ""


class BagMessage(NamedTuple):
    """One message, still serialised."""

    topic: BagTopic
    log_ns: int
    publish_ns: int
    sequence: int
    data: bytes
    order: int = 0  # its index among the requested messages of its bag


class Enclosure(NamedTuple):
    """A file attached to a bag."""

    name: str
    media_type: str
    log_ns: int
    data: bytes


@dataclass
class BagContents:
    """Topics, attachments and counts of a bag; filled while it is read."""

    topics: dict[str, BagTopic] = field(default_factory=dict)
    enclosed: list[Enclosure] = field(default_factory=list)
    records: dict[str, dict[str, str]] = field(default_factory=dict)  # metadata records by name
    counts: dict[str, int] = field(default_factory=dict)  # messages by topic, including those not requested
    first_ns: int | None = None
    last_ns: int | None = None

    def take(self, topic: BagTopic, log_ns: int) -> None:
        """Count one message."""
        self.counts[topic.name] = self.counts.get(topic.name, 0) + 1
        if self.first_ns is None or log_ns < self.first_ns:
            self.first_ns = log_ns
        if self.last_ns is None or log_ns > self.last_ns:
            self.last_ns = log_ns

    def take_all(self, messages: Sequence[BagMessage]) -> None:
        """Count messages."""
        for name, count in Counter([message.topic.name for message in messages]).items():
            self.counts[name] = self.counts.get(name, 0) + count
        times_ns = [message.log_ns for message in messages]
        first_ns, last_ns = min(times_ns), max(times_ns)
        self.first_ns = first_ns if self.first_ns is None else min(self.first_ns, first_ns)
        self.last_ns = last_ns if self.last_ns is None else max(self.last_ns, last_ns)

    @property
    def count(self) -> int:
        """Return the number of messages read."""
        return sum(self.counts.values())


Keep = Callable[[BagTopic], bool]
"""Returns whether the messages of a topic are requested; the others are only counted."""
Tell = Callable[[float], None]
"""Called with the completed fraction, 0 to 1."""


def clock_time(time_ns: int) -> str:
    """Return nanoseconds since the epoch as a date and time; small times, of other clocks, in seconds."""
    if time_ns < 100_000_000 * NANO:
        return f"{time_ns / NANO:.3f} s"
    try:
        return datetime.fromtimestamp(time_ns / NANO, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"
    except (OverflowError, ValueError, OSError):
        return f"{time_ns} ns"
