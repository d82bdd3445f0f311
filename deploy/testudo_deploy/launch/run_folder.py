"""Writes a run folder: a bag, and beside it the fleet file, the policy and the versions."""

import contextlib
import json
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Self

from testudo_deploy.authentication.fleet_key import load_key
from testudo_deploy.contract.policy_archive import policy_bytes
from testudo_deploy.files.bag_writer import BagWriter, Enclosed, RecordedTopic
from testudo_deploy.files.hash_chain import CHAIN_SCHEMA
from testudo_deploy.fleet.fleet import Fleet
from testudo_deploy.fleet.fleet_writer import save_fleet

RUN_SCHEMA = "testudo/run/1"
FLEET_FILE, POLICY_FILE, INFO_FILE = "fleet.yaml", "policy.onnx", "run.json"
CHAIN_INFO = "chain"
"""Key of `run.json`: the recorder writes a chain of hashes of this schema."""
_NANO = 1_000_000_000
_PACKAGES = ("testudo", "numpy", "onnxruntime", "mcap")


class RunWriter:
    """Records messages; a context manager. Times are seconds on the steady clock.

    The log time in the file is the wall clock at the start plus the steady time since then, so that a jump of the wall
    clock has no effect; `run.json` holds both.
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
        """Open the folder; create it if it does not exist.

        Other files in it are kept. ``fleet`` is saved in it, with a copy of its policy; if it has a key, the key signs
        the run. ``facts`` are further entries of `run.json`, such as the seed; ``clock`` is the steady clock [s].

        Raises:
            RunWriteError: the folder holds a run, or cannot be written.
            FleetKeyError: the key of the fleet cannot be read.
        """
        self.folder = Path(folder)
        key = None if fleet.key_file is None else load_key(fleet.key_file)
        self._start_wall_ns, self._start_s = time.time_ns(), clock()
        self._bag = BagWriter(self.folder, topics, self._start_wall_ns, f"testudo {versions().get('testudo', '')}")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._save_sources(fleet, dict(facts or {}))
        except OSError as error:
            raise self._bag.refused(error) from error
        self._bag.open(
            (Enclosed(FLEET_FILE, "application/yaml"), Enclosed(INFO_FILE, "application/json")),
            {"policy_sha256": fleet.policy_sha256},
            key,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def message_count(self) -> int:
        """Return the number of messages written."""
        return self._bag.message_count

    @property
    def chain_hash(self) -> str:
        """Return the last hash of the run's chain; of a closed run, what proves all of it."""
        return self._bag.chain_hash

    def write(self, topic: str, data: bytes, received_s: float) -> None:
        """Write one serialised message of a topic, received at ``received_s`` [s].

        Raises:
            RunWriteError: the disk refuses; what was written before stays readable.
        """
        self._bag.write(topic, data, self._start_wall_ns + round((received_s - self._start_s) * _NANO))

    def close(self) -> None:
        """Complete bag and metadata.

        Raises:
            RunWriteError: the disk refuses.
        """
        self._bag.close()

    def abandon(self) -> None:
        """Close without completing the bag, after the disk has refused."""
        self._bag.abandon()

    def _save_sources(self, fleet: Fleet, facts: dict[str, str | int | float]) -> None:
        policies = {
            kind: replace(one, path=self._copy(one.path, f"policy_{Path(kind).stem}.onnx"))
            for kind, one in fleet.policies.items()
        }
        copied = replace(fleet, policy=self._copy(fleet.policy, POLICY_FILE), policies=policies)
        save_fleet(copied, self.folder / FLEET_FILE)
        info = {
            "schema": RUN_SCHEMA,
            "start_wall_ns": self._start_wall_ns,
            "start_steady_s": self._start_s,
            "policy_sha256": fleet.policy_sha256,
            CHAIN_INFO: CHAIN_SCHEMA,
            "versions": versions(),
            **facts,
        }
        (self.folder / INFO_FILE).write_text(json.dumps(info, indent=2) + "\n", encoding="utf-8")

    def _copy(self, policy: Path, name: str) -> Path:
        """Copy a policy file into the folder, and return its path."""
        copy = self.folder / name
        if policy != copy.absolute():
            copy.write_bytes(policy_bytes(policy))
        return copy.absolute()


def further_folder(first: Path) -> Path:
    """Return the folder of the next run of one recorder: `NAME_2` beside the first one, or the next free number."""
    number = 2
    while (folder := first.with_name(f"{first.name}_{number}")).exists():
        number += 1
    return folder


def versions() -> dict[str, str]:
    """Return the versions of Python, the system and the packages that write a run, by name."""
    found = {"python": platform.python_version(), "system": platform.platform()}
    for name in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found
