"""Reads a run folder back into typed tracks."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from testudo_deploy.contract.messages import PeerMessage, TaskMessage, TickRecord
from testudo_deploy.files.bag_writer import BAG_FILE
from testudo_deploy.files.collection_pause import collection_paused
from testudo_deploy.fleet.fleet import Fleet, FleetRobot, load_fleet
from testudo_deploy.fleet.pose_source import PoseSourceReader, absolute, shared_odometry, signal_wires
from testudo_deploy.launch.fleet_topics import body_topic, topics
from testudo_deploy.launch.run_folder import CHAIN_INFO, FLEET_FILE, INFO_FILE, RUN_SCHEMA
from testudo_deploy.launch.topic_names import EVENTS_TOPIC, SCORE_TOPIC
from testudo_hardware.errors import TestudoError
from testudo_hardware.links.link_profile import TWIST_STAMPED
from testudo_hardware.links.topics import CommandWire
from testudo_hardware.links.wire import (
    WORLD_FRAME,
    CommandReading,
    OdometryReading,
    body_frame,
    command_frame,
    read_command,
    read_odometry,
)
from testudo_hardware.spec import RobotSpec
from testudo_runs.bags.chain_proof import ChainProof
from testudo_runs.bags.mcap_file import read_messages
from testudo_runs.bags.record_order import order_faults
from testudo_runs.bags.run_types import run_typestore
from testudo_runs.bags.topic_messages import TopicMessages
from testudo_runs.progress_bar import Share, quiet
from testudo_runs.track_columns import ColumnReader
from testudo_runs.tracks import (
    CommandTrack,
    GuardSample,
    SensedSample,
    Track,
    body_track,
    command_track,
    command_track_of_rows,
    read_body,
    read_guard,
    read_sensor,
    track_of,
    track_of_rows,
)

_NANO = 1_000_000_000
_SHOWN = 20
_STREAMED, _DECODED = 0.2, 0.7  # approximate shares: of reading the file in decoding, and of both in the whole


class RunError(TestudoError):
    """A run cannot be read: the text names the folder or file and the fault."""


@dataclass(frozen=True)
class PlantEvent:
    """An event of the plant."""

    stamp_s: float  # steady clock
    kind: str  # started, state, contact, driver or finished
    values: Mapping[str, Any]


@dataclass(frozen=True)
class RecordedRun:
    """Content of a run folder; mappings are by robot, in the order of the fleet."""

    folder: Path
    fleet: Fleet
    info: Mapping[str, Any]  # `run.json`: versions, seed, clocks, hash of the policy
    ticks: Mapping[str, tuple[TickRecord, ...]] = field(repr=False)  # written by the control loops, by sequence
    odometry: Mapping[str, Track] = field(repr=False)  # as the robots received it
    truth: Mapping[str, Track] = field(repr=False)  # from the plant; empty for real robots
    sent: Mapping[str, CommandTrack] = field(repr=False)
    applied: Mapping[str, CommandTrack] = field(repr=False)  # commands after the limits of the drivers
    announcements: Mapping[str, tuple[PeerMessage, ...]] = field(repr=False)
    """Messages of the robots to their peers, by sequence."""
    events: tuple[PlantEvent, ...] = field(repr=False)
    complete: bool  # the recording was closed and every message could be decoded
    warnings: tuple[str, ...]  # damage, losses, and messages that no robot could use
    task_messages: Mapping[str, tuple[TaskMessage, ...]] = field(default_factory=dict, repr=False)
    """Messages of the task node to each robot; empty without one."""
    task_scores: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)  # what the task node said, in order
    sensed: Mapping[str, Mapping[str, tuple[SensedSample, ...]]] = field(default_factory=dict, repr=False)
    """By robot and signal: what the sensors of its link sent."""
    bodies: Mapping[str, Track] = field(default_factory=dict, repr=False)
    """Measured poses of the bodies that are no robots, by name; a stamp of another clock is the time of arrival."""
    commanded: Mapping[str, CommandTrack] = field(default_factory=dict, repr=False)  # commands to the guards
    guard: Mapping[str, tuple[GuardSample, ...]] = field(default_factory=dict, repr=False)  # reports, as recorded
    proof: ChainProof = field(default=ChainProof(), repr=False)  # what the recorder's chain of hashes shows

    @property
    def robots(self) -> tuple[str, ...]:
        """Return the names of the robots."""
        return self.fleet.names

    @property
    def policy_path(self) -> Path:
        """Return the copy of the policy file in the folder.

        Raises:
            RunError: several policies; `teams` has a run for each.
        """
        return self._one_team().policy

    @property
    def policy_sha256(self) -> str:
        """Return the hash of the policy that drove the robots; raises as `policy_path`."""
        return self._one_team().policy_sha256

    @property
    def teams(self) -> tuple["RecordedRun", ...]:
        """Return a run for each policy file with its robots; of one policy the run itself."""
        if not self.fleet.policies:
            return (self,)
        # announcements of all: robots of one team may follow those of another
        by_robot = ("ticks", "odometry", "truth", "sent", "applied", "commanded", "guard")
        # several policy files have no common task
        return tuple(
            replace(
                self,
                fleet=team,
                **{name: {robot: getattr(self, name)[robot] for robot in team.names} for name in by_robot},
            )
            for team in self.fleet.teams
        )

    def located(self, name: str) -> Track:
        """Return the true poses of a robot, or its own estimate where there is no truth, by stamp, each stamp once."""
        truth = self.truth[name]
        return (truth if len(truth.stamp_s) else self.odometry[name]).in_order()

    def _one_team(self) -> Fleet:
        if self.fleet.policies:
            kinds = ", ".join(team.robots[0].spec.name for team in self.fleet.teams)
            raise RunError(
                f"{self.folder}: found several policy files (of {kinds}), expected one; "
                "`testudo replay` and `testudo gap` process each kind of robot separately"
            )
        return self.fleet


def ticks_in_order(records: Sequence[TickRecord]) -> tuple[TickRecord, ...]:
    """Return the ticks in their order; the sequence of a restarted process begins again at zero."""
    unique = len({record.sequence for record in records}) == len(records)
    return tuple(sorted(records, key=lambda record: record.sequence if unique else record.stamp_s))


@collection_paused()
def read_run(path: str | Path, share: Share = quiet) -> RecordedRun:
    """Read a run folder.

    Of a damaged recording the readable part is returned, with warnings; ``share`` gets the completed fraction.

    Raises:
        RunError: no such folder, no recording in it, nothing readable, or a topic of another type.
        FleetError: invalid fleet file.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise RunError(f"{folder}: no such run folder")
    for name in (FLEET_FILE, INFO_FILE, BAG_FILE):
        if not (folder / name).is_file():
            if is_imported(folder):
                raise RunError(
                    f"{folder}: was imported: it holds poses and commands, but neither the policy file of the "
                    "robots nor its inputs, which are needed here; identify, gap, incident, and replay with "
                    "--mode open-loop or counterfactual work on it"
                )
            raise RunError(f"{folder}: {name} is missing: not a run folder, or a run that never began")
    reader = _Reader(folder, lambda done: share(_DECODED * done))

    def by_robot(read: Callable[[FleetRobot], Any]) -> Mapping[str, Any]:
        return {robot.name: read(robot) for robot in reader.fleet.robots}

    run = {
        "ticks": by_robot(lambda robot: reader.envelopes(f"/{robot.name}/tick", TickRecord)),
        "odometry": by_robot(reader.odometry),
        "truth": by_robot(reader.truth),
        "sent": by_robot(reader.sent),
        "applied": by_robot(lambda robot: reader.commands(robot, "applied_cmd_vel")),
        "commanded": by_robot(lambda robot: reader.commands(robot, "cmd_vel_policy")),
        "guard": by_robot(reader.guard),
        "announcements": by_robot(lambda robot: reader.envelopes(f"/{robot.name}/peer_state", PeerMessage)),
        "events": reader.events(),
        "task_messages": by_robot(lambda robot: reader.envelopes(f"/{robot.name}/task", TaskMessage)),
        "task_scores": tuple(values for _, values in reader.readings(SCORE_TOPIC, _read_json)),
        "sensed": by_robot(reader.sensed),
        "bodies": {body.name: reader.body(body.name) for body in reader.fleet.bodies},
    }
    reader.finish()
    warnings = (*shortened(reader.damage), *shortened(reader.warnings))
    run |= {"complete": not reader.damage, "warnings": warnings, "proof": reader.proof}
    return RecordedRun(folder, reader.fleet, reader.info, **run)


class _Reader:
    """The decoded messages of a folder by topic, with damage and warnings."""

    def __init__(self, folder: Path, share: Share) -> None:
        self.fleet, self.info = load_fleet(folder / FLEET_FILE), _read_info(folder / INFO_FILE)
        self.damage: list[str] = []
        self.warnings: list[str] = []
        # drivers that stamp with the ROS clock use the wall clock
        self._ros_ahead_s = self.info["start_wall_ns"] / _NANO - self.info["start_steady_s"]
        messages, self.proof = read_messages(folder, self.damage, lambda done: share(_STREAMED * done))
        if CHAIN_INFO in self.info and not self.proof.exists and "recovered" not in self.info:
            self.damage.append(f"{BAG_FILE}: the chain of hashes that {INFO_FILE} names is missing")
        if "recovered" not in self.info:
            self.damage += [f"{BAG_FILE}: {text}" for text in order_faults(messages)]
        self._file, expected = folder / BAG_FILE, {topic.name: topic.type for topic in topics(self.fleet)}
        store = run_typestore(set(expected.values()))
        self._topics = TopicMessages[Any](
            store, expected, self.damage, lambda done: share(_STREAMED + (1 - _STREAMED) * done)
        )
        for topic in {id(raw.topic): raw.topic for raw in messages}.values():
            if topic.name in expected and topic.type != expected[topic.name]:
                wanted = expected[topic.name]
                raise RunError(f"{self._file}: {topic.name}: found type {topic.type}, expected {wanted}")
        self._topics.take_all(messages, self.info["start_wall_ns"], self.info["start_steady_s"])

    def finish(self) -> None:
        """Look for damage in the messages that were not read.

        Raises:
            RunError: no message could be decoded.
        """
        if not self._topics.finish():
            raise RunError(f"{self._file}: holds no readable message" + "".join(f"; {text}" for text in self.damage))

    def truth(self, robot: FleetRobot) -> Track:
        """Return the poses of a robot in the plant."""
        columns = ColumnReader(self._topics.store, robot.spec, (WORLD_FRAME, body_frame(robot.name)))
        rows = self._topics.rows(f"/{robot.name}/truth", partial(columns.odometry, with_turns=True))
        if rows is not None:
            return track_of_rows(rows, robot.spec.dimension, with_turns=True)
        found = self.readings(f"/{robot.name}/truth", lambda message, _: _read_truth(message, robot.name, robot.spec))
        return track_of(found, robot.spec.dimension)

    def commands(self, robot: FleetRobot, kind: str) -> CommandTrack:
        """Return the commands of a topic of our own."""
        topic = f"/{robot.name}/{kind}"
        columns = ColumnReader(self._topics.store, robot.spec, (command_frame(robot.name, robot.spec),))
        rows = self._topics.rows(topic, columns.commands)
        if rows is not None:
            return command_track_of_rows(rows, robot.spec.dimension)
        found = self.readings(topic, lambda message, _: read_command(message, robot.name, robot.spec))
        return command_track(found, robot.spec.dimension)

    def guard(self, robot: FleetRobot) -> tuple[GuardSample, ...]:
        """Return the reports of a robot's guard."""
        return tuple(sample for _, sample in self.readings(f"/{robot.name}/guard_status", read_guard))

    def odometry(self, robot: FleetRobot) -> Track:
        """Return the poses of a robot as its node computed them from its pose source."""
        sensor, ahead_s = PoseSourceReader(robot, live=False), self._ros_ahead_s
        shared = shared_odometry(robot)
        if shared is not None:  # its poses are what the robot knows of itself
            columns = ColumnReader(self._topics.store, robot.spec, shared[1])

            def shift(received_s: np.ndarray) -> np.ndarray | float:
                return received_s - (received_s + ahead_s) if sensor.uses_ros_time else 0.0

            rows = self._topics.rows(shared[0], partial(columns.odometry, with_turns=False), shift)
            if rows is not None:
                return track_of_rows(rows, robot.spec.dimension, with_turns=False)
        heard = [
            (received_s, topic, message)
            for topic in sensor.topics
            for received_s, message in self._topics.messages(topic.absolute)
        ]
        found = []
        for received_s, topic, message in sorted(heard, key=lambda item: item[0]):
            ros_now_s = received_s + ahead_s
            try:
                reading = sensor.place(topic, message, ros_now_s, received_s)
            except TestudoError as error:
                self.warnings.append(f"{topic.absolute}: {error}; left out")
                continue
            if reading is not None:
                found.append((received_s, reading))
        return track_of(found, robot.spec.dimension)

    def body(self, name: str) -> Track:
        """Return the measured poses of a body."""
        read = partial(read_body, self.fleet.frame, name)
        return body_track(self.readings(body_topic(name), read, measured=True))

    def sensed(self, robot: FleetRobot) -> dict[str, tuple[SensedSample, ...]]:
        """Return what the sensors sent whose signals a robot's link names, by signal."""
        read = {wire.signal: partial(read_sensor, wire, self._ros_ahead_s) for wire in signal_wires(robot)}
        return {
            wire.signal: tuple(sample for _, sample in self.readings(wire.absolute, read[wire.signal], measured=True))
            for wire in signal_wires(robot)
        }

    def sent(self, robot: FleetRobot) -> CommandTrack:
        """Return the commands to the driver of a robot."""
        profile = robot.link.profile
        wire = CommandWire(robot.name, robot.spec, profile)
        ahead_s = self._ros_ahead_s if profile.stamps.value == "ros" else 0.0

        def read(message: Any, received_s: float) -> CommandReading:
            reading = wire.decode(message, received_s + ahead_s)
            return replace(reading, stamp_s=reading.stamp_s - ahead_s)

        topic = absolute(robot.link.topics["cmd_vel"], robot.name)
        if wire.type == TWIST_STAMPED and profile.command.set_point is None:
            columns = ColumnReader(self._topics.store, robot.spec, (wire.frame,))
            rows = self._topics.rows(topic, columns.commands, lambda _: -ahead_s)
            if rows is not None:
                return command_track_of_rows(rows, robot.spec.dimension)
        return command_track(self.readings(topic, read), robot.spec.dimension)

    def envelopes(self, topic: str, kind: type[Any]) -> tuple[Any, ...]:
        found = []
        for received_s, data in self._topics.payloads(topic):
            try:
                found.append((received_s, kind.decode(data, recorded=True)))
            except TestudoError as error:
                self.damage.append(f"{topic}: {error}; left out")
        # by time of arrival: the numbers begin again with each start of a process
        return tuple(value for _, value in sorted(found, key=lambda item: item[0]))

    def events(self) -> tuple[PlantEvent, ...]:
        found = []
        for _, message in self._topics.messages(EVENTS_TOPIC):
            try:
                values = json.loads(message.data)
                found.append(PlantEvent(float(values.pop("stamp_s")), str(values.pop("event")), values))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                self.damage.append(f"{EVENTS_TOPIC}: cannot be read ({error!r}); left out")
        return tuple(found)

    def readings(
        self, topic: str, read: Callable[[Any, float], Any], *, measured: bool = False
    ) -> Iterator[tuple[float, Any]]:
        """Yield time of arrival and result of ``read`` of each message.

        One that cannot be read is damage; a ``measured`` one, which the robot refused too, is a warning.
        """
        for received_s, message in self._topics.messages(topic):
            try:
                yield received_s, read(message, received_s)
            except TestudoError as error:
                (self.warnings if measured else self.damage).append(f"{topic}: {error}; left out")


def _read_json(message: Any, _: float) -> dict[str, Any]:
    try:
        return dict(json.loads(message.data))
    except (ValueError, TypeError) as error:
        raise RunError(f"not a JSON object ({error})") from error


def _read_truth(message: Any, name: str, spec: RobotSpec) -> OdometryReading:
    turn = message.pose.pose.orientation
    return replace(read_odometry(message, name, spec), quaternion_xyzw=(turn.x, turn.y, turn.z, turn.w))


def _read_info(file: Path) -> Mapping[str, Any]:
    try:
        info = json.loads(file.read_text(encoding="utf-8"))
        if info["schema"] != RUN_SCHEMA:
            raise RunError(f"{file}: schema: found {info['schema']!r}, expected {RUN_SCHEMA!r}")
        _ = int(info["start_wall_ns"]), float(info["start_steady_s"])
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{file}: cannot be read: {error!r}") from error
    return info


def is_imported(folder: Path) -> bool:
    """Return whether a run folder was made by `testudo import`."""
    if (folder / FLEET_FILE).is_file():
        return False
    try:
        return "kind" in json.loads((folder / INFO_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError):
        return False


def shortened(lines: list[str]) -> list[str]:
    """Return the first lines and the number of the others."""
    more = len(lines) - _SHOWN
    return lines if more <= 0 else [*lines[:_SHOWN], f"and {more} more"]
