"""Plain markers to `visualization_msgs`, for RViz and Foxglove; `testudo_deploy.markers` makes them."""

from __future__ import annotations

from collections.abc import Sequence

from geometry_msgs.msg import Point
from rclpy.node import Node
from visualization_msgs.msg import Marker as MarkerMessage
from visualization_msgs.msg import MarkerArray

from testudo_deploy.markers import Marker, fill_marker


def marker_array(node: Node, markers: Sequence[Marker], frame: str, lifetime_s: float) -> MarkerArray:
    """Return markers as one message, stamped with the node's clock.

    Args:
        node: whose clock it is.
        markers: what to show.
        frame: the frame that the fleet shares.
        lifetime_s: viewers forget what is not shown again for so long; 0 is never.
    """
    stamp = node.get_clock().now().to_msg()
    filled = [fill_marker(MarkerMessage(), marker, Point, frame, lifetime_s) for marker in markers]
    for message in filled:
        message.header.stamp = stamp
    return MarkerArray(markers=filled)
