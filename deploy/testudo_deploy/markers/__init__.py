"""What RViz and Foxglove show of a fleet, as plain values; `visualization_msgs` is filled elsewhere."""

from testudo_deploy.markers.arena import arena_markers
from testudo_deploy.markers.goals import GoalView, body_marker, goal_markers
from testudo_deploy.markers.marker import Marker, Shape, fill_marker
from testudo_deploy.markers.robots import RobotView, fleet_markers

__all__ = [
    "GoalView",
    "Marker",
    "RobotView",
    "Shape",
    "arena_markers",
    "body_marker",
    "fill_marker",
    "fleet_markers",
    "goal_markers",
]
