"""Re-inference: the recorded inputs of every tick through artefact and shield again, and its negative control.

An unchanged record reproduces the recorded commands. The inputs are also compared with their sources (see
`input_sources`), so that a changed input is found even if it changes no command.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from testudo_analysis.replay.input_sources import (
    Announcements,
    check_goals,
    check_neighbours,
    check_poses,
    check_sensors,
    check_task,
)
from testudo_analysis.replay.reinference_checks import TOLERANCE, FieldErrors, Reinference, RobotCheck
from testudo_analysis.replay.tick_replay import FIELDS, TASK_FIELDS, TickReplay
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import MotionModel, motion_model
from testudo_hardware.spec import parse_robot
from testudo_runs.progress_bar import Share, quiet
from testudo_runs.run_reader import RecordedRun, ticks_in_order


def reinfer(
    run: RecordedRun, artefact: PolicyArtefact, *, tolerance: float = TOLERANCE, share: Share = quiet
) -> Reinference:
    """Compute every recorded command again and compare.

    ``artefact`` is the policy that drove the run; its contract holds robot and shield. ``tolerance`` is the largest
    deviation that passes; ``share`` gets the completed fraction.

    Raises:
        TestudoError: the run has no ticks.
    """
    if not any(run.ticks.values()):
        raise TestudoError(
            f"{run.folder}: found no tick records, expected those of the control loops: re-inference needs them"
        )
    model, announced = model_of(artefact), announcements_of(run)
    checks = []
    for name in run.ticks:
        share(len(checks) / len(run.ticks))
        checks.append(reinfer_robot(run, name, artefact, model, announced))
    return Reinference(tolerance, artefact.sha256, tuple(checks))


def reinfer_robot(
    run: RecordedRun,
    name: str,
    artefact: PolicyArtefact,
    model: MotionModel,
    announced: Mapping[str, Announcements],
) -> RobotCheck:
    """Compare the commands of one robot; see `reinfer`."""
    tasked = run.fleet.task is not None or run.sensed.get(name)
    errors = FieldErrors(FIELDS | TASK_FIELDS if tasked else FIELDS)
    rerun, ticks = TickReplay(artefact, model, errors), ticks_in_order(run.ticks[name])
    rerun.take_all(ticks)
    rerun.finish()
    robot = run.fleet.robot(name)
    leader = () if robot.follows is None else run.announcements.get(robot.follows.robot, ())
    unverified = check_goals(rerun.errors, ticks, robot.goal_world, leader, robot.follows)
    unverified += check_neighbours(rerun.errors, name, ticks, announced)
    told = run.task_messages.get(name, ())
    unverified += check_task(rerun.errors, ticks, told, artefact.contract.task_signals)
    unverified += check_sensors(rerun.errors, ticks, run.sensed.get(name, {}))
    unverified += check_poses(rerun.errors, ticks, run.odometry[name])
    counts = len(ticks), rerun.lost, rerun.decisions, rerun.reinferred
    return RobotCheck(name, *counts, dict(sorted(rerun.skipped.items())), unverified, rerun.errors.checks())


def model_of(artefact: PolicyArtefact) -> MotionModel:
    """Return the motion model of the policy's robot."""
    return motion_model(parse_robot(artefact.contract.robot_spec, f"{artefact.path}: contract"))


def announcements_of(run: RecordedRun) -> dict[str, Announcements]:
    """Return the announcements of each robot."""
    return {name: Announcements.of(messages) for name, messages in run.announcements.items()}


ALTERABLE = (
    "measured_position_world",
    "estimate_position_world",
    "estimate_yaw",
    "goal_world",
    "neighbour_control_point_world",
    "neighbour_age_s",
    "hidden_before",
)
"""Inputs that `alter` can change in every run."""
TASK_ALTERABLE = ("task_values", "neighbour_message")
"""Further ones of a run whose task node sends signals, or whose policy reads learned messages."""

_WINDOW_TICKS = 40  # ticks on each side of the changed one that `mutations_detected` infers again


@dataclass(frozen=True)
class InputMutation:
    """One changed input, and the result of re-inference."""

    field: str
    robot: str
    sequence: int
    amount: float
    error: float  # largest deviation of the robot; infinite if it cannot be computed
    caught: bool  # re-inference failed, as it must

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return asdict(self) | {"error": self.error if self.error < float("inf") else None}


def alter(
    run: RecordedRun, field: str = "estimate_position_world", amount: float = 0.01
) -> tuple[RecordedRun, str, int]:
    """Return the recording with one number changed, and the robot and sequence of that tick.

    The tick is the decision in the middle of the first robot that has one.

    ``run`` is not changed; ``field`` is one of `ALTERABLE` or `TASK_ALTERABLE`, and ``amount`` is added to its first
    number, in its unit.

    Raises:
        TestudoError: the field cannot be altered, or no tick has it.
    """
    known = (*ALTERABLE, *TASK_ALTERABLE)
    if field not in known:
        raise TestudoError(f"alter: field: found {field!r}, expected one of {', '.join(known)}")
    for name, ticks in run.ticks.items():
        usable = [
            k
            for k, record in enumerate(ticks)
            if record.decided and not record.reason and getattr(record, field) not in (None, (), {})
        ]
        if usable:
            chosen = usable[len(usable) // 2]
            record = ticks[chosen]
            changed = replace(record, **{field: _shifted(getattr(record, field), amount)})
            altered = (*ticks[:chosen], changed, *ticks[chosen + 1 :])
            return replace(run, ticks={**run.ticks, name: altered}), name, record.sequence
    raise TestudoError(f"alter: found no decision with {field} in this run; alter another field")


def mutations_detected(
    run: RecordedRun, artefact: PolicyArtefact, amount: float = 0.01, tolerance: float = TOLERANCE
) -> tuple[InputMutation, ...]:
    """Change each input of the run, one at a time, and return whether re-inference fails.

    Only the ticks around the change are inferred again.
    """
    model, announced = model_of(artefact), announcements_of(run)
    found = []
    for field in (*ALTERABLE, *TASK_ALTERABLE):
        try:
            altered, name, sequence = alter(run, field, amount)
        except TestudoError:
            continue  # a policy without memory has no hidden state, a task of goals no signals
        near = [tick for tick in altered.ticks[name] if abs(tick.sequence - sequence) <= _WINDOW_TICKS]
        window = replace(altered, ticks={name: tuple(near)})
        check = reinfer_robot(window, name, artefact, model, announced)
        found.append(InputMutation(field, name, sequence, amount, check.error, check.error > tolerance))
    return tuple(found)


def _shifted(value: float | tuple | dict, amount: float) -> float | tuple | dict:
    if isinstance(value, dict):
        first = next(iter(value))
        return value | {first: _shifted(value[first], amount)}
    if isinstance(value, tuple):
        return (_shifted(value[0], amount), *value[1:])
    return value + amount
