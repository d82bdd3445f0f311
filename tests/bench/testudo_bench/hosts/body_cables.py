"""The cables between each robot's computer and its body: odometry up, commands down, restamped between the two clocks.

    python -m testudo_bench.hosts.body_cables '{"plant_domain": 3, "domain": 42, "computers": {...}}'

The plant is one world with one clock; on each robot's computer this process stands where the robot's driver would, and
stamps with the clock of that computer. It passes no network between computers: each end is made inside the network
namespace of its computer, with sockets of that namespace only.
"""

import contextlib
import json
import os
import signal
import struct
import sys
import threading
from collections.abc import Callable
from typing import Any

import rclpy
from geometry_msgs.msg import TwistStamped
from nav_msgs.msg import Odometry
from rclpy.context import Context
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.node import Node

from testudo_deploy.launch.ros_domain import LOOPBACK
from testudo_nodes.common.process_priority import PRIORITIES, set_realtime_priority
from testudo_nodes.common.qos import OFFERED, REQUESTED

_STAMP = struct.Struct("<iI")  # of a message that begins with a header, after the 4 bytes of its encapsulation
_STAMP_AT, _NANO = 4, 1_000_000_000


def restamped(message: bytes, ahead_ns: int) -> bytes:
    """Return a serialised message with a header whose stamp is moved by ``ahead_ns``."""
    changed = bytearray(message)
    seconds, nanoseconds = _STAMP.unpack_from(changed, _STAMP_AT)
    stamp_ns = seconds * _NANO + nanoseconds + ahead_ns
    _STAMP.pack_into(changed, _STAMP_AT, stamp_ns // _NANO, stamp_ns % _NANO)
    return bytes(changed)


class Ends(threading.Thread):
    """One participant in a ROS domain, made and run by a thread in a network namespace; None: that of the process."""

    def __init__(self, name: str, namespace: str | None, domain_id: int, environment: dict[str, str]) -> None:
        """Make it; the environment of the process changes, so make one after the other."""
        super().__init__(daemon=True)
        self._name, self._namespace, self._domain_id, self._environment = name, namespace, domain_id, environment
        self._made = threading.Event()
        self.context = Context()
        self.node: Node | None = None
        self.start()
        self._made.wait()

    def run(self) -> None:
        """Enter the namespace, make the node, spin."""
        if self._namespace is not None:
            with open(self._namespace, encoding="ascii") as place:  # noqa: PTH123
                os.setns(place.fileno(), os.CLONE_NEWNET)
        for key in [key for key in os.environ if key.startswith(("ROS_", "FASTDDS_", "FASTRTPS_"))]:
            if key != "ROS_LOG_DIR":
                del os.environ[key]
        os.environ.update(self._environment)
        rclpy.init(context=self.context, domain_id=self._domain_id)
        self.node = rclpy.create_node(self._name, context=self.context)
        executor = SingleThreadedExecutor(context=self.context)
        executor.add_node(self.node)
        self._made.set()
        with contextlib.suppress(ExternalShutdownException):
            executor.spin()

    def passing_on(self, kind: type, topic: str, other: "Ends", qualities: tuple[Any, Any], ahead_s: float) -> None:
        """Pass a topic from here to the other end, each message moved by ``ahead_s``."""
        assert self.node is not None
        assert other.node is not None
        wanted, offered = qualities
        publisher = other.node.create_publisher(kind, topic, offered)
        ahead_ns = round(ahead_s * _NANO)

        def on_message(message: bytes) -> None:
            publisher.publish(restamped(message, ahead_ns))

        self.node.create_subscription(kind, topic, on_message, wanted, raw=True)


def connect(given: dict[str, Any]) -> Callable[[], None]:
    """Lay the cables; return what takes them away."""
    plant = Ends("bodies", None, given["plant_domain"], LOOPBACK)
    ends = [plant]
    for robot, computer in given["computers"].items():
        environment = {"FASTDDS_BUILTIN_TRANSPORTS": "UDPv4", **computer["environment"]}
        end = Ends(f"{robot}_body", computer["namespace"], given["domain"], environment)
        ends.append(end)
        ahead_s = computer["steady_s"]
        plant.passing_on(Odometry, f"/{robot}/odom", end, (REQUESTED["odom"], OFFERED["odom"]), ahead_s)
        down = (REQUESTED["cmd_vel"], OFFERED["cmd_vel"])
        end.passing_on(TwistStamped, f"/{robot}/cmd_vel", plant, down, -ahead_s)

    def close() -> None:
        for end in ends:
            end.context.try_shutdown()
        for end in ends:
            end.join(2.0)

    return close


def main() -> None:
    """Pass messages until a signal comes."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    close = connect(json.loads(sys.argv[1]))
    set_realtime_priority(PRIORITIES["driver"])
    sys.stdout.write('{"event": "ready"}\n')
    sys.stdout.flush()
    signal.sigwait({signal.SIGINT, signal.SIGTERM})
    close()


if __name__ == "__main__":
    main()
