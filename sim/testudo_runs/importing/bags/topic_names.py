"""Classifies topics by name: the robot, and goal, ground truth, command or measured velocity."""

from __future__ import annotations

import re
from collections.abc import Mapping

_CAPTURE_WORDS = """
    mocap vrpn vrpn_mocap vrpn_client_node natnet natnet_ros natnet_ros2 vicon optitrack qualisys mocap4r2
    motion_capture phasespace rigid_bodies rigid_body tracking tracker
"""
_CAPTURE = frozenset(_CAPTURE_WORDS.split())
"""Namespaces of motion capture systems."""
_PARTS_WORDS = """
    odom odometry odometry_filtered filtered raw pose pose_stamped poses cmd_vel cmd_vel_nav cmd_vel_raw
    cmd_vel_teleop cmd_vel_joy cmd_vel_smoothed cmd_vel_stamped cmd_vel_unstamped cmd_pose command commands imu data
    data_raw imu_raw battery battery_state battery_status joint_states joint_state tf tf_static goal goal_pose
    target setpoint setpoint_raw setpoint_velocity setpoint_position velocity twist twist_stamped state local
    local_position mavros wheel wheels wheel_odom diff_drive diff_drive_controller base_controller mobile_base
    controller ekf ekf_node amcl amcl_pose slam ground_truth truth gazebo model sensors robot_base vel_cmd motors
    motor thrust cmd reference desired world map base_link base_footprint base_stabilized body transform kinematics
    nav navigation teleop joy mux cmd_vel_mux twist_mux key_vel velocity_smoother collision_monitor status gt
    teleop_twist ins camera realsense t265 zed oak lidar front rear left right sample accel gyro bno055 mpu sensor
    driver create3 robot_description platform chassis base
"""
_PARTS = frozenset(_PARTS_WORDS.split())
"""Parts of topic names that name no robot."""
_GOAL = re.compile(r"goal|target|set_?point|desired|reference|cmd_pos|command_pos|cmd_full|plan")
_TRUTH = re.compile(r"ground_?truth|truth|/gt\b|_gt\b")
_COMMAND = re.compile(r"cmd|command|set_?point|teleop|joy|key_vel|vel_ref|reference")
_TOPIC_WORD = re.compile(r"odom|cmd|vel|pose|twist|imu|battery|command|set_?point|goal|motors|joint")
"""Words that begin or end the last part of a topic name; the rest of that part names the robot."""
_NOT_IN_A_NAME = re.compile(r"[^a-z0-9_]+")


def robot_of(topic: str) -> str:
    """Return the robot that a topic name contains; empty if it contains none."""
    parts = [part for part in topic.split("/") if part]
    known = [part for part in parts if part.lower() not in _PARTS and part.lower() not in _CAPTURE]
    return known[0] if known else ""


def robots_of(topics: Mapping[str, str]) -> dict[str, str]:
    """Return the robot of each topic name, read from all names together: `r0` for `/odom_r0`, `a` for `/fleet/a/odom`.

    Args:
        topics: types by name.
    """
    found = {name: robot_of(name) for name in topics}
    heads = {name: parts for name in topics if name.endswith(f"/{found[name]}") and (parts := _apart(found[name]))}
    for name, (robot, _) in heads.items():
        others = {kind for other, (one, kind) in heads.items() if one == robot}
        # /odom_combined names no robot; /odom_r0 does, and so do /odom_a and /cmd_vel_a together
        found[name] = robot if len(others) > 1 or robot[-1:].isdigit() else ""
    for first in set(found.values()) - {""}:
        below = {name: _below(name, first) for name in topics if found[name] == first}
        tails: dict[tuple[str, str], set[str]] = {}
        for name, (robot, tail) in below.items():
            tails.setdefault((tail, topics[name]), set()).add(robot)
        if all(robot for robot, _ in below.values()) and any(len(robots) > 1 for robots in tails.values()):
            found.update({name: robot for name, (robot, _) in below.items()})
    return found


def robot_of_frame(frame: str) -> str:
    """Return the robot that a frame name contains; empty for a plain name such as `base_link`."""
    parts = [part for part in frame.split("/") if part and part.lower() not in _PARTS]
    if parts:
        return re.sub(r"[_.-]?(base_link|base_footprint|base)$", "", parts[0])
    return ""


def is_body(frame: str) -> bool:
    """Return whether a frame name is that of a robot body."""
    return frame.rpartition("/")[2].rpartition(".")[2].endswith(("base_link", "base_footprint", "base_stabilized"))


def is_goal(topic: str) -> bool:
    """Return whether a topic name is that of a goal or set-point."""
    return bool(_GOAL.search(topic.lower()))


def is_truth(topic: str) -> bool:
    """Return whether a topic name is that of ground truth or motion capture."""
    return bool(_TRUTH.search(topic.lower())) or any(part in _CAPTURE for part in topic.lower().split("/"))


def is_command(topic: str) -> bool:
    """Return whether a velocity topic is named as a command; others are taken as measured."""
    return bool(_COMMAND.search(topic.lower()))


def _apart(part: str) -> tuple[str, str] | None:
    """Return the robot and the known word in `odom_r0` or `r0_odom`; None if there is no such word."""
    words = part.lower().split("_")
    for count in range(len(words) - 1, 0, -1):
        for known, rest in ((words[:count], words[count:]), (words[-count:], words[:-count])):
            if "_".join(known) in _PARTS and _TOPIC_WORD.search("_".join(known)):
                robot = "_".join(rest)
                return "" if robot in _PARTS else robot, "_".join(known)
    return None


def _below(topic: str, first: str) -> tuple[str, str]:
    """Return the part of a name that names a robot below the namespace ``first``, and the rest of the name."""
    parts = [part for part in topic.split("/") if part]
    for k in range(parts.index(first) + 1 if first in parts else len(parts), len(parts)):
        if parts[k].lower() not in _PARTS and parts[k].lower() not in _CAPTURE:
            return parts[k], "/".join(parts[k + 1 :])
    return "", ""


def plain_name(text: str) -> str:
    """Return a valid robot name: lower-case letters, digits and _, a letter first."""
    name = _NOT_IN_A_NAME.sub("_", text.lower()).strip("_")
    return name if name[:1].isalpha() else f"r{name}"
