"""Errors of fits on stretches that they have not seen: the other half of the run, or a robot that was left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from testudo_analysis.identify.estimation.differentiable_rollout import BatchedRollout
from testudo_analysis.identify.estimation.identification_result import HALF, ROBOTS, HeldOut, Quantiles
from testudo_analysis.identify.estimation.levenberg_marquardt import Fit
from testudo_analysis.identify.ground.residual_model import ENDING, fit_residual, residual_errors
from testudo_analysis.replay.batched_rollout import dead_reckoning
from testudo_hardware.schema import DIFFERENTIAL_DRIVE

Solve = Callable[[np.ndarray, np.ndarray, np.ndarray], Fit]
"""A fit from parameters (P,), for groups (C,) of stretches with weights (C,)."""


@dataclass(frozen=True)
class HeldOutErrors:
    """What fits are measured against, on all stretches."""

    roller: BatchedRollout
    scale: np.ndarray
    """(H, E): what counts as a large error."""
    reckoned: np.ndarray
    """(C, E, S): errors of dead reckoning with the commands."""
    nominal: np.ndarray
    """(C, E, S): of the robot file as it was."""
    residual: bool
    """Also measure with a residual model."""

    @classmethod
    def create(cls, roller: BatchedRollout, scale: np.ndarray, *, residual: bool = False) -> HeldOutErrors:
        """Return it for the stretches of a roller."""
        count = len(roller.stretches)
        nominal = np.broadcast_to(roller.nominal(), (count, len(roller.keys)))
        simple = BatchedRollout(dead_reckoning(roller.spec), (), roller.stretches, roller.cutting)
        return cls(roller, scale, simple.errors(np.zeros((count, 0))), roller.errors(nominal), residual)

    def rows(self, errors: dict[str, np.ndarray], test: np.ndarray, name: str, split: str) -> list[HeldOut]:
        """Return the errors of one robot by horizon and channel.

        Args:
            errors: (C, E, S) by ending of the channel.
            test: (C,) bool.
            name: of the robot.
            split: what was held out.
        """
        stretches, wheeled = self.roller.stretches, self.roller.spec.kind == DIFFERENTIAL_DRIVE
        rows = []
        for ending, found in errors.items():
            for k, horizon in enumerate(self.roller.cutting.horizons_s):
                at = stretches.valid & (stretches.horizon == k) & test[:, None]
                if not at.any():
                    continue
                kinds = (self.reckoned, self.nominal, found)
                place = [np.sqrt(np.sum(each[:, :-1] ** 2, axis=1))[at] for each in kinds]
                turn = [np.abs(each[:, -1])[at] for each in kinds]
                rows.append(HeldOut(name, horizon, f"position{ending}", "m", *map(Quantiles.create, place), split))
                if wheeled:
                    rows.append(HeldOut(name, horizon, f"yaw{ending}", "rad", *map(Quantiles.create, turn), split))
        return rows

    def with_residual(self, values: np.ndarray, train: np.ndarray) -> dict[str, np.ndarray]:
        """Return the errors at parameters (C, P) with a residual model of stretches (C,), if one is asked for."""
        if not self.residual:
            return {}
        return {ENDING: residual_errors(self.roller, values, fit_residual(self.roller, values, self.scale, train))}


def hold_half(measure: HeldOutErrors, solve: Solve, start: np.ndarray, names: list[str]) -> list[HeldOut]:
    """Fit each robot on its first half, from parameters (P,), and measure on its second."""
    stretches = measure.roller.stretches
    mine = [stretches.robot == k for k in range(len(names))]
    middle = np.array([0.5 * (stretches.begin_s[own].min() + stretches.end_s[own].max()) for own in mine])
    middle = middle[stretches.robot]
    train, test = stretches.end_s <= middle, stretches.begin_s >= middle
    values = solve(start, stretches.robot, train.astype(float)).values[stretches.robot]
    errors = {"": measure.roller.errors(values)}
    return [
        row
        for k, name in enumerate(names)
        for row in measure.rows(errors | measure.with_residual(values, train & mine[k]), test & mine[k], name, HALF)
    ]


def hold_robot(
    measure: HeldOutErrors, solve: Solve, start: np.ndarray, names: list[str], left_out: int
) -> list[HeldOut]:
    """Fit the other robots together, from parameters (P,), and measure on this one."""
    stretches = measure.roller.stretches
    mine = stretches.robot == left_out
    found = solve(start, np.zeros(len(stretches), int), (~mine).astype(float)).values
    values = np.broadcast_to(found[0], (len(stretches), found.shape[1]))
    errors = {"": measure.roller.errors(values)} | measure.with_residual(values, ~mine)
    return measure.rows(errors, mine, names[left_out], ROBOTS)
