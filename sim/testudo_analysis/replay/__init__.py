"""Replay of a recorded run: its commands inferred again, and its motion in the training model."""

from testudo_analysis.replay.negative_control import ALTERABLE, Alteration, alter, alterations_caught
from testudo_analysis.replay.open_loop import HORIZONS_S, Errors, Gap, GapRow, open_loop
from testudo_analysis.replay.reinference import reinfer
from testudo_analysis.replay.reinference_checks import TOLERANCE, FieldCheck, Reinference, RobotCheck

__all__ = [
    "ALTERABLE",
    "HORIZONS_S",
    "TOLERANCE",
    "Alteration",
    "Errors",
    "FieldCheck",
    "Gap",
    "GapRow",
    "Reinference",
    "RobotCheck",
    "alter",
    "alterations_caught",
    "open_loop",
    "reinfer",
]
