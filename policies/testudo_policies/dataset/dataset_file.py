"""A dataset from run folders: its arrays, with the names of Off-the-Grid MARL, and its card.

One ``.npz`` with axes time, robots; episodes are concatenated. A vault of flashbax (`vault_folder`), the format of
Off-the-Grid MARL, has one more leading axis; D4RL's ``timeouts`` are the truncations. See `docs/replay.md`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from testudo_deploy.contract.contract import Contract
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.files.atomic_files import whole_file
from testudo_deploy.files.bag_writer import BAG_FILE
from testudo_deploy.launch.run_folder import FLEET_FILE, INFO_FILE, POLICY_FILE
from testudo_hardware.errors import TestudoError
from testudo_policies.dataset.composition import CompositionProfile
from testudo_policies.dataset.coverage import coverage
from testudo_policies.dataset.episodes import DatasetEpisode, episodes_of
from testudo_runs.run_reader import read_run

CARD_SCHEMA = "testudo/dataset/1"
_PACKAGES = ("testudo", "jax", "numpy")


@dataclass(frozen=True)
class DatasetSource:
    """A run folder and its episodes."""

    folder: Path
    contract: Contract = field(repr=False)
    policy_sha256: str
    bag_sha256: str
    started: str  # start of the recording, ISO 8601, UTC
    complete: bool
    episodes: tuple[DatasetEpisode, ...] = field(repr=False)


@dataclass(frozen=True)
class Dataset:
    """Episodes of one task with teams of one robot and size."""

    sources: tuple[DatasetSource, ...]
    profile: CompositionProfile

    @classmethod
    def of(cls, sources: Sequence[DatasetSource], good_return: float | None = None) -> Dataset:
        """Return the dataset of runs.

        Raises:
            TestudoError: the runs differ in task, robot or team size.
        """
        first = sources[0]
        for source in sources[1:]:
            for what, found, expected in (
                ("scenario", source.contract.scenario, first.contract.scenario),
                ("robot", source.contract.robot, first.contract.robot),
                ("team size", len(source.episodes[0].robots), len(first.episodes[0].robots)),
                ("signals", source.contract.signals, first.contract.signals),
                ("decision period", source.contract.decision_period_s, first.contract.decision_period_s),
            ):
                if found != expected:
                    raise TestudoError(
                        f"{source.folder}: {what}: found {found}, expected {expected} as in "
                        f"{first.folder}; write one dataset for each"
                    )
        episodes = [episode for source in sources for episode in source.episodes]
        return cls(tuple(sources), CompositionProfile.of(episodes, good_return))

    @property
    def episodes(self) -> tuple[DatasetEpisode, ...]:
        """Return the episodes of all runs, in order."""
        return tuple(episode for source in self.sources for episode in source.episodes)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays by name, with T transitions of all episodes; shapes: see `docs/replay.md`."""
        episodes, contract = self.episodes, self.sources[0].contract
        names = [signal.name for signal in contract.signals]

        def joined(part: Any) -> np.ndarray:
            return np.concatenate([part(episode) for episode in episodes])

        def each(part: str) -> np.ndarray:
            return joined(lambda episode: np.repeat(getattr(episode, part)[:, None], len(episode.robots), axis=1))

        return {
            "observations": joined(lambda episode: flat_observations(episode.signals, names)),
            "next_observations": joined(lambda episode: flat_observations(episode.next_signals, names)),
            "actions": joined(lambda episode: episode.actions),
            "rewards": joined(lambda episode: episode.rewards),
            "terminals": each("terminals"),
            "truncations": each("truncations"),
            "infos/state": joined(lambda episode: episode.state),
            "infos/next_state": joined(lambda episode: episode.next_state),
            "infos/hidden": joined(lambda episode: episode.hidden),
            "infos/valid": joined(lambda episode: episode.valid),
            "infos/episode": np.concatenate([np.full(len(e), k, np.int32) for k, e in enumerate(episodes)]),
        }

    def card(self, arrays: Mapping[str, np.ndarray], sha256: str) -> dict[str, Any]:
        """Return the dataset card, JSON-ready."""
        contract, first = self.sources[0].contract, self.episodes[0]
        said = contract.command.message_size
        return {
            "schema": CARD_SCHEMA,
            "sha256": sha256,
            "scenario": contract.scenario,
            "robot": contract.robot,
            "robots": len(first.robots),
            "decision_period_s": contract.decision_period_s,
            "transitions": len(arrays["rewards"]),
            "episodes": len(self.episodes),
            "invalid": int((~arrays["infos/valid"]).sum()),
            "arrays": {name: {"shape": list(value.shape), "dtype": str(value.dtype)} for name, value in arrays.items()},
            "observation": observation_layout(first.signals, contract),
            "action": {
                "unit": contract.command.unit,
                "limit": contract.command.limit,
                "frame": "world",
                "meaning": "nominal control-point velocity, before the shield"
                + (f"; then the {said} numbers of the message to the peers" if said else ""),
            },
            "reward_terms": list(first.terms),
            "state": "for each robot: position_world, yaw, velocity, goal_world",
            "profile": self.profile.to_dict(),
            "coverage": coverage(arrays),
            "runs": [_source(source) for source in self.sources],
            "versions": {name: version(name) for name in _PACKAGES},
        }


def flat_observations(signals: Mapping[str, np.ndarray], names: Sequence[str]) -> np.ndarray:
    """Return the observations (T, N, O): all signals flattened and concatenated in the order of ``names``."""
    parts = [signals[name] for name in names]
    return np.concatenate([part.reshape(*part.shape[:2], -1) for part in parts], axis=-1)


def observation_layout(signals: Mapping[str, np.ndarray], contract: Contract) -> list[dict[str, Any]]:
    """Return unit, frame, shape and columns of each signal in an observation."""
    layout, begin = [], 0
    for signal in contract.signals:
        shape = signals[signal.name].shape[2:]
        end = begin + int(np.prod(shape))
        layout.append(
            {
                "name": signal.name,
                "unit": signal.unit,
                "frame": signal.frame,
                "shape": list(shape),
                "columns": [begin, end],
            }
        )
        begin = end
    return layout


def save_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write the file atomically.

    Raises:
        TestudoError: the file cannot be written.
    """
    try:
        with whole_file(path) as partial, partial.open("wb") as file:
            np.savez_compressed(file, **dict[str, Any](arrays))
    except OSError as error:
        raise TestudoError(f"{path}: cannot be written: {error.strerror}") from error


def save_card(path: Path, card: Mapping[str, Any]) -> None:
    """Write the card.

    Raises:
        TestudoError: the file cannot be written.
    """
    try:
        path.write_text(json.dumps(card, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise TestudoError(f"{path}: cannot be written: {error.strerror}") from error


def _source(source: DatasetSource) -> dict[str, Any]:
    provenance = source.contract.provenance
    return {
        "folder": source.folder.name,
        "bag_sha256": source.bag_sha256,
        "policy_sha256": source.policy_sha256,
        "robot_sha256": source.contract.robot_sha256,
        "started": source.started,
        "complete": source.complete,
        "episodes": len(source.episodes),
        "transitions": sum(len(episode) for episode in source.episodes),
        "policy_versions": provenance.get("versions", {}),
        "policy_git": provenance.get("git", ""),
    }


_NANO = 1_000_000_000


def find_runs(paths: list[Path]) -> list[Path]:
    """Return the run folders among ``paths`` and below them.

    Raises:
        TestudoError: a path does not exist, or contains no run folder.
    """
    found: list[Path] = []
    for path in paths:
        if not path.is_dir():
            raise TestudoError(f"{path}: no such run folder")
        below = sorted(item.parent for item in path.glob(f"**/{INFO_FILE}"))
        inside = [path] if (path / INFO_FILE).is_file() else below
        if not inside:
            raise TestudoError(
                f"{path}: found no {INFO_FILE} in it or below, expected a run folder as `testudo up` records it"
            )
        found += [folder for folder in inside if folder not in found]
    return found


def check_has_policy(folder: Path) -> None:
    """Refuse a run without policy artefact and fleet file.

    Raises:
        TestudoError: a file is missing; the text says which, and which verbs accept such a run.
    """
    missing = [name for name in (FLEET_FILE, POLICY_FILE) if not (folder / name).is_file()]
    if missing:
        imported = _kind(folder) == "imported"
        raise TestudoError(
            f"{folder}: {'an imported run: ' if imported else ''}{' and '.join(missing)} missing: a dataset "
            "needs the artefact, the goals and the tick records for observations, actions and rewards; poses and "
            "commands are enough for `testudo identify` and `testudo gap`"
        )


def read_source(folder: Path) -> DatasetSource:
    """Read the transitions of a run folder.

    Raises:
        TestudoError: the run is imported, unreadable, or contains no decision.
    """
    check_has_policy(folder)
    run = read_run(folder)
    if run.fleet.orders:
        raise TestudoError(f"{folder}: its goals were given while it ran; expected a run with a fixed task")
    artefact = PolicyArtefact.load(run.policy_path, sha256=run.policy_sha256)
    started = datetime.fromtimestamp(run.info["start_wall_ns"] / _NANO, UTC).isoformat(timespec="seconds")
    return DatasetSource(
        folder,
        artefact.contract,
        artefact.sha256,
        sha256_of(folder / BAG_FILE),
        started,
        run.complete,
        episodes_of(run, artefact.contract),
    )


def sha256_of(path: Path) -> str:
    """Return the SHA-256 hash of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _kind(folder: Path) -> str:
    try:
        return str(json.loads((folder / INFO_FILE).read_text(encoding="utf-8")).get("kind", ""))
    except (OSError, ValueError, AttributeError):
        return ""
