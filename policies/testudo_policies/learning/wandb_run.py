"""Curves of a run folder in Weights & Biases, for who asked for them with `testudo train --wandb PROJECT`."""

import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from testudo_deploy.files.atomic_files import write_whole
from testudo_hardware.errors import TestudoError

_FILE = "wandb.json"


def wandb_library() -> ModuleType:
    """Return the `wandb` package.

    Raises:
        TestudoError: it is not installed.
    """
    try:
        import wandb  # noqa: PLC0415 -- an optional extra, not in the lock  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise TestudoError(
            "--wandb: the package wandb is not installed; install it with pip install 'testudo[wandb]'"
        ) from error
    return wandb


def ask_for_wandb(folder: Path, project: str) -> None:
    """Note in a run folder that its curves go to a project, also when the run is resumed.

    Raises:
        TestudoError: the package is not installed, or the folder's curves go to another project.
    """
    wandb_library()
    path = folder / _FILE
    before = _asked(folder)
    if before is not None and before["project"] != project:
        raise TestudoError(f"--wandb: found {project!r}, expected {before['project']!r}, where {folder} logs already")
    if before is None:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps({"project": project, "id": secrets.token_hex(4)}) + "\n")


def _asked(folder: Path) -> dict[str, str] | None:
    """Return project and run id of a folder; None where nobody asked for them."""
    path = folder / _FILE
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {name: str(found[name]) for name in ("project", "id")}
    except (ValueError, KeyError, TypeError) as error:
        raise TestudoError(f"{path}: found no project and id, expected them as JSON; remove the file") from error


class WandbRun:
    """The run of a folder in Weights & Biases; it does nothing where nobody asked for one."""

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        """Begin the run, or go on with it.

        Raises:
            TestudoError: the package is not installed, or there is no account and WANDB_MODE is not `offline`.
        """
        self._run: Any = None
        asked = _asked(folder)
        if asked is None:
            return
        library: Any = wandb_library()
        try:
            self._run = library.init(
                **asked,
                name=folder.name,
                group=folder.absolute().parent.name,
                dir=str(folder),
                config=dict(config),
                resume="allow",
                reinit="create_new",  # several seeds are several runs in one program
            )
        except library.Error as error:
            reason = str(error).strip().partition("\n")[0]
            raise TestudoError(f"--wandb: {reason}; without an account set WANDB_MODE=offline") from error

    def log(self, values: Mapping[str, Any], decisions: int) -> None:
        """Add the figures after a number of decisions."""
        if self._run is not None:
            self._run.log(dict(values), step=decisions)

    def close(self) -> None:
        """End the run; what was logged is written."""
        if self._run is not None:
            self._run.finish()
