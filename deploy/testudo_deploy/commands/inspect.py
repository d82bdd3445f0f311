"""`testudo inspect`: says what a file or a run is, after proving that it holds."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

import tyro
from rich.console import Console

from testudo_deploy.cli import missing_requirements
from testudo_deploy.commands.artefact_report import artefact_report
from testudo_hardware.errors import TestudoError

GROUP = "testudo.inspectors"
"""Entry points that show what is no policy file: recordings, which only the simulation side can read."""
_POLICY = ".onnx"


def inspect(
    path: tyro.conf.Positional[Path],
    json: Path | None = None,
    *,
    map: str | None = None,  # noqa: A002 (the name of the option)
    pick: str | None = None,
    msg_path: tuple[Path, ...] = (),
) -> None:
    """Show what a policy file promises, or what a run holds.

    Of a policy file: signals, timing, robot, shield, evaluation, hashes. Of a run folder, and of logs and bags that are
    not imported yet: robots, topics, rates, gaps, clock problems, damage.

    Example:
        testudo inspect policy.onnx --json policy.json
        testudo inspect run
        testudo inspect bag --msg-path our_msgs/msg

    Args:
        path: the policy file, the run folder, or the source of an import.
        json: also write the values to this file.
        map: mapping of logs or bags that are not imported yet.
        pick: which run of them, where they are of several.
        msg_path: folders with .msg files, for messages in bags that hold no definitions of their own.
    """
    if path.suffix != _POLICY and not path.exists():
        raise TestudoError(f"{path}: no such file or folder; expected a policy ({_POLICY}), a run, a bag or a log")
    if _is_policy(path):
        if map or pick or msg_path:
            raise TestudoError(f"{path}: --map, --pick and --msg-path are for recordings, not for a policy file")
        artefact_report(path).show(json)
        return
    points = {point.name: point for point in entry_points(group=GROUP)}
    missing = missing_requirements(points["recording"]) if "recording" in points else ["the package testudo_sim"]
    if missing:
        raise TestudoError(
            f"{path}: to show a recording, `testudo inspect` needs {', '.join(missing)}, which is not "
            "installed here: pip install 'testudo[train]'"
        )
    with Console(stderr=True).status("reading"):
        report = points["recording"].load()(path, map, pick, msg_path)
    report.show(json)


def _is_policy(path: Path) -> bool:
    """Return whether a path is to be read as a policy file: by its name, or as it begins with the version of ONNX."""
    if path.suffix == _POLICY:
        return True
    if path.is_dir():
        return False
    try:
        with path.open("rb") as stream:
            head = stream.read(2)
    except OSError:
        return False
    return head[:1] == b"\x08" and head[1:] < b"\x20"
