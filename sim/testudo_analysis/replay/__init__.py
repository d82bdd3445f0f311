"""Replay of a recorded run: its commands inferred again, and its motion in the training model."""

from testudo_analysis.replay.negative_control import ALTERABLE, InputMutation, alter, mutations_detected
from testudo_analysis.replay.open_loop import HORIZONS_S, GapRow, OpenLoopErrors, OpenLoopGap, open_loop
from testudo_analysis.replay.reinference import reinfer
from testudo_analysis.replay.reinference_checks import TOLERANCE, FieldCheck, Reinference, RobotCheck

__all__ = [
    "ALTERABLE",
    "HORIZONS_S",
    "TOLERANCE",
    "FieldCheck",
    "GapRow",
    "InputMutation",
    "OpenLoopErrors",
    "OpenLoopGap",
    "Reinference",
    "RobotCheck",
    "alter",
    "mutations_detected",
    "open_loop",
    "reinfer",
]
