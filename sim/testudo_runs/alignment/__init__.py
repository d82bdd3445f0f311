"""Makes recorded series fit for use: order, gaps, angles, clocks, latency, velocity; each choice in a report."""

from testudo_runs.alignment.align import AlignedRobot, RobotReport, align_robot, held, interpolated, located
from testudo_runs.alignment.clock_fit import ClockFit, clock_fit, on_recorder_clock
from testudo_runs.alignment.latency import LatencyEstimate, response_latency
from testudo_runs.alignment.sample_cleaning import CleaningReport, heading, tidy, unwrapped
from testudo_runs.alignment.velocity_smoothing import Smoothed, Smoother, smooth_velocity

__all__ = [
    "AlignedRobot",
    "CleaningReport",
    "ClockFit",
    "LatencyEstimate",
    "RobotReport",
    "Smoothed",
    "Smoother",
    "align_robot",
    "clock_fit",
    "heading",
    "held",
    "interpolated",
    "located",
    "on_recorder_clock",
    "response_latency",
    "smooth_velocity",
    "tidy",
    "unwrapped",
]
