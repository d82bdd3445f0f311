"""The negative control of re-inference: one recorded input is changed, and must be found."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from testudo_analysis.replay.reinference import announcements_of, model_of, reinfer_robot
from testudo_analysis.replay.reinference_checks import TOLERANCE
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_hardware.errors import TestudoError
from testudo_runs.run_reader import RecordedRun

ALTERABLE = (
    "measured_position_world",
    "estimate_position_world",
    "estimate_yaw",
    "goal_world",
    "neighbour_control_point_world",
    "neighbour_age_s",
    "hidden_before",
)
"""Inputs that `alter` can change."""

_WINDOW_TICKS = 40
"""Ticks on each side of the changed one that `mutations_detected` runs again."""


@dataclass(frozen=True)
class InputMutation:
    """One changed input, and what re-inference made of it."""

    field: str
    robot: str
    sequence: int
    amount: float
    error: float
    """Largest deviation of the robot; infinite where nothing could be computed."""
    caught: bool
    """Re-inference failed, as it must."""

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return asdict(self) | {"error": self.error if self.error < float("inf") else None}


def alter(
    run: RecordedRun, field: str = "estimate_position_world", amount: float = 0.01
) -> tuple[RecordedRun, str, int]:
    """Return the recording with one number changed, and the robot and sequence of that tick.

    The tick is the decision in the middle of the first robot that has one.

    Args:
        run: the recording; it stays as it is.
        field: one of `ALTERABLE`; its first number is changed.
        amount: what is added, in the unit of the field.

    Raises:
        TestudoError: the field cannot be altered, or no tick has it.
    """
    if field not in ALTERABLE:
        raise TestudoError(f"alter: field: found {field!r}, expected one of {', '.join(ALTERABLE)}")
    for name, ticks in run.ticks.items():
        usable = [
            k
            for k, record in enumerate(ticks)
            if record.decided and not record.reason and getattr(record, field) not in (None, ())
        ]
        if usable:
            chosen = usable[len(usable) // 2]
            record = ticks[chosen]
            changed = replace(record, **{field: _shifted(getattr(record, field), amount)})
            altered = (*ticks[:chosen], changed, *ticks[chosen + 1 :])
            return replace(run, ticks={**run.ticks, name: altered}), name, record.sequence
    raise TestudoError(f"alter: no decision in this run has {field}; alter another field")


def mutations_detected(
    run: RecordedRun, artefact: PolicyArtefact, amount: float = 0.01, tolerance: float = TOLERANCE
) -> tuple[InputMutation, ...]:
    """Change each input that the run has, one at a time, and say whether re-inference fails.

    Only the ticks around the change are run again.
    """
    model, announced = model_of(artefact), announcements_of(run)
    found = []
    for field in ALTERABLE:
        try:
            altered, name, sequence = alter(run, field, amount)
        except TestudoError:
            continue  # a policy without memory has no hidden state
        near = [tick for tick in altered.ticks[name] if abs(tick.sequence - sequence) <= _WINDOW_TICKS]
        window = replace(altered, ticks={name: tuple(near)})
        check = reinfer_robot(window, name, artefact, model, announced)
        caught = check.error > tolerance
        found.append(InputMutation(field, name, sequence, amount, check.error, caught))
    return tuple(found)


def _shifted(value: float | tuple, amount: float) -> float | tuple:
    if isinstance(value, tuple):
        return (_shifted(value[0], amount), *value[1:])
    return value + amount
