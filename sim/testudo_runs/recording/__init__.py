"""What robots did, whoever recorded it: series of numbers by robot and role, in and out of the one run format."""

from testudo_runs.recording.load import load_recording, recording_of_run
from testudo_runs.recording.recording import Recording, RobotRecording, Series
from testudo_runs.recording.roles import ROLES, Role
from testudo_runs.recording.write import write_recording

__all__ = [
    "ROLES",
    "Recording",
    "RobotRecording",
    "Role",
    "Series",
    "load_recording",
    "recording_of_run",
    "write_recording",
]
