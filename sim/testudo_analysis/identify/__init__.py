"""Identification of robot parameters from recorded runs.

In: a team recording and a robot file.
Out: parameters with intervals, errors on held-out data, an identified robot file.
"""

from testudo_analysis.identify.estimation.identification_result import Estimate, HeldOut, Identification, Quantiles
from testudo_analysis.identify.robot_file_writer import write_identified

__all__ = ["Estimate", "HeldOut", "Identification", "Quantiles", "write_identified"]
