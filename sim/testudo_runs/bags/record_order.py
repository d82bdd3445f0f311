"""Numbers and times of the messages of a recorder of ours: they leave no gap and never go back."""

from collections.abc import Sequence

from testudo_runs.bags.bag_contents import BagMessage, clock_time

_NUMBERS = 1 << 32


def order_faults(messages: Sequence[BagMessage]) -> list[str]:
    """Return one sentence for each message whose number or time does not follow from the one before it."""
    faults: list[str] = []
    expected: dict[str, int] = {}
    last_ns = 0
    for about, log_ns, publish_ns, number, _, _ in messages:
        topic = about.name
        wanted = expected.get(topic, 0)
        if number != wanted:
            faults.append(f"{topic}: found message {number} at {clock_time(log_ns)}, expected number {wanted}")
        expected[topic] = (number + 1) % _NUMBERS
        if log_ns < last_ns or publish_ns != log_ns:
            faults.append(f"{topic}: the time of message {number}, {clock_time(log_ns)}, is out of order")
        last_ns = max(last_ns, log_ns)
    return faults
