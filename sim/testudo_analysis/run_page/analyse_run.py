"""Everything that the page of a recorded run needs: incidents, their counterfactuals, and the gap of the model."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from testudo_analysis.gap.gap_analysis import analyse
from testudo_analysis.incident.find_incidents import find_incidents
from testudo_analysis.incident.incident import IncidentThresholds
from testudo_analysis.incident.incident_replay import replay_incidents, worst
from testudo_analysis.replay.counterfactual import counterfactual_variants
from testudo_analysis.replay.replayed_team import one_team, with_contract
from testudo_analysis.run_page.build_page import RunContents
from testudo_deploy.launch.run_folder import FLEET_FILE, INFO_FILE
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import RobotSpec
from testudo_runs.alignment import TeamRecording, prepare
from testudo_runs.alignment.prepare import prepare_run
from testudo_runs.progress_bar import Tell, part, quiet
from testudo_runs.recording.load import load_recording
from testudo_runs.run_reader import read_run

_READ, _FOUND, _SIMULATED = 0.35, 0.45, 0.6
"""Approximate shares of the time after reading, after the search for incidents, and after their counterfactuals."""


@dataclass(frozen=True)
class RunAnalysis:
    """Options of the analysis."""

    robot_type: str | None = None  # robot or robot file for all robots, where the run names none
    identified: RobotSpec | None = None  # parameters to compare with those of the robot file
    worst: int = 3  # number of worst incidents with counterfactuals
    draws: int = 8  # worlds of each counterfactual
    near_m: float | None = None  # distance of two centres that counts as near
    gap: bool = True  # compare the run with the model


def recorded_folder(folder: Path) -> Path:
    """Return the folder that holds the recording: the given one, or ``run`` in it, as in the folder of a demo."""
    inside = folder / "run"
    return inside if not (folder / INFO_FILE).is_file() and (inside / INFO_FILE).is_file() else folder


def analyse_run(folder: Path, options: RunAnalysis = RunAnalysis(), tell: Tell = quiet) -> RunContents:
    """Return what is known of a recorded run; a part that this run does not allow is missing, with a note.

    Raises:
        TestudoError: no run folder, or nothing readable in it.
    """
    recording, prepared = _read(folder, options.robot_type, part(tell, 0.0, _READ))
    if not recording.robots:
        why = "; ".join(f"{name}: {reason}" for name, reason in recording.left_out.items())
        raise TestudoError(f"{folder}: found no robot with poses, expected one: {why}")
    contents = RunContents(recording)
    tell("searching for incidents", _READ)
    try:
        bounds = IncidentThresholds.of(one_team(recording), options.near_m)
        contents = _with_incidents(contents, bounds, options, part(tell, _FOUND, _SIMULATED))
    except TestudoError as error:
        contents = _noted(contents, f"incidents are not searched for: {error}")
    if options.gap:
        try:
            report, replays = analyse(prepared, identified=options.identified, tell=part(tell, _SIMULATED, 0.95))
            contents = replace(contents, gap=report, replays=replays)
        except TestudoError as error:
            contents = _noted(contents, f"the run is not compared with the model: {error}")
    return contents


def _read(folder: Path, robot_type: str | None, tell: Tell) -> tuple[TeamRecording, TeamRecording]:
    """Return the recording as it was measured, with the contract of its policy, and as the gap needs it."""
    share = partial(tell, f"reading {folder}")
    if (folder / FLEET_FILE).is_file():
        run = read_run(folder, share)
        prepared = prepare_run(run, as_measured=False, robot_type=robot_type)
        return with_contract(prepare_run(run, robot_type=robot_type)), prepared
    recording = prepare(load_recording(folder, share=share), robot_type)
    return recording, recording


def _with_incidents(contents: RunContents, bounds: IncidentThresholds, options: RunAnalysis, tell: Tell) -> RunContents:
    """Return the contents with incidents, and counterfactuals of the worst ones where they can be simulated."""
    recording = contents.recording
    incidents = find_incidents(recording, bounds)
    contents = replace(contents, incidents=tuple(incidents), bounds=bounds)
    chosen = worst(incidents, options.worst) if options.worst else []
    if not chosen or len(recording.robots) < 2:
        return contents
    try:
        variants = counterfactual_variants(recording, None)
        simulated = partial(tell, "simulating from before the incidents")
        found = replay_incidents(recording, chosen, variants, bounds, options.draws, simulated)
    except TestudoError as error:
        return _noted(contents, f"what else could have followed is not simulated: {error}")
    return replace(contents, aftermaths=tuple(found))


def _noted(contents: RunContents, note: str) -> RunContents:
    return replace(contents, notes=(*contents.notes, note))
