"""Recordings for tests of the gap: of a model itself, with errors that are known."""

from testudo_analysis.gap.gap_analysis import analyse
from testudo_bench.synthetic_data.synthetic_runs import synthetic_recording
from testudo_hardware.spec import load_robot
from testudo_runs.alignment import prepare

ROBOT = "gritsbot_x"


def report_of(truth=None, *, robot=ROBOT, seconds=60.0, robots=2, identified=None, **more):
    """Return the report, and the replays, of robots whose true parameters are `truth`."""
    recording = synthetic_recording(load_robot(robot), truth=truth, seconds=seconds, robots=robots, **more)
    return analyse(prepare(recording), identified=identified)
