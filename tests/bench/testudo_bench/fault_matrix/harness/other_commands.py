"""Commands of another node to the actuators of a robot, in the format of its link."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from testudo_bench.fault_matrix.harness.fleet_harness import FleetHarness
from testudo_deploy.fleet.link_topics import absolute
from testudo_hardware.links.topics import CommandWire
from testudo_hardware.links.wire import CommandReading
from testudo_nodes.common.messages import message_class
from testudo_nodes.common.qos import OFFERED


@contextmanager
def other_publisher(harness: FleetHarness, name: str) -> Iterator[Callable[[CommandReading], None]]:
    """Give a function that sends a command, stamped on the steady clock, to a robot; its publisher ends at the end."""
    robot = harness.fleet.robot(name)
    wire = CommandWire(name, robot.spec, robot.link.profile)
    kind, node = message_class(wire.type), harness.observer.node
    publisher = node.create_publisher(kind, absolute(robot.link.topics["cmd_vel"], name), OFFERED["cmd_vel"])
    ahead_s = time.time() - time.monotonic() if robot.link.profile.stamps.value == "ros" else 0.0

    def send(reading: CommandReading) -> None:
        publisher.publish(wire.encode(kind(), replace(reading, stamp_s=reading.stamp_s + ahead_s)))

    try:
        yield send
    finally:
        node.destroy_publisher(publisher)
