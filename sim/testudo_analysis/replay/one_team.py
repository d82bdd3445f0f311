"""The recording of one team, with the contract of its policy: what incidents and counterfactuals start from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_hardware.errors import TestudoError
from testudo_runs.alignment.prepare import UNSEEN, UNTYPED, load
from testudo_runs.alignment.team_recording import TeamRecording
from testudo_runs.progress_bar import Share, quiet


def load_team(folder: Path, robot_type: str | None = None, share: Share = quiet) -> TeamRecording:
    """Read a run folder of robots of one kind.

    Args:
        folder: recorded by `testudo up`, or made by `testudo import`.
        robot_type: kind of the robots, for imported runs that do not say; a registered name or a robot file.
        share: called with the completed fraction.

    Raises:
        TestudoError: no run, or as `one_team`.
    """
    recording = load(folder, robot_type=robot_type, share=share)
    if recording.run is not None:
        try:
            run = recording.run
            contract = PolicyArtefact.load(run.policy_path, sha256=run.policy_sha256).contract
            recording = replace(recording, contract=contract)
        except TestudoError as error:
            recording = replace(recording, warnings=(*recording.warnings, f"no policy: {error}"))
    return one_team(recording)


def one_team(recording: TeamRecording) -> TeamRecording:
    """Return the recording if its robots are of one known kind and were all located.

    Imported robots without any pose or odometry may be missing.

    Raises:
        TestudoError: no kind of robot, several kinds, or a robot with fewer than two poses.
    """
    folder, imported = recording.folder, recording.run is None
    for name, why in recording.left_out.items():
        if why == UNTYPED:
            raise TestudoError(
                f"{folder}: robots.{name}: found no kind of robot, expected one; give --robot NAME or --robot FILE.toml"
            )
    missing = [name for name, why in recording.left_out.items() if not (imported and why.startswith(UNSEEN))]
    if missing or not recording.robots:
        names = ", ".join(sorted(missing or recording.left_out)) or "no robot"
        raise TestudoError(f"{folder}: {names}: found fewer than 2 poses, expected some")
    kinds = sorted({robot.spec.name for robot in recording.robots})
    if len(kinds) > 1:
        raise TestudoError(f"{folder}: found robots of several kinds ({', '.join(kinds)}), expected one kind")
    return recording
