"""Shows a fleet in RViz and Foxglove: one `MarkerArray` on `/fleet/markers`, ten times a second.

Messages are kept as they come and decoded when a picture is made; while nobody looks, it hears nothing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from diagnostic_msgs.msg import DiagnosticStatus
from nav_msgs.msg import Odometry
from rclpy.clock import Clock, ClockType
from rclpy.node import Node
from rclpy.serialization import deserialize_message
from rclpy.task import Future
from std_msgs.msg import UInt8MultiArray
from visualization_msgs.msg import MarkerArray

from testudo_deploy.admission.shared_arena import world_arena
from testudo_deploy.contract.messages import EnvelopeError, PeerMessage, TickRecord
from testudo_deploy.fleet.fleet import FleetRobot, load_fleet
from testudo_deploy.fleet.measured_pose_topics import recorded_pose, shared_odometry
from testudo_deploy.markers import RobotView, arena_markers, fleet_markers
from testudo_deploy.station.station_topics import MARKERS_TOPIC
from testudo_hardware.links.wire import OdometryReading, WireError, read_odometry
from testudo_nodes.common.message_conversions import envelope_bytes
from testudo_nodes.common.node_runner import WARN_EVERY_S, CpuMeter, guarded, report_status, run, text_parameter
from testudo_nodes.common.qos import OFFERED, SHOWN
from testudo_nodes.station.marker_messages import marker_array

_PERIOD_S = 0.1
_LIFETIME_S = 1.0
_TYPES = {"odom": Odometry, "tick": UInt8MultiArray, "peer_state": UInt8MultiArray, "mode": DiagnosticStatus}


class MarkersNode(Node):
    """The node that draws a fleet."""

    def __init__(self, _stop: Future) -> None:
        """Prepare; once somebody looks, it listens to every robot, never to the truth.

        Raises:
            TestudoError: fleet or policy are refused.
        """
        super().__init__("markers")
        self.failed = False
        # in lock-step the ROS clock is simulated time, on which the robots stamp
        simulated = self.get_parameter("use_sim_time").value
        self._now_s = self._ros_now_s if simulated else time.monotonic
        fleet = load_fleet(text_parameter(self, "fleet", "the fleet file"))
        policy = text_parameter(self, "policy", "the policy file, which holds the arena")
        self._arena = arena_markers(world_arena(replace(fleet, policy=Path(policy))))
        self._fleet, self._robots = fleet, []
        self._publisher = self.create_publisher(MarkerArray, MARKERS_TOPIC, OFFERED["markers"])
        self._timer = self.create_timer(
            _PERIOD_S, guarded(self, self._show), clock=Clock(clock_type=ClockType.STEADY_TIME)
        )
        self._cpu = CpuMeter()

    def close(self) -> None:
        """Tell what it cost."""
        report_status("markers", {"cpu_share": self._cpu.share()})

    def _ros_now_s(self) -> float:
        return 1e-9 * self.get_clock().now().nanoseconds

    def _show(self) -> None:
        looks = self._publisher.get_subscription_count() > 0
        if looks and not self._robots:
            self._robots = [_Heard(self, robot, self._now_s) for robot in self._fleet.robots]
        if not looks:
            for robot in self._robots:
                robot.close()
            self._robots = []
            return
        now_s = self._now_s()
        shown = (*self._arena, *fleet_markers([robot.view(now_s) for robot in self._robots]))
        self._publisher.publish(marker_array(self, shown, self._fleet.frame, _LIFETIME_S))


class _Heard:
    """The newest message of each topic of one robot, still serialised."""

    def __init__(self, node: Node, robot: FleetRobot, now_s: Callable[[], float]) -> None:
        self._node, self._robot, self._now_s = node, robot, now_s
        self._newest: dict[str, tuple[float, bytes]] = {}
        topics = {kind: f"/{robot.name}/{kind}" for kind in _TYPES}
        shared = shared_odometry(robot)
        if shared is None:
            topics.pop("odom")
        else:
            topics["odom"], self._frames = shared
        self._subscriptions = [
            node.create_subscription(_TYPES[kind], topic, partial(self._take, kind), SHOWN[kind], raw=True)
            for kind, topic in topics.items()
        ]

    def close(self) -> None:
        """Listen no longer."""
        for subscription in self._subscriptions:
            self._node.destroy_subscription(subscription)

    def view(self, now_s: float) -> RobotView:
        """Return what is known at ``now_s`` [s]."""
        name, spec = self._robot.name, self._robot.spec
        envelope, record_age_s = self._read("tick", now_s)
        record = _decoded(TickRecord, envelope)
        peer = _decoded(PeerMessage, self._read("peer_state", now_s)[0])
        reading, pose_age_s = self._odometry(now_s)
        if reading is None and record is not None:
            reading, pose_age_s = recorded_pose(record, now_s - record_age_s), record_age_s
        place, yaw = (None, 0.0) if reading is None else (reading.position_world, reading.yaw)
        mode = self._mode(now_s)
        return RobotView(
            name, spec, place, yaw, pose_age_s, record, record_age_s, peer, mode.get("mode", ""), mode.get("code", "")
        )

    def _odometry(self, now_s: float) -> tuple[OdometryReading | None, float]:
        """Return the newest odometry and its age [s]; None if there is none in the shared frame."""
        message, age_s = self._read("odom", now_s)
        if message is None:
            return None, age_s
        try:
            reading = read_odometry(message, self._robot.name, self._robot.spec, self._frames)
        except WireError as error:
            self._node.get_logger().warning(str(error), throttle_duration_sec=WARN_EVERY_S)
            return None, float("inf")
        return reading, age_s

    def _mode(self, now_s: float) -> dict[str, str]:
        message, _ = self._read("mode", now_s)
        return {} if message is None else {pair.key: pair.value for pair in message.values}

    def _take(self, topic: str, data: bytes) -> None:
        self._newest[topic] = (self._now_s(), data)

    def _read(self, topic: str, now_s: float) -> tuple[Any, float]:
        """Return the newest message and its age [s]; None and infinity without."""
        if topic not in self._newest:
            return None, float("inf")
        received_s, data = self._newest[topic]
        return deserialize_message(data, _TYPES[topic]), now_s - received_s


def _decoded(kind: type, envelope: UInt8MultiArray | None) -> Any:
    """Return the envelope that a message carries; None without one, or if it cannot be read."""
    try:
        return None if envelope is None else kind.decode(envelope_bytes(envelope))
    except EnvelopeError:
        return None


def main() -> None:
    """Run the node until a signal comes."""
    sys.exit(run(MarkersNode))


if __name__ == "__main__":
    main()
