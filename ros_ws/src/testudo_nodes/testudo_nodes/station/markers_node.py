"""Draws a fleet for RViz and Foxglove: one `MarkerArray` on `/fleet/markers`, ten times a second.

Messages are stored undecoded, and decoded for each picture; without a subscriber to the markers it subscribes to
nothing.
"""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from diagnostic_msgs.msg import DiagnosticStatus
from geometry_msgs.msg import Point
from nav_msgs.msg import Odometry
from rclpy.clock import Clock
from rclpy.clock_type import ClockType
from rclpy.node import Node
from rclpy.serialization import deserialize_message
from rclpy.task import Future
from std_msgs.msg import UInt8MultiArray
from visualization_msgs.msg import Marker as MarkerMessage
from visualization_msgs.msg import MarkerArray

from testudo_deploy.admission.fleet_admission import world_arena
from testudo_deploy.contract.messages import EnvelopeError, PeerMessage, TickRecord
from testudo_deploy.fleet.fleet import FleetRobot, load_fleet
from testudo_deploy.fleet.pose_source import recorded_pose, shared_odometry
from testudo_deploy.launch.topic_names import MARKERS_TOPIC
from testudo_deploy.station.markers import Marker, arena_markers, fill_marker
from testudo_deploy.station.robot_markers import RobotView, fleet_markers
from testudo_hardware.links.wire import OdometryReading, WireError, read_odometry
from testudo_nodes.common.messages import envelope_bytes, status_values
from testudo_nodes.common.node_runner import WARN_EVERY_S, CpuMeter, logging_errors, report_status, run, text_parameter
from testudo_nodes.common.qos import OFFERED, SHOWN

_PERIOD_S = 0.1
_LIFETIME_S = 1.0
_TYPES = {"odom": Odometry, "tick": UInt8MultiArray, "peer_state": UInt8MultiArray, "mode": DiagnosticStatus}


class MarkersNode(Node):
    """The node that draws a fleet."""

    def __init__(self, _stop: Future) -> None:
        """Prepare; with a viewer it subscribes to every robot, never to the truth.

        Raises:
            TestudoError: fleet or policy are refused.
        """
        super().__init__("markers")
        self.failed = False
        # in lock-step the ROS clock is simulated time, as the robots' stamps
        simulated = self.get_parameter("use_sim_time").value
        self._now_s = self._ros_now_s if simulated else time.monotonic
        fleet = load_fleet(text_parameter(self, "fleet", "the fleet file"))
        policy = text_parameter(self, "policy", "the policy file, which holds the arena")
        self._arena = arena_markers(world_arena(replace(fleet, policy=Path(policy))))
        self._fleet, self._robots = fleet, []
        self._publisher = self.create_publisher(MarkerArray, MARKERS_TOPIC, OFFERED["markers"])
        self._timer = self.create_timer(
            _PERIOD_S, logging_errors(self, self._show), clock=Clock(clock_type=ClockType.STEADY_TIME)
        )
        self._cpu = CpuMeter()

    def close(self) -> None:
        """Report the processor time."""
        report_status("markers", {"cpu_share": self._cpu.share()})

    def _ros_now_s(self) -> float:
        return 1e-9 * self.get_clock().now().nanoseconds

    def _show(self) -> None:
        has_viewer = self._publisher.get_subscription_count() > 0
        if has_viewer and not self._robots:
            self._robots = [_RobotMessages(self, robot, self._now_s) for robot in self._fleet.robots]
        if not has_viewer:
            for robot in self._robots:
                robot.close()
            self._robots = []
            return
        now_s = self._now_s()
        shown = (*self._arena, *fleet_markers([robot.view(now_s) for robot in self._robots]))
        self._publisher.publish(marker_array(self, shown, self._fleet.frame, _LIFETIME_S))


class _RobotMessages:
    """The newest message of each topic of one robot, serialised."""

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
        """Destroy the subscriptions."""
        for subscription in self._subscriptions:
            self._node.destroy_subscription(subscription)

    def view(self, now_s: float) -> RobotView:
        """Return the data of the robot at ``now_s`` [s]."""
        name, spec = self._robot.name, self._robot.spec
        envelope, record_age_s = self._read("tick", now_s)
        record = _decoded(TickRecord, envelope)
        peer = _decoded(PeerMessage, self._read("peer_state", now_s)[0])
        reading, pose_age_s = self._odometry(now_s)
        if reading is None and record is not None:
            reading, pose_age_s = recorded_pose(record, now_s - record_age_s), record_age_s
        position, yaw = (None, 0.0) if reading is None else (reading.position_world, reading.yaw)
        mode = self._mode(now_s)
        return RobotView(
            name,
            spec,
            position,
            yaw,
            pose_age_s,
            record,
            record_age_s,
            peer,
            mode.get("mode", ""),
            mode.get("code", ""),
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
        return {} if message is None else status_values(message)

    def _take(self, topic: str, data: bytes) -> None:
        self._newest[topic] = (self._now_s(), data)

    def _read(self, topic: str, now_s: float) -> tuple[Any, float]:
        """Return the newest message and its age [s]; None and infinity without one."""
        if topic not in self._newest:
            return None, float("inf")
        received_s, data = self._newest[topic]
        return deserialize_message(data, _TYPES[topic]), now_s - received_s


def _decoded(kind: type, envelope: UInt8MultiArray | None) -> Any:
    """Return the decoded envelope of a message; None without a message, or if it cannot be read."""
    try:
        return None if envelope is None else kind.decode(envelope_bytes(envelope))
    except EnvelopeError:
        return None


def marker_array(node: Node, markers: Sequence[Marker], frame: str, lifetime_s: float) -> MarkerArray:
    """Return markers as one message, stamped with the node's clock.

    Args:
        node: the node with the clock.
        markers: the markers, in the frame that the fleet shares.
        frame: the name of this frame.
        lifetime_s: time after which viewers remove markers that are not sent again [s]; 0 is never.
    """
    stamp = node.get_clock().now().to_msg()
    filled = [fill_marker(MarkerMessage(), marker, Point, frame, lifetime_s) for marker in markers]
    for message in filled:
        message.header.stamp = stamp
    return MarkerArray(markers=filled)


def main() -> None:
    """Run the node until a signal comes."""
    sys.exit(run(MarkersNode))


if __name__ == "__main__":
    main()
