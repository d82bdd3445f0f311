"""Replay of a recorded run: its commands inferred again, and its motion in the training model."""

from testudo_analysis.replay.altered import ALTERABLE, Alteration, alter, alterations_caught
from testudo_analysis.replay.checks import TOLERANCE, FieldCheck, Reinference, RobotCheck
from testudo_analysis.replay.open_loop import HORIZONS_S, Errors, Gap, GapRow, open_loop
from testudo_analysis.replay.reinference import reinfer

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
