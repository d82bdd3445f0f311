"""Writes a recording as a run folder: a rosbag2 bag with standard messages, and `run.json`."""

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from testudo_deploy.files.bag_writer import BagWriter, Enclosed, RecordedTopic
from testudo_deploy.launch.run_folder import INFO_FILE, RUN_SCHEMA, versions
from testudo_hardware.links.wire import WORLD_FRAME, body_frame
from testudo_runs.recording.message_codec import NANO, MessageLayout, typestore
from testudo_runs.recording.recording import ROLES, Recording, Series

IMPORTED = "imported"
"""Kind of an imported run."""
_BLOCK = 20_000


def write_recording(
    recording: Recording,
    folder: Path,
    facts: Mapping[str, Any] | None = None,
    tell: Callable[[float], None] = lambda _: None,
) -> int:
    """Write a run folder and return the number of messages in it.

    ``folder`` has no run and is created if necessary; ``facts`` are further entries of `run.json`: sources, choices and
    losses; ``tell`` gets the completed fraction.

    Raises:
        RunWriteError: the folder holds a run, or cannot be written.
    """
    parts = [
        (f"/{robot.name}/{ROLES[role].topic}", role, series)
        for robot in recording.robots.values()
        for role, series in robot.series.items()
        if len(series)
    ]
    topics = [
        RecordedTopic(
            topic, ROLES[role].type, *_definition(ROLES[role].type), reliable=True, transient_local=False, depth=10
        )
        for topic, role, _ in parts
    ]
    folder = Path(folder)
    bag = BagWriter(folder, topics, recording.start_ns, f"testudo {versions().get('testudo', '')}")
    info = {
        "schema": RUN_SCHEMA,
        "kind": IMPORTED,
        "start_wall_ns": recording.start_ns,
        "start_steady_s": 0.0,
        "versions": versions(),
        "robots": {
            robot.name: {"type": robot.robot_type, "roles": list(robot.series)} for robot in recording.robots.values()
        },
        **(facts or {}),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / INFO_FILE).write_text(json.dumps(info, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise bag.refused(error) from error
    bag.open((Enclosed(INFO_FILE, "application/json"),))
    try:
        _write_all(bag, parts, recording.start_ns, tell)
        bag.close()
    finally:
        bag.abandon()
    return bag.message_count


def _write_all(
    bag: BagWriter, parts: list[tuple[str, str, Series]], start_ns: int, tell: Callable[[float], None]
) -> None:
    """Write every series in the order of the times of recording."""
    times = [
        start_ns + _nanoseconds(series.stamp_s if series.received_s is None else series.received_s)
        for _, _, series in parts
    ]
    owner = np.repeat(np.arange(len(parts)), [len(time) for time in times])
    within = np.concatenate([np.arange(len(time)) for time in times]) if parts else np.zeros(0, int)
    at_ns = np.concatenate(times) if parts else np.zeros(0, np.int64)
    order = np.argsort(at_ns, kind="stable")
    layouts = [
        MessageLayout(ROLES[role], series.frame or WORLD_FRAME, body_frame(topic.split("/")[1]))
        for topic, role, series in parts
    ]
    for begin in range(0, len(order), _BLOCK):
        block = order[begin : begin + _BLOCK]
        data: dict[int, bytes] = {}
        for k, (_, _, series) in enumerate(parts):
            mine = block[owner[block] == k]
            rows = within[mine]
            stamps = start_ns + _nanoseconds(series.stamp_s[rows])
            data.update(zip(mine.tolist(), layouts[k].encode(stamps, series.values[rows]), strict=True))
        for item, part, time_ns in zip(block.tolist(), owner[block].tolist(), at_ns[block].tolist(), strict=True):
            bag.write(parts[part][0], data[item], time_ns)
        tell(min(1.0, (begin + len(block)) / len(order)))


def _nanoseconds(seconds: np.ndarray) -> np.ndarray:
    return np.rint(seconds * NANO).astype(np.int64)


def _definition(name: str) -> tuple[str, str]:
    """Return the definition of a message with its referenced types, and its hash."""
    definition, _ = typestore().generate_msgdef(name)
    return definition, typestore().hash_rihs01(name)


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder beside ``folder`` and rename it to ``folder`` at the end; an error removes it.

    Raises:
        OSError: the folder cannot be created or renamed.
    """
    made: Path | None = None
    try:
        folder.absolute().parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.absolute().parent))
        yield made
        made.chmod(0o755)
        made.replace(folder)
    finally:
        if made is not None:
            shutil.rmtree(made, ignore_errors=True)
