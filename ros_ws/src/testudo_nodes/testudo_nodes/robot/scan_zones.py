"""What slows the commands of one robot in the node of its guard: its laser scanner, and a file of estimates.

`testudo_deploy.guard.separation_zones` and `testudo_deploy.guard.speed_cap` decide.
"""

from collections.abc import Callable
from dataclasses import replace

from sensor_msgs.msg import LaserScan

from testudo_deploy.fleet.fleet import FleetRobot
from testudo_deploy.guard.command_checks import CommandChecks
from testudo_deploy.guard.separation_zones import Scan, SeparationZones
from testudo_deploy.guard.speed_cap import capped_share
from testudo_hardware.links.wire import CommandReading, convert_clock_s, read_stamp
from testudo_nodes.common.clock import NodeClock
from testudo_nodes.common.qos import REQUESTED


def read_scan(message: LaserScan, clock: NodeClock) -> tuple[Scan, float]:
    """Return a scan on the steady clock of a node, and the time [s]."""
    ros_now_s, now_s = clock.clocks()
    scan = Scan(
        convert_clock_s(read_stamp(message.header.stamp), ros_now_s, now_s),
        message.angle_min,
        message.angle_increment,
        message.range_min,
        message.range_max,
        message.ranges,
    )
    return scan, now_s


class GuardScan:
    """The zones around one robot, without a scanner in the fleet file none, and its highest speed."""

    def __init__(
        self, clock: NodeClock, robot: FleetRobot, content: CommandChecks, cap_m_s: float = float("inf")
    ) -> None:
        """Begin without a scan, which is silence where there is a scanner; ``cap_m_s`` is the highest speed [m/s]."""
        self._spec, self._cap_m_s = robot.spec, cap_m_s
        self._clock, self._source = clock, robot.scan
        self._on_scan: Callable[[], None] = lambda: None
        self.share = 1.0
        """Share of the last command that was passed on."""
        self._zones = None
        if robot.scan is not None:
            self._zones = SeparationZones(robot.spec, robot.scan.scanner, content.is_wall)

    def begin(self, on_scan: Callable[[], None]) -> None:
        """Subscribe; call ``on_scan`` after each message."""
        if self._source is not None:
            self._on_scan = on_scan
            # its driver is not ours: in lock-step nobody counts its messages
            self._clock.subscribe_outside(LaserScan, self._source.topic, self._take, REQUESTED["scan"])

    def code(self, now_s: float) -> str:
        """Return the code for which the robot must stand; empty if it may move."""
        return "" if self._zones is None else self._zones.code(now_s)

    def refusal(self, command: tuple[float, ...]) -> str:
        """Return the code for which a command must not be passed on; empty if it may."""
        return "scan_blind" if self._zones is not None and self._zones.is_blind(command) else ""

    def slowed(self, reading: CommandReading) -> CommandReading:
        """Return a command as slow as the distance of the nearest object, and the highest speed, require."""
        capped = capped_share(self._spec, self._cap_m_s, reading.command)
        self.share = min(capped, 1.0 if self._zones is None else self._zones.share(reading.command))
        if self.share >= 1.0:
            return reading
        return replace(reading, command=tuple(self.share * value for value in reading.command))

    def _take(self, message: LaserScan) -> None:
        scan, now_s = read_scan(message, self._clock)
        if self._zones is not None:
            self._zones.hear_scan(scan, now_s)
        self._on_scan()
