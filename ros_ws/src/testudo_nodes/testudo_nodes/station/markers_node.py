"""Draws a fleet for RViz and Foxglove: one `MarkerArray` on `/fleet/markers`, ten times a second.

It also sends the transforms from the fleet's frame to `ROBOT/base_link` on `/tf`, of the robots whose localisation
sends none: a frame has one parent only. Messages are stored undecoded, and decoded for each picture; without a viewer
it subscribes to nothing.
"""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from geometry_msgs.msg import Point, TransformStamped
from rclpy.clock import Clock
from rclpy.clock_type import ClockType
from rclpy.node import Node
from rclpy.task import Future
from visualization_msgs.msg import Marker as MarkerMessage
from visualization_msgs.msg import MarkerArray

from testudo_deploy.admission.fleet_admission import world_arena
from testudo_deploy.fleet.fleet import FleetRobot, load_fleet
from testudo_deploy.fleet.link_topics import TRANSFORM_TOPIC
from testudo_deploy.fleet.pose_source import TRANSFORM_TYPE
from testudo_deploy.launch.topic_names import MARKERS_TOPIC
from testudo_deploy.station.markers import Marker, arena_markers, fill_marker
from testudo_deploy.station.robot_markers import fleet_markers
from testudo_deploy.station.viewer_transforms import transformed_robots, viewer_transforms
from testudo_hardware.errors import TestudoError
from testudo_hardware.links.wire import fill_transform
from testudo_nodes.common.messages import message_class
from testudo_nodes.common.node_runner import WARN_EVERY_S, CpuMeter, logging_errors, report_status, run, text_parameter
from testudo_nodes.common.qos import OFFERED, SHOWN
from testudo_nodes.station.robot_messages import TYPES, RobotMessages

_PERIOD_S = 0.1
_LIFETIME_S = 1.0


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
        self._transforms = self._transform_publisher()
        self._timer = self.create_timer(
            _PERIOD_S, logging_errors(self, self._show), clock=Clock(clock_type=ClockType.STEADY_TIME)
        )
        self._cpu = CpuMeter()

    def close(self) -> None:
        """Report the processor time."""
        report_status("markers", {"cpu_share": self._cpu.share()})

    def _ros_now_s(self) -> float:
        return 1e-9 * self.get_clock().now().nanoseconds

    def _transform_publisher(self) -> tuple[Any, Any] | None:
        """Return the publisher of transforms and its type; None without `tf2_msgs`, or if no robot needs one."""
        if not transformed_robots(self._fleet):
            return None
        try:
            kind = message_class(TRANSFORM_TYPE)
        except TestudoError as error:
            self.get_logger().info(f"no transforms for viewers: {error}")
            return None
        return kind, self.create_publisher(kind, TRANSFORM_TOPIC, OFFERED["tf"])

    def _has_viewer(self) -> bool:
        if self._publisher.get_subscription_count() > 0:
            return True
        # a fleet that is localised by transforms listens to them itself
        own = any(robot.pose.source == "tf" for robot in self._fleet.robots)
        return self._transforms is not None and not own and self._transforms[1].get_subscription_count() > 0

    def _show(self) -> None:
        has_viewer = self._has_viewer()
        if has_viewer and not self._robots:
            self._robots = [_SubscribedRobot(self, robot, self._now_s) for robot in self._fleet.robots]
        if not has_viewer:
            for robot in self._robots:
                robot.close()
            self._robots = []
            return
        now_s = self._now_s()
        views = [robot.view(now_s) for robot in self._robots]
        shown = (*self._arena, *fleet_markers(views))
        self._publisher.publish(marker_array(self, shown, self._fleet.frame, _LIFETIME_S))
        if self._transforms is not None:
            kind, publisher = self._transforms
            stamp_s = 1e-9 * self.get_clock().now().nanoseconds
            found = viewer_transforms(self._fleet, views, stamp_s)
            filled = [fill_transform(TransformStamped(), *frames, reading) for frames, reading in found]
            publisher.publish(kind(transforms=filled))


class _SubscribedRobot(RobotMessages):
    """One robot, with its subscriptions."""

    def __init__(self, node: Node, robot: FleetRobot, now_s: Callable[[], float]) -> None:
        super().__init__(robot, partial(node.get_logger().warning, throttle_duration_sec=WARN_EVERY_S))
        self._node, self._now_s = node, now_s
        self._subscriptions = [
            node.create_subscription(TYPES[kind], topic, partial(self._arrived, kind), SHOWN[kind], raw=True)
            for kind, topic in self.topics.items()
        ]

    def _arrived(self, kind: str, data: bytes) -> None:
        self.take(kind, self._now_s(), data)

    def close(self) -> None:
        """Destroy the subscriptions."""
        for subscription in self._subscriptions:
            self._node.destroy_subscription(subscription)


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
