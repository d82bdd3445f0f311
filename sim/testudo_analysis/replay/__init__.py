"""Replay of recorded runs.

In: runs and policy artefacts.
Out: re-inferred commands, open-loop gaps, counterfactual outcomes.
"""

from testudo_analysis.replay.reinference import ALTERABLE, InputMutation, alter, mutations_detected, reinfer
from testudo_analysis.replay.reinference_checks import TOLERANCE, Reinference

__all__ = [
    "ALTERABLE",
    "TOLERANCE",
    "InputMutation",
    "Reinference",
    "alter",
    "mutations_detected",
    "reinfer",
]
