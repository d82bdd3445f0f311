"""What a run says about a robot: parameters with intervals, how well they predict what they were not fitted to."""

from testudo_analysis.identify.result import Estimate, HeldOut, Identification, Quantiles
from testudo_analysis.identify.toml import write_identified

__all__ = ["Estimate", "HeldOut", "Identification", "Quantiles", "write_identified"]
