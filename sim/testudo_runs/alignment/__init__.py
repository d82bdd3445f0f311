"""Makes recorded series fit for use: order, gaps, angles, clocks, latency, velocity; each choice in a report.

In: series by robot and role, as recorded.
Out: a `TeamRecording`, aligned trajectories and commands of all robots.
"""

from testudo_runs.alignment.latency import LatencyEstimate, response_latency
from testudo_runs.alignment.prepare import Smoother, align_robot, load, prepare, prepare_run, smooth_velocity
from testudo_runs.alignment.sample_cleaning import (
    CleaningReport,
    ClockFit,
    clock_fit,
    heading,
    on_recorder_clock,
    tidy,
)
from testudo_runs.alignment.team_recording import (
    AlignedRobot,
    CommandPieces,
    Commands,
    RobotReport,
    TeamRecording,
    Trajectory,
)

__all__ = [
    "AlignedRobot",
    "CleaningReport",
    "ClockFit",
    "CommandPieces",
    "Commands",
    "LatencyEstimate",
    "RobotReport",
    "Smoother",
    "TeamRecording",
    "Trajectory",
    "align_robot",
    "clock_fit",
    "heading",
    "load",
    "on_recorder_clock",
    "prepare",
    "prepare_run",
    "response_latency",
    "smooth_velocity",
    "tidy",
]
