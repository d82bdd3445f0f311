"""`testudo inspect`: says what a file is, after proving that it holds."""

from __future__ import annotations

from pathlib import Path

import tyro

from testudo_deploy.commands.artefact_report import artefact_report


def inspect(path: tyro.conf.Positional[Path], json: Path | None = None) -> None:
    """Show what a policy file promises: signals, timing, robot, shield, evaluation, hashes.

    Example:
        testudo inspect policy.onnx --json policy.json

    Args:
        path: the policy file.
        json: also write the values to this file.
    """
    artefact_report(path).show(json)
