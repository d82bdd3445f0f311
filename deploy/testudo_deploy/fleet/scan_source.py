"""The laser scanner of a robot in the fleet file, `scan`: for the zones of its guard, and rows of its shield."""

import math
import re
from dataclasses import dataclass, field
from typing import Any

from testudo_deploy.fleet.robot_links import FleetError
from testudo_deploy.guard.separation_zones import HUMAN_SPEED_M_S, ScannerParameters
from testudo_hardware.spec import RobotSpec
from testudo_hardware.strict_files import OPTIONAL

_TOPIC = re.compile(r"/?[A-Za-z_]\w*(/[A-Za-z_]\w*)*")
_TURN_RAD = 2 * math.pi


@dataclass(frozen=True)
class ScanSource:
    """The laser scanner of a robot."""

    topic: str  # of `sensor_msgs/LaserScan`; relative to the robot's namespace unless it begins with a slash
    scanner: ScannerParameters
    rows: bool = False  # the shield has rows for what the scanner sees, beside the guard's zones


@dataclass(frozen=True)
class ScanEntry:
    """A laser scanner in the file; lengths m, times s, angles rad."""

    topic: str
    period: float
    error: float
    height: float
    mount: tuple[float, ...] = field(default=(0.0, 0.0, 0.0), metadata=OPTIONAL)
    human_speed: float = field(default=HUMAN_SPEED_M_S, metadata=OPTIONAL)
    intrusion: float | None = field(default=None, metadata=OPTIONAL)
    rows: bool = field(default=False, metadata=OPTIONAL)


def scan_source(entry: ScanEntry | None, spec: RobotSpec, where: str) -> ScanSource | None:
    """Return the scanner of a robot; None if it has none.

    Raises:
        FleetError: a drone, a topic that is no name, or a number out of range.
    """
    if entry is None:
        return None
    if spec.dimension != 2:
        raise FleetError(f"{where}.scan: found for a {spec.name}, expected a robot on the ground: it scans one plane")
    if not _TOPIC.fullmatch(entry.topic):
        raise FleetError(f"{where}.scan.topic: found {entry.topic!r}, expected the name of a topic")
    if len(entry.mount) != 3:
        raise FleetError(f"{where}.scan.mount: found {len(entry.mount)} numbers, expected x, y and yaw")
    for key, value, low, high in (
        ("period", entry.period, 0.005, 1.0),
        ("error", entry.error, 0.0, 1.0),
        ("height", entry.height, 0.0, 3.0),
        ("mount", entry.mount[0], -5.0, 5.0),
        ("mount", entry.mount[1], -5.0, 5.0),
        ("mount", entry.mount[2], -_TURN_RAD, _TURN_RAD),
        ("human_speed", entry.human_speed, 0.0, 10.0),
        ("intrusion", entry.intrusion or 0.0, 0.0, 3.0),
    ):
        if not low <= value <= high:
            raise FleetError(f"{where}.scan.{key}: found {value:g}, expected {low:g} to {high:.4g}")
    mount = (entry.mount[0], entry.mount[1], entry.mount[2])
    return ScanSource(
        entry.topic,
        ScannerParameters(entry.period, entry.error, entry.height, mount, entry.human_speed, entry.intrusion),
        entry.rows,
    )


def scan_tables(source: ScanSource | None) -> dict[str, Any]:
    """Return the entry `scan` of a fleet file; empty without a scanner."""
    if source is None:
        return {}
    scanner = source.scanner
    values = {
        "topic": source.topic,
        "period": float(scanner.period_s),
        "error": float(scanner.error_m),
        "height": float(scanner.height_m),
        "mount": [float(value) for value in scanner.mount],
        "human_speed": float(scanner.human_speed_m_s),
    }
    values |= {} if scanner.intrusion_m is None else {"intrusion": float(scanner.intrusion_m)}
    return {"scan": values | ({"rows": True} if source.rows else {})}
