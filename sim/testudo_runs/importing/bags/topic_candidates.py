"""Finds the topics of a bag that can be a role of a robot, by type, name and frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from testudo_runs.bags.bag_contents import NANO, BagError, BagMessage, BagTopic, Tell
from testudo_runs.bags.bag_source import BagSource, survey
from testudo_runs.bags.cdr import groups
from testudo_runs.bags.message_definitions import Types
from testudo_runs.importing.bags.bag_series import read_series
from testudo_runs.importing.bags.motion_matching import SampledMotion, motion_of
from testudo_runs.importing.bags.topic_decoding import TF, TopicSamples, is_named_poses, roles_of, texts_of
from testudo_runs.importing.bags.topic_names import is_body, is_command, is_goal, is_truth, robot_of, robot_of_frame
from testudo_runs.importing.bags.transforms import Link, chain, read_links
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
    robot: str
    """Robot in the names; empty if there is none."""
    rank: int = 0
    """Lower is better, among candidates for one role."""
    child: str = ""
    parent: str = ""
    samples: TopicSamples | None = field(default=None, repr=False)
    note: str = ""
    reckoned: bool = False
    """The pose is dead reckoning only."""
    unsure: bool = False
    """A velocity that is not named as a command and may be measured."""

    def entry(self, robot: str, bag: str = "", frame: str = "") -> TopicMap:
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
    unused: list[str]
    """Unused topics with the reason."""


def candidates_of(path: str | Path, folders: Sequence[Path], tell: Tell, damage: list[str]) -> CandidateSearch:
    """Return the candidates of a bag.

    Raises:
        BagError: no bag.
    """
    source, messages = survey(path, damage, lambda topic: bool(roles_of(topic.type)), tell)
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
        return [Candidate(bag, name, topic.type, "pose", body, child=body) for body in _bodies(topic, messages, types)]
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


def _bodies(topic: BagTopic, messages: Sequence[BagMessage], types: Types) -> list[str]:
    names: dict[str, None] = {}
    for group in groups(types.store(topic), topic.type, [message.data for message in messages]):
        names.update(dict.fromkeys(text for _, text in texts_of(group, ".name")))
    return list(names)


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
            note = "dead reckoning: nothing above odom" if odometric else ""
            robot = robot_of_frame(child) or robot_of(name)
            found.append(
                Candidate(
                    source.name,
                    name,
                    TF,
                    "pose",
                    robot,
                    3 if odometric else 2,
                    child,
                    root,
                    note=note,
                    reckoned=odometric,
                )
            )
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
