"""Looks for robots that speak in the ROS domain of a fleet and are not in its file."""

from __future__ import annotations

from collections.abc import Sequence

from rclpy.node import Node

from testudo_deploy.station.publisher_check import PEER_TOPIC, unknown_robots


def find_unknown_robots(node: Node, robots: Sequence[str]) -> list[str]:
    """Return the names of the robots that publish for peers and are not among ``robots``; who only listens is none."""
    found = unknown_robots([topic for topic, _ in node.get_topic_names_and_types()], robots)
    return [name for name in found if node.count_publishers(f"/{name}/{PEER_TOPIC}")]
