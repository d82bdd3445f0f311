"""Writes a run: a rosbag2 folder with MCAP, and beside it the fleet, the policy and the versions.

The folder is readable at any moment: `metadata.yaml` stands there from the beginning and is
completed at the end, and what was recorded reaches the disk twice a second.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any, Self

import yaml
from mcap.writer import CompressionType, Writer

from testudo_deploy.fleet import Fleet, save_fleet
from testudo_hardware.errors import TestudoError

RUN_SCHEMA = "testudo/run/1"
BAG_VERSION = 9
"""Of rosbag2's metadata."""
BAG_FILE = "run_0.mcap"
METADATA_FILE, FLEET_FILE, POLICY_FILE, INFO_FILE = (
    "metadata.yaml",
    "fleet.yaml",
    "policy.onnx",
    "run.json",
)
CLOSED_KEY = "testudo_closed"
_CHUNK_BYTES = 256 * 1024
_FLUSH_S = 0.5
_NANO = 1_000_000_000
_PACKAGES = ("testudo", "numpy", "onnxruntime", "mcap")


class RunWriteError(TestudoError):
    """The run cannot be written: the folder holds a run already, or the disk refuses."""


@dataclass(frozen=True)
class RecordedTopic:
    """One topic and how its messages are to be read."""

    name: str
    type: str
    """For example `nav_msgs/msg/Odometry`."""
    definition: str
    """The message definition with all that it refers to, in the form `ros2msg`."""
    type_hash: str
    """`RIHS01_` and 64 digits; empty if it is not known."""
    reliable: bool
    transient_local: bool
    depth: int


class RunWriter:
    """Records messages; a context manager. Times are seconds on the steady clock.

    The log time in the file is the wall clock of the start plus the steady time since then, so that
    a jump of the wall clock leaves no mark; `run.json` holds both.
    """

    def __init__(
        self,
        folder: str | Path,
        topics: Sequence[RecordedTopic],
        fleet: Fleet,
        *,
        facts: Mapping[str, str | int | float] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Open the folder, making it where needed.

        Args:
            folder: must not hold a run already; other files in it stay.
            topics: what will be written.
            fleet: is saved in the folder, with a copy of its policy.
            facts: further entries of `run.json`, such as the seed.
            clock: the steady clock [s].

        Raises:
            RunWriteError: the folder holds a run, or cannot be written.
        """
        self.folder = Path(folder)
        self._topics, self._clock = tuple(topics), clock
        self._start_wall_ns, self._start_s = time.time_ns(), clock()
        self._last_flush_s, self._last_ns = self._start_s, self._start_wall_ns
        self._counts = {topic.name: 0 for topic in topics}
        self._policy_sha256 = fleet.policy_sha256
        if (self.folder / METADATA_FILE).exists():
            raise RunWriteError(f"{self.folder}: holds a run already; give another run folder")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._save_sources(fleet, dict(facts or {}))
            self._write_metadata(closed=False)
            self._stream = (self.folder / BAG_FILE).open("wb")
            self._open_bag()
        except OSError as error:
            raise self._refused(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def message_count(self) -> int:
        """Return how many messages were taken."""
        return sum(self._counts.values())

    def write(self, topic: str, data: bytes, received_s: float) -> None:
        """Take one serialised message of a topic, received at ``received_s`` [s].

        Raises:
            RunWriteError: the disk refuses; what is on it stays readable.
        """
        time_ns = self._start_wall_ns + round((received_s - self._start_s) * _NANO)
        try:
            self._writer.add_message(
                self._channels[topic],
                time_ns,
                data,
                time_ns,
                sequence=self._counts[topic] & 0xFFFFFFFF,
            )
            self._counts[topic] += 1
            self._last_ns = max(self._last_ns, time_ns)
            if received_s - self._last_flush_s > _FLUSH_S:
                self._writer.flush()
                self._last_flush_s = received_s
        except OSError as error:
            raise self._refused(error) from error

    def close(self) -> None:
        """Complete bag and metadata.

        Raises:
            RunWriteError: the disk refuses.
        """
        if self._stream.closed:
            return
        try:
            try:
                self._writer.finish()
            finally:
                self._stream.close()
            self._write_metadata(closed=True)
        except OSError as error:
            raise self._refused(error) from error

    def abandon(self) -> None:
        """Close without completing anything: for a disk that has refused."""
        with contextlib.suppress(OSError):
            self._stream.close()

    def _open_bag(self) -> None:
        self._writer = Writer(
            self._stream, chunk_size=_CHUNK_BYTES, compression=CompressionType.ZSTD
        )
        self._writer.start(profile="ros2", library=f"testudo {_versions().get('testudo', '')}")
        schemas: dict[str, int] = {}
        self._channels: dict[str, int] = {}
        for topic in self._topics:
            if topic.type not in schemas:
                schemas[topic.type] = self._writer.register_schema(
                    topic.type, "ros2msg", topic.definition.encode()
                )
            qos = yaml.safe_dump([_qos(topic)], default_flow_style=False)
            self._channels[topic.name] = self._writer.register_channel(
                topic.name,
                "cdr",
                schemas[topic.type],
                {"offered_qos_profiles": qos, "topic_type_hash": topic.type_hash},
            )
        self._enclose_sources()
        self._stream.flush()

    def _enclose_sources(self) -> None:
        """Put into the bag itself what says which policy and which fleet it is of: files are copied without others."""
        for name, kind in ((FLEET_FILE, "application/yaml"), (INFO_FILE, "application/json")):
            data = (self.folder / name).read_bytes()
            self._writer.add_attachment(self._start_wall_ns, self._start_wall_ns, name, kind, data)
        self._writer.add_metadata("testudo", {"policy_sha256": self._policy_sha256})

    def _save_sources(self, fleet: Fleet, facts: dict[str, str | int | float]) -> None:
        copy = self.folder / POLICY_FILE
        if fleet.policy != copy.absolute():
            shutil.copyfile(fleet.policy, copy)
        save_fleet(replace(fleet, policy=copy.absolute()), self.folder / FLEET_FILE)
        info = {
            "schema": RUN_SCHEMA,
            "start_wall_ns": self._start_wall_ns,
            "start_steady_s": self._start_s,
            "policy_sha256": fleet.policy_sha256,
            "versions": _versions(),
            **facts,
        }
        (self.folder / INFO_FILE).write_text(json.dumps(info, indent=2) + "\n", encoding="utf-8")

    def _write_metadata(self, *, closed: bool) -> None:
        """Write `metadata.yaml`, the old one staying whole until the new one is."""
        start = {"nanoseconds_since_epoch": self._start_wall_ns}
        length = {"nanoseconds": self._last_ns - self._start_wall_ns}
        information: dict[str, Any] = {
            "version": BAG_VERSION,
            "storage_identifier": "mcap",
            "duration": length,
            "starting_time": start,
            "message_count": self.message_count,
            "topics_with_message_count": [
                {
                    "topic_metadata": {
                        "name": topic.name,
                        "type": topic.type,
                        "serialization_format": "cdr",
                        "offered_qos_profiles": [_qos(topic)],
                        "type_description_hash": topic.type_hash,
                    },
                    "message_count": self._counts[topic.name],
                }
                for topic in self._topics
            ],
            "compression_format": "",
            "compression_mode": "",
            "relative_file_paths": [BAG_FILE],
            "files": [
                {
                    "path": BAG_FILE,
                    "starting_time": dict(start),
                    "duration": dict(length),
                    "message_count": self.message_count,
                }
            ],
            "custom_data": {CLOSED_KEY: "yes" if closed else "no"},
            "ros_distro": os.environ.get("ROS_DISTRO", "kilted"),
        }
        part = self.folder / f"{METADATA_FILE}.part"
        part.write_text(
            yaml.safe_dump({"rosbag2_bagfile_information": information}, sort_keys=False),
            encoding="utf-8",
        )
        part.replace(self.folder / METADATA_FILE)

    def _refused(self, error: OSError) -> RunWriteError:
        return RunWriteError(
            f"{self.folder}: the run cannot be written: {error.strerror or error}; "
            "recording ends, what is on the disk stays readable"
        )


def _qos(topic: RecordedTopic) -> dict[str, Any]:
    """Return the offered quality of service as rosbag2 writes it since version 9."""
    unlimited = {"sec": 9223372036, "nsec": 854775807}
    return {
        "history": "keep_last",
        "depth": topic.depth,
        "reliability": "reliable" if topic.reliable else "best_effort",
        "durability": "transient_local" if topic.transient_local else "volatile",
        "deadline": dict(unlimited),
        "lifespan": dict(unlimited),
        "liveliness": "automatic",
        "liveliness_lease_duration": dict(unlimited),
        "avoid_ros_namespace_conventions": False,
    }


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "system": platform.platform()}
    for name in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found
