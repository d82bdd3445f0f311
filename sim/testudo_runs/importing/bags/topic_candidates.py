"""Finds the topics of a bag that can be a role of a robot, by type, name, content and frames."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

from testudo_runs.bags.bag_contents import NANO, BagError, BagMessage, BagTopic, Tell
from testudo_runs.bags.bag_source import BagSource
from testudo_runs.bags.cdr import Types, groups
from testudo_runs.importing.bags.bag_series import Link, chain, read_links, read_series
from testudo_runs.importing.bags.motion_matching import SampledMotion, motion_of
from testudo_runs.importing.bags.topic_decoding import TF, TopicSamples, is_named_poses, roles_of, texts_of
from testudo_runs.importing.mapping.topic_mapping import TopicMap

_MOTOR_JOINTS, _FEWEST_MOTORS = ("motor", "rotor", "prop", "m1"), 4
_DEAD_RECKONED = "odom"


@dataclass(eq=False)
class Candidate:
    """A topic, or a part of one, with a possible role."""

    bag: str
    topic: str
    type: str
    role: str
    robot: str  # robot in the names; empty if there is none
    rank: int = 0  # lower is better, among candidates for one role
    child: str = ""
    parent: str = ""
    samples: TopicSamples | None = field(default=None, repr=False)
    note: str = ""
    reckoned: bool = False  # the pose is dead reckoning only
    unsure: bool = False  # a velocity that is not named as a command and may be measured

    def entry(self, robot: str, bag: str = "", frame: Literal["", "body", "world"] = "") -> TopicMap:
        """Return its entry of a mapping."""
        return TopicMap(self.topic, robot, self.role, bag=bag, child=self.child, parent=self.parent, frame=frame)

    @cached_property
    def motion(self) -> SampledMotion | None:
        """Its motion; None without samples."""
        if self.samples is None or not len(self.samples):
            return None
        return motion_of(self.role, self.samples.stamp_ns / NANO, self.samples.values)

    @property
    def rate_hz(self) -> float:
        """Return its mean rate [Hz]."""
        if self.samples is None or len(self.samples) < 2:
            return 0.0
        span = float(self.samples.log_ns.max() - self.samples.log_ns.min()) / NANO
        return (len(self.samples) - 1) / span if span > 0 else 0.0


@dataclass
class CandidateSearch:
    """Candidates of one bag."""

    source: BagSource
    candidates: list[Candidate]
    unused: list[str]  # unused topics with the reason


def candidates_of(path: str | Path, folders: Sequence[Path], tell: Tell, damage: list[str]) -> CandidateSearch:
    """Return the candidates of a bag.

    Raises:
        BagError: no bag.
    """
    source, messages = BagSource(path, damage), {}
    for message in source.messages(lambda topic: bool(roles_of(topic.type)), tell):
        messages.setdefault(message.topic, []).append(message)
    types = Types(source.contents.topics.values(), folders, source.folder.distribution)
    found = CandidateSearch(source, [], [])
    for topic in source.contents.topics.values():
        if not source.contents.counts.get(topic.name):
            found.unused.append(f"{topic.name} (no message)")
        elif not types.knows(topic):
            found.unused.append(f"{topic.name} ({topic.type}: not known; --msg-path FOLDER makes it so)")
        elif not roles_of(topic.type):
            found.unused.append(f"{topic.name} ({topic.type})")
        elif topic.type != TF:
            made = _of_topic(source.name, topic, messages.get(topic, []), types)
            found.candidates += made
            if not made:
                found.unused.append(f"{topic.name} ({topic.type}: no role by its name or content)")
    found.candidates += _of_transforms(source, messages, types)
    _add_samples(found, messages, folders)
    return found


def _of_topic(bag: str, topic: BagTopic, messages: Sequence[BagMessage], types: Types) -> list[Candidate]:
    name, robot = topic.name, robot_of(topic.name)
    if is_named_poses(topic.type):
        bodies: dict[str, None] = {}
        for group in groups(types.store(topic), topic.type, [message.data for message in messages]):
            bodies.update(dict.fromkeys(text for _, text in texts_of(group, ".name")))
        return [Candidate(bag, name, topic.type, "pose", body, child=body) for body in bodies]
    role, rank = roles_of(topic.type)[0], 0
    if role == "command":
        rank = 0 if name.endswith("/cmd_vel") else 1
    if role == "odometry":
        role = "setpoint" if is_goal(name) else "pose" if is_truth(name) else "odometry"
        rank = 0 if name.endswith(("/odom", "/truth")) or role == "pose" else 1
    elif role == "pose":
        role = "setpoint" if is_goal(name) else "pose"
        rank = 0 if is_truth(name) else 1
    elif role == "motors":
        if not _is_motors(topic, messages, types):
            return []
    elif role == "imu":
        rank = 0 if name.endswith(("/data", "/imu")) else 1
    return [Candidate(bag, name, topic.type, role, robot, rank, unsure=role == "command" and not is_command(name))]


def _is_motors(topic: BagTopic, messages: Sequence[BagMessage], types: Types) -> bool:
    """Return whether joints are motors of a drone; wheels have no thrust."""
    for group in groups(types.store(topic), topic.type, [message.data for message in messages[:1]]):
        names = [text.lower() for path, text in group.layout.texts.items() if path.startswith("name[")]
        efforts = group.layout.numbers.get("effort", (0, "", 0))[2]
        return efforts >= _FEWEST_MOTORS and any(word in name for name in names for word in _MOTOR_JOINTS)
    return False


def _of_transforms(source: BagSource, messages: Mapping[BagTopic, list[BagMessage]], types: Types) -> list[Candidate]:
    """Return the bodies in transforms, each with the root of its tree."""
    found = []
    topics = {topic.name: topic for topic in messages if topic.type == TF and types.knows(topic)}
    for name, topic in topics.items():
        if name.endswith("_static"):
            continue
        used = {one: messages[one] for one in (topic, topics.get(f"{name}_static")) if one is not None}
        links = read_links(used, types, [])
        for child in _body_frames(links):
            frames = chain(links, child, "")
            root = links[frames[-1]].parent
            odometric = root.rpartition("/")[2] == _DEAD_RECKONED
            one = Candidate(source.name, name, TF, "pose", robot_of_frame(child) or robot_of(name), 2, child, root)
            if odometric:
                one.rank, one.note, one.reckoned = 3, "dead reckoning: nothing above odom", True
            found.append(one)
    return found


def _body_frames(links: Mapping[str, Link]) -> list[str]:
    """Return one frame per moving body: frames named as a body, else children of the root."""
    try:
        moving = [child for child in links if any(links[frame].moves for frame in chain(links, child, ""))]
    except BagError:  # a circle of frames
        return []
    named = [child for child in moving if is_body(child)]
    inner = {frame for child in named for frame in chain(links, child, "")[1:]}
    if named:
        # of base_footprint -> base_link the child represents both
        return [child for child in named if child not in inner]
    return [child for child in moving if links[child].moves and links[child].parent not in links]


def _add_samples(
    found: CandidateSearch, messages: Mapping[BagTopic, list[BagMessage]], folders: Sequence[Path]
) -> None:
    """Decode every candidate and drop those that cannot be decoded."""
    entries = {candidate: candidate.entry(candidate.robot or "robot") for candidate in found.candidates}
    samples: dict[TopicMap, TopicSamples] = {}
    try:
        samples = read_series(found.source, messages, list(entries.values()), folders).samples
    except BagError:
        for entry in entries.values():
            try:
                samples.update(read_series(found.source, messages, [entry], folders).samples)
            except BagError as error:
                found.unused.append(str(error))
    kept = []
    for candidate, entry in entries.items():
        candidate.samples = samples.get(entry)
        if candidate.samples is not None and len(candidate.samples):
            kept.append(candidate)
        else:
            found.unused.append(f"{candidate.topic} (no sample of {candidate.child or candidate.topic} can be read)")
    found.candidates[:] = kept


_CAPTURE_WORDS = """
    mocap vrpn vrpn_mocap vrpn_client_node natnet natnet_ros natnet_ros2 vicon optitrack qualisys mocap4r2
    motion_capture phasespace rigid_bodies rigid_body tracking tracker
"""
_CAPTURE = frozenset(_CAPTURE_WORDS.split())  # namespaces of motion capture systems
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
_PARTS = frozenset(_PARTS_WORDS.split())  # parts of topic names that name no robot
_GOAL = re.compile(r"goal|target|set_?point|desired|reference|cmd_pos|command_pos|cmd_full|plan")
_TRUTH = re.compile(r"ground_?truth|truth|/gt\b|_gt\b")
_COMMAND = re.compile(r"cmd|command|set_?point|teleop|joy|key_vel|vel_ref|reference")
_TOPIC_WORD = re.compile(r"odom|cmd|vel|pose|twist|imu|battery|command|set_?point|goal|motors|joint")
"""Words that begin or end the last part of a topic name; the rest of that part names the robot."""


def robot_of(topic: str) -> str:
    """Return the robot that a topic name contains; empty if it contains none."""
    parts = [part for part in topic.split("/") if part]
    known = [part for part in parts if part.lower() not in _PARTS and part.lower() not in _CAPTURE]
    return known[0] if known else ""


def robots_of(topics: Mapping[str, str]) -> dict[str, str]:
    """Return the robot of each topic name, read from all names together: `r0` for `/odom_r0`, `a` for `/fleet/a/odom`.

    ``topics`` are types by name.
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
