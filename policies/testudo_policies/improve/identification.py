"""First step of `testudo improve`: identifies the robot file from the run."""

import json
import shutil
from pathlib import Path

from testudo_analysis.identify import write_identified
from testudo_analysis.identify.estimation.identification_result import HALF
from testudo_analysis.identify.identify_run import identify_run
from testudo_analysis.identify.robot_file_writer import robot_text
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_policies.improve.steps import Improvement
from testudo_runs.alignment import prepare
from testudo_runs.progress_bar import part, progress_bar
from testudo_runs.recording.load import load_recording
from testudo_runs.recording.recording import Recording

_READ = 0.1  # approximate share of the time that reading takes
_BEFORE, _FOUND = "robot_before.toml", "identification.json"


def identify_step(state: Improvement, robot_file: Path | None) -> None:
    """Write the identified robot into the folder unless it exists: from the run, or from the given file.

    The identification starts from the robot description in the old policy's artefact.

    Raises:
        TestudoError: the run has other robots or too little motion, or the file is invalid.
    """
    if state.robot_file.is_file():
        state.console.print(f"{state.robot_file} exists already")
        return
    if robot_file is not None:
        load_robot(robot_file)
        shutil.copyfile(robot_file, state.robot_file)
        return
    reading = f"reading {state.settings.run_folder}"
    with progress_bar(reading, state.console) as tell:
        recording = load_recording(state.settings.run_folder, share=lambda done: tell(reading, _READ * done))
        _check_robots(state, recording)
        before = state.settings.folder / _BEFORE
        before.write_text(
            robot_text(state.old.contract.robot_spec, ["from the old policy's artefact"]), encoding="utf-8"
        )
        team = prepare(recording, str(before))
        found, _ = identify_run(team, hold_out=(HALF,), tell=part(tell, _READ, 1.0))
    (state.settings.folder / _FOUND).write_text(json.dumps(found.to_dict(), indent=2) + "\n", encoding="utf-8")
    write_identified(before, found, state.robot_file)


def _check_robots(state: Improvement, recording: Recording) -> None:
    expected = state.old.contract.robot
    for robot in recording.robots.values():
        found = load_robot(robot.robot_type).name if robot.robot_type else expected
        if found != expected:
            raise TestudoError(
                f"{state.settings.run_folder}: {robot.name} is a {found}, expected {expected}, the robot of "
                f"{state.settings.policy}"
            )
