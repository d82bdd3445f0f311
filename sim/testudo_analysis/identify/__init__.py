"""What a run says about a robot: parameters with intervals, how well they predict what they were not fitted to."""

from testudo_analysis.identify.estimation.identification_result import Estimate, HeldOut, Identification, Quantiles
from testudo_analysis.identify.robot_file_writer import write_identified

__all__ = ["Estimate", "HeldOut", "Identification", "Quantiles", "write_identified"]
