"""Run folders as sources of a dataset; what an imported run lacks is said."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path

from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.files.bag_writer import BAG_FILE
from testudo_deploy.launch.run_folder import FLEET_FILE, INFO_FILE, POLICY_FILE
from testudo_hardware.errors import TestudoError
from testudo_policies.dataset.dataset_file import DatasetSource
from testudo_policies.dataset.episodes import episodes_of
from testudo_runs.run_reader import read_run

_NANO = 1_000_000_000
_CHUNK = 1 << 20


def find_runs(paths: list[Path]) -> list[Path]:
    """Return the run folders that are named, or that lie in the folders that are named.

    Raises:
        TestudoError: a folder is neither, or is not there.
    """
    found: list[Path] = []
    for path in paths:
        if not path.is_dir():
            raise TestudoError(f"{path}: no such run folder")
        below = sorted(item.parent for item in path.glob(f"**/{INFO_FILE}"))
        inside = [path] if (path / INFO_FILE).is_file() else below
        if not inside:
            raise TestudoError(
                f"{path}: no {INFO_FILE} in it or below: no run folder; give folders that `testudo up` recorded"
            )
        found += [folder for folder in inside if folder not in found]
    return found


def check_ours(folder: Path) -> None:
    """Refuse a run that no policy of ours drove.

    Raises:
        TestudoError: what is missing, and what such a run is good for.
    """
    lacking = [name for name in (FLEET_FILE, POLICY_FILE) if not (folder / name).is_file()]
    if lacking:
        imported = _kind(folder) == "imported"
        raise TestudoError(
            f"{folder}: {'an imported run: ' if imported else ''}{' and '.join(lacking)} missing: without the "
            "artefact, the goals and the tick records nobody knows what a policy read, commanded and was "
            "rewarded for; poses and commands are enough for `testudo identify` and `testudo gap`"
        )


def read_source(folder: Path) -> DatasetSource:
    """Read a run folder as a source of transitions.

    Raises:
        TestudoError: it is imported, damaged beyond use, or holds no decision.
    """
    check_ours(folder)
    run = read_run(folder)
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
    """Return the hash of a file, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _kind(folder: Path) -> str:
    try:
        return str(json.loads((folder / INFO_FILE).read_text(encoding="utf-8")).get("kind", ""))
    except (OSError, ValueError, AttributeError):
        return ""
