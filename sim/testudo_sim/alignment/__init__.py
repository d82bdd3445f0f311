"""Makes recorded series fit for use: order, gaps, angles, clocks, latency, velocity; each choice in a report."""

from testudo_sim.alignment.clock import ClockFit, clock_fit, on_recorder_clock
from testudo_sim.alignment.latency import Latency, response_latency
from testudo_sim.alignment.prepare import align_robot, load, prepare, prepare_run
from testudo_sim.alignment.provenance import RobotReport
from testudo_sim.alignment.smoothing import Smoothed, Smoother, smooth_velocity
from testudo_sim.alignment.team import AlignedRobot, CommandPieces, Commands, TeamRecording, Trajectory
from testudo_sim.alignment.tidy import TidyReport, heading, tidy, unwrapped

__all__ = [
    "AlignedRobot",
    "ClockFit",
    "CommandPieces",
    "Commands",
    "Latency",
    "RobotReport",
    "Smoothed",
    "Smoother",
    "TeamRecording",
    "TidyReport",
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
