"""A Foxglove layout for the recording of a run: 3-D view, speeds of all robots, raw messages."""

from json import dumps
from pathlib import Path
from typing import Any

import yaml

from testudo_analysis.rendering.scene_model import robot_colour
from testudo_deploy.files.bag_writer import METADATA_FILE
from testudo_hardware.errors import TestudoError
from testudo_runs.alignment import TeamRecording

_POSES = {
    "nav_msgs/msg/Odometry": ".twist.twist.linear.x",
    "geometry_msgs/msg/PoseStamped": ".pose.position.x",
}
_COMMANDS = {
    "geometry_msgs/msg/TwistStamped": ".twist.linear.x",
    "geometry_msgs/msg/Twist": ".linear.x",
}


def write_layout(recording: TeamRecording, path: Path) -> Path:
    """Write the layout and return its path; import it in Foxglove, and open run_0.mcap of the run folder.

    Raises:
        TestudoError: the recording cannot be read, or the file cannot be written.
    """
    if path.suffix != ".json":
        raise TestudoError(f"--foxglove: found {path}, expected a file that ends in .json")
    values = layout(recording, topic_types(recording.folder))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dumps(values, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise TestudoError(f"--foxglove {path}: cannot be written: {error.strerror}") from error
    return path


def layout(recording: TeamRecording, types: dict[str, str]) -> dict[str, Any]:
    """Return the layout for the topics of a recording with their types."""
    names = recording.names
    poses = {topic: path for topic, kind in types.items() if (path := _POSES.get(kind))}
    commands = {topic: path for topic, kind in types.items() if (path := _COMMANDS.get(kind))}
    views = {topic: {"visible": True, "type": "arrow"} for topic in sorted(poses)}
    panels = {
        "3D!scene": {"cameraState": {"perspective": True, "distance": 8}, "topics": views, "followMode": "follow-none"},
        "Plot!motion": _plot("motion", poses, names),
        "Plot!commands": _plot("commands", commands, names),
        "RawMessages!first": {"topicPath": min(types) if types else ""},
    }
    right = {
        "first": "Plot!motion",
        "second": {"first": "Plot!commands", "second": "RawMessages!first", "direction": "column"},
        "direction": "column",
        "splitPercentage": 40,
    }
    return {
        "configById": panels,
        "globalVariables": {},
        "userNodes": {},
        "playbackConfig": {"speed": 1},
        "layout": {"first": "3D!scene", "second": right, "direction": "row", "splitPercentage": 55},
    }


def _plot(title: str, paths: dict[str, str], names: tuple[str, ...]) -> dict[str, Any]:
    series = [
        {
            "value": topic + path,
            "label": topic,
            "color": robot_colour(_owner(topic, names)),
            "enabled": True,
            "timestampMethod": "receiveTime",
        }
        for topic, path in sorted(paths.items())
    ]
    return {"title": title, "paths": series, "showLegend": True, "xAxisVal": "timestamp", "isSynced": True}


def _owner(topic: str, names: tuple[str, ...]) -> int:
    """Return the number of the robot in whose namespace a topic is; 0 for others."""
    return next((k for k, name in enumerate(names) if f"/{name}/" in topic), 0)


def topic_types(folder: Path) -> dict[str, str]:
    """Return the topics of a run folder with the types of their messages.

    Raises:
        TestudoError: `metadata.yaml` is missing or is not of rosbag2.
    """
    file = folder / METADATA_FILE
    try:
        about = yaml.safe_load(file.read_text(encoding="utf-8"))["rosbag2_bagfile_information"]
        topics = [row["topic_metadata"] for row in about["topics_with_message_count"]]
        return {str(topic["name"]): str(topic["type"]) for topic in topics}
    except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
        raise TestudoError(
            f"--foxglove: {file}: cannot be read as the metadata of a rosbag2 folder: {error}"
        ) from error
