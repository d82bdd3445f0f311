"""Rules for the entries of crazyflies.yaml: switches, addresses, rates; each violation names the line to change."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from testudo_deploy.files.strict_yaml import LinedYaml
from testudo_hardware.strict_files import is_table

MOST_HZ = 100  # the server uses a period of 100 / frequency, a whole number of 10 ms: above 100 Hz that is 0
_RADIO = re.compile(r"radio://(\*|\w+)/(\d{1,3})/(250K|1M|2M)/([0-9A-Fa-f]{10})(\?[\w=&]+)?")
_OTHER_URI = re.compile(r"(usb|udp|tcp|serial)://[\w.:/-]+")
_MOST_CHANNEL = 125


def number(value: Any) -> float:
    """Return a number, or NaN for other values: every comparison with NaN is false."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan


def is_whole(value: Any, expected: int) -> bool:
    """Return whether a value is this whole number; `true` is not, although it equals 1 in Python."""
    return type(value) is int and value == expected


def shown(value: Any, unit: str = "") -> str:
    """Return a value for messages: texts in quotes, a unit only after numbers."""
    if value is None:
        return "nothing"
    return f"{value!r} {unit}" if unit and not math.isnan(number(value)) else repr(value)


def table(value: Any) -> Mapping[str, Any]:
    """Return a table; empty for any other value."""
    return value if is_table(value) else {}


def enabled_robots(swarm: LinedYaml) -> list[str]:
    """Return the names of the drones that are enabled."""
    return [name for name in table(swarm.get("robots")) if swarm.get("robots", name, "enabled") is True]


def enabled_problems(swarm: LinedYaml) -> Iterator[str]:
    """Find switches that are neither true nor false: such a drone would be left out silently."""
    for name, robot in table(swarm.get("robots")).items():
        found = swarm.get("robots", name, "enabled")
        if is_table(robot) and not isinstance(found, bool):
            yield f"{swarm.where('robots', name, 'enabled')}: found {shown(found)}, expected true or false"


def uri_problems(swarm: LinedYaml, name: str) -> Iterator[str]:
    """Find an invalid address, or one of another enabled drone: both would take the same set-points."""
    where, found = swarm.where("robots", name, "uri"), swarm.get("robots", name, "uri")
    own = _address(found)
    if own is None:
        yield (f"{where}: found {shown(found)}, expected the address of the drone, such as radio://0/80/2M/E7E7E7E701")
        return
    for other in enabled_robots(swarm):
        if other != name and _address(swarm.get("robots", other, "uri")) == own:
            yield (f"{where}: found {found}, which {swarm.where('robots', other, 'uri')} has; expected another address")


def type_problems(swarm: LinedYaml, names: Sequence[str], described: Sequence[str], robot: str) -> Iterator[str]:
    """Find drones of more than one type, unless the user declared that the file of ``robot`` describes them all."""
    kinds = {name: swarm.get("robots", name, "type") for name in names}
    kinds = {name: kind for name, kind in kinds.items() if isinstance(kind, str) and swarm.get("robot_types", kind)}
    first = next(iter(kinds.items()), ("", ""))
    for name, kind in kinds.items():
        if kind != first[1] and not (kind in described and first[1] in described):
            yield (
                f"{swarm.where('robots', name, 'type')}: found {kind!r} beside {first[1]!r} of {first[0]}; one "
                f"robot file describes all drones of a fleet: if {robot} describes both, import with --robot "
                f"{first[1]},{kind}:{robot}, else disable the drones of one type"
            )


def frequency_problem(found: Any, where: str, needed_hz: float, why: str) -> Iterator[str]:
    """Find a required log whose frequency is too low; `log_problems` finds invalid frequencies."""
    if not number(found) >= needed_hz:
        yield (
            f"{where}: found {shown(found, 'Hz')}, expected {needed_hz:g} Hz or more: {why}; write frequency: "
            f"{needed_hz:g}"
        )


def log_problems(swarm: LinedYaml, tables: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Find logs with an invalid frequency; ``tables`` are those that may contain `firmware_logging`."""
    for keys in (
        (*above, "firmware_logging", part) for above in tables for part in ("default_topics", "custom_topics")
    ):
        topics = swarm.get(*keys)
        if topics is not None and not is_table(topics):
            yield f"{swarm.where(*keys)}: found {shown(topics)}, expected a table"
        for topic in table(topics):
            yield from _topic_problems(swarm, (*keys, topic))


def _topic_problems(swarm: LinedYaml, keys: tuple[str, ...]) -> Iterator[str]:
    if not isinstance(swarm.get(*keys), Mapping):
        yield f"{swarm.where(*keys)}: found {shown(swarm.get(*keys))}, expected a table with frequency"
        return
    found = swarm.get(*keys, "frequency")
    if type(found) is not int or not 1 <= found <= MOST_HZ:
        yield (
            f"{swarm.where(*keys, 'frequency')}: found {shown(found, 'Hz')}, expected a whole number from 1 to "
            f"{MOST_HZ}: the server makes a period of whole 10 ms of it"
        )


def _address(uri: Any) -> str | None:
    """Return the identity of a drone: channel, rate and address of a radio URI, for any dongle; None if invalid."""
    if not isinstance(uri, str):
        return None
    radio = _RADIO.fullmatch(uri)
    if radio is not None:
        channel = int(radio[2])
        return f"{channel}/{radio[3]}/{radio[4].upper()}" if channel <= _MOST_CHANNEL else None
    return uri if _OTHER_URI.fullmatch(uri) else None
