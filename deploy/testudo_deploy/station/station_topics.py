"""Topics of the station: what is shown of a fleet, and of its task."""

from __future__ import annotations

MARKERS_TOPIC = "/fleet/markers"
"""`visualization_msgs/MarkerArray` in the frame that the fleet shares; for viewers only, not recorded."""
SCORE_TOPIC = "/task/score"
"""`std_msgs/String` with a JSON object of the schema `SCORE_SCHEMA`, one for each decision of the task."""
SCORE_SCHEMA = "testudo/score/1"
GOALS_TOPIC = "/task/goals"
"""`visualization_msgs/MarkerArray` in the frame that the fleet shares: goals, and bodies that are measured."""


def body_topic(body: str) -> str:
    """Return the topic of the measured pose of a scenario's body: `geometry_msgs/PoseStamped`, in the fleet's frame."""
    return f"/task/{body}/pose"
