"""Reads a run folder as a recording, imported or recorded by `testudo up`."""

import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from testudo_deploy.files.bag_writer import BAG_FILE
from testudo_deploy.launch.run_folder import FLEET_FILE, INFO_FILE, RUN_SCHEMA
from testudo_hardware.frames import rotate_horizontal
from testudo_hardware.links.wire import WORLD_FRAME, body_frame
from testudo_hardware.schema import DIFFERENTIAL_DRIVE, HOLONOMIC
from testudo_hardware.spec import RobotSpec
from testudo_runs.bags.bag_contents import BagMessage
from testudo_runs.bags.mcap_file import read_messages
from testudo_runs.progress_bar import Share, quiet
from testudo_runs.recording.message_codec import NANO, decode
from testudo_runs.recording.recording import ROLES, Recording, RecordingError, RobotRecording, Role, Series
from testudo_runs.recording.write import IMPORTED
from testudo_runs.run_reader import CommandTrack, RecordedRun, Track, read_run, shortened, ticks_in_order

_STREAMED = 0.5  # approximate share of reading the file in the whole


def load_recording(
    path: str | Path, *, seen: Literal["truth", "odometry"] = "truth", share: Share = quiet
) -> Recording:
    """Read a run folder, recorded by `testudo up` or made by `testudo import`.

    Of a damaged recording the readable part is returned, with warnings.

    ``seen`` chooses the poses of a run of `testudo up`: the truth of the plant if recorded, or the estimate of the
    robot; ``share`` gets the completed fraction.

    Raises:
        RecordingError: no run folder, or nothing readable in it.
        TestudoError: invalid files.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise RecordingError(f"{folder}: no such run folder")
    if (folder / FLEET_FILE).is_file():
        return recording_of_run(read_run(folder, share), seen=seen)
    for name in (INFO_FILE, BAG_FILE):
        if not (folder / name).is_file():
            raise RecordingError(
                f"{folder}: {name} is missing: not a run folder; `testudo import SOURCE RUN` makes one of other "
                "recordings"
            )
    info = _read_info(folder / INFO_FILE)
    damage: list[str] = []
    by_topic: dict[str, list[BagMessage]] = defaultdict(list)
    for message in read_messages(folder, damage, lambda done: share(_STREAMED * done))[0]:
        by_topic[message.topic.name].append(message)
    robots = {}
    for name, facts in info["robots"].items():
        share(_STREAMED + (1 - _STREAMED) * len(robots) / len(info["robots"]))
        series = {
            role: _series(ROLES[role], by_topic[f"/{name}/{ROLES[role].topic}"], info["start_wall_ns"], damage)
            for role in facts["roles"]
        }
        robots[name] = RobotRecording(name, facts["type"], series)
    if not any(len(series) for robot in robots.values() for series in robot.series.values()):
        raise RecordingError(f"{folder / BAG_FILE}: holds no readable message" + "".join(f"; {x}" for x in damage))
    return Recording(robots, info["start_wall_ns"], folder, info, not damage, tuple(shortened(damage)))


def recording_of_run(run: RecordedRun, *, seen: Literal["truth", "odometry"] = "truth") -> Recording:
    """Return the series of a run of `testudo up` by role; times are on the run's steady clock, from its start."""
    start_s = start_of(run)
    robots = {}
    for robot in run.fleet.robots:
        truth, believed = run.truth[robot.name], run.odometry[robot.name]
        pose = truth if seen == "truth" and len(truth.stamp_s) else believed
        series = {
            "pose": _pose_series(pose, start_s),
            "odometry": _odometry_series(believed, robot.spec, start_s),
            "command": _sent_series(run, robot.name, robot.spec, start_s),
        }
        robots[robot.name] = RobotRecording(robot.name, robot.spec.name, series)
    return Recording(robots, int(run.info.get("start_wall_ns", 0)), run.folder, run.info, run.complete, run.warnings)


def start_of(run: RecordedRun) -> float:
    """Return the steady clock [s] at the start of a run of `testudo up`, or at its first tick if unknown."""
    first = (tick.stamp_s for ticks in run.ticks.values() for tick in ticks)
    return float(run.info["start_steady_s"] if "start_steady_s" in run.info else min(first, default=0.0))


def _series(role: Role, messages: list[BagMessage], start_ns: int, damage: list[str]) -> Series:
    stamp_ns, values, index, frame = decode(role, [message.data for message in messages], damage)
    received_ns = np.array([message.log_ns for message in messages], np.int64)[index]
    return Series((stamp_ns - start_ns) / NANO, values, (received_ns - start_ns) / NANO, frame)


def _pose_series(track: Track, start_s: float) -> Series:
    return Series(
        track.stamp_s - start_s,
        np.concatenate([_in_space(track.position_world), _turns(track.yaw)], axis=1),
        track.received_s - start_s,
        WORLD_FRAME,
    )


def _odometry_series(track: Track, spec: RobotSpec, start_s: float) -> Series:
    pose = _pose_series(track, start_s)
    if spec.kind == DIFFERENTIAL_DRIVE:
        twist = _planar_twist(track.velocity)
    else:  # REP-105: a twist is in the body
        body = rotate_horizontal(_in_space(track.velocity).T, np.cos(track.yaw), -np.sin(track.yaw)).T
        twist = np.concatenate([body, np.zeros_like(body)], axis=1)
    return Series(pose.stamp_s, np.concatenate([pose.values, twist], axis=1), pose.received_s, WORLD_FRAME)


def _sent_series(run: RecordedRun, name: str, spec: RobotSpec, start_s: float) -> Series:
    """Return the commands to the driver; without them, and for a base with commands in its body, those of the ticks."""
    ticks = ticks_in_order(run.ticks[name])
    if not ticks or (len(run.sent[name].stamp_s) > 1 and spec.kind != HOLONOMIC):
        return _command_series(run.sent[name], name, spec, start_s)
    stamps = np.array([tick.stamp_s for tick in ticks])
    track = CommandTrack(stamps, stamps, np.array([tick.sent_command for tick in ticks], float))
    return replace(
        _command_series(track, name, spec, start_s), **({"frame": WORLD_FRAME} if spec.kind == HOLONOMIC else {})
    )


def _command_series(track: CommandTrack, name: str, spec: RobotSpec, start_s: float) -> Series:
    if spec.kind == DIFFERENTIAL_DRIVE:
        values = _planar_twist(track.command)
    else:
        values = np.concatenate([_in_space(track.command), np.zeros((len(track.stamp_s), 3))], axis=1)
        if track.yaw_rate is not None:
            values[:, 5] = track.yaw_rate
    frame = body_frame(name) if spec.kind in (DIFFERENTIAL_DRIVE, HOLONOMIC) else WORLD_FRAME
    return Series(track.stamp_s - start_s, values, track.received_s - start_s, frame)


def _planar_twist(forward_and_turn: np.ndarray) -> np.ndarray:
    twist = np.zeros((len(forward_and_turn), 6))
    twist[:, 0], twist[:, 5] = forward_and_turn.T
    return twist


def _in_space(vectors: np.ndarray) -> np.ndarray:
    """Return vectors (T, 3) of vectors (T, D), with zero height in the plane."""
    return np.pad(vectors, ((0, 0), (0, 3 - vectors.shape[1])))


def _turns(yaw: np.ndarray) -> np.ndarray:
    """Return the quaternions (T, 4), x y z w, of headings (T,) [rad]."""
    nothing = np.zeros_like(yaw)
    return np.stack([nothing, nothing, np.sin(yaw / 2), np.cos(yaw / 2)], axis=1)


def _read_info(file: Path) -> dict[str, Any]:
    try:
        info = json.loads(file.read_text(encoding="utf-8"))
        if info["schema"] != RUN_SCHEMA or info["kind"] != IMPORTED:
            raise RecordingError(
                f"{file}: found schema {info['schema']!r} and kind {info['kind']!r}, expected "
                f"{RUN_SCHEMA!r} and {IMPORTED!r}"
            )
        for name, facts in info["robots"].items():
            unknown = set(facts["roles"]) - set(ROLES)
            if unknown or not isinstance(facts["type"], str):
                raise RecordingError(
                    f"{file}: robots.{name}: found roles {sorted(facts['roles'])}, expected some of "
                    f"{', '.join(ROLES)}, and a type"
                )
        info["start_wall_ns"] = int(info["start_wall_ns"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordingError(f"{file}: cannot be read: {error!r}; import the recording again") from error
    return info
