"""Makes recorded series fit for use: order, gaps, angles, clocks, latency, velocity; each choice in a report.

In: series by robot and role, as recorded.
Out: a `TeamRecording`, aligned trajectories and commands of all robots.
"""

from testudo_runs.alignment.clock_fit import ClockFit, clock_fit, on_recorder_clock
from testudo_runs.alignment.latency import LatencyEstimate, response_latency
from testudo_runs.alignment.prepare import align_robot, load, prepare, prepare_run
from testudo_runs.alignment.provenance import RobotReport
from testudo_runs.alignment.sample_cleaning import CleaningReport, heading, tidy, unwrapped
from testudo_runs.alignment.team_recording import AlignedRobot, CommandPieces, Commands, TeamRecording, Trajectory
from testudo_runs.alignment.velocity_smoothing import Smoothed, Smoother, smooth_velocity

__all__ = [
    "AlignedRobot",
    "CleaningReport",
    "ClockFit",
    "CommandPieces",
    "Commands",
    "LatencyEstimate",
    "RobotReport",
    "Smoothed",
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
    "unwrapped",
]
