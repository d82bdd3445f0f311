"""The study of `testudo evaluate`: several training runs, in cells of declared factors."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import tyro
from rich.console import Console
from rich.text import Text

from testudo_hardware.errors import TestudoError
from testudo_policies.commands.json_output import write_output
from testudo_policies.evaluation.evaluation_table import evaluation_table
from testudo_policies.evaluation.factors import TEAM_SIZE, cells
from testudo_policies.evaluation.study import Group, Runner, Study, check_alike, is_several, run_study
from testudo_policies.evaluation.study_report import notes, tables, to_dict


@dataclass(frozen=True)
class StudyOptions:
    """A study of several training runs."""

    against: tuple[Path, ...] = ()
    """Runs of another experiment in the same episodes, with the probability that the first ones are better."""
    score: str = ""
    """What counts: `success`, `return` or a metric; as NAME:LOW:HIGH on a scale on which HIGH is the optimum, 1.
    Default: success, or return where the task has none."""
    factor: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """NAME=LEVEL,LEVEL: evaluate in all combinations of `team_size`, `robot` (name or file), `map` (or `none`), the
    radio between robots (`message_loss`, `message_ticks`) and that of the task (`task_loss`, `task_delay_s`)."""
    trained: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """NAME=LEVEL,LEVEL: further levels that training had, of which the file does not tell."""
    held_out: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """NAME=LEVEL,NAME=LEVEL: a combination that training left out, while it had each of the levels."""
    picture: Path | None = None
    """File for a picture of all cells (.png)."""


def is_study(policies: Sequence[Path], study: StudyOptions) -> bool:
    """Return whether several runs, or factors, are asked for; refuse no policy, and options that need a study.

    Raises:
        TestudoError: no policy, or such an option.
    """
    if not policies:
        raise TestudoError("evaluate: found no policy; expected policy.onnx or the folder of a training run")
    if is_several(policies) or study.against or study.factor:
        return True
    for name in ("score", "trained", "held_out", "picture"):
        if getattr(study, name):
            raise TestudoError(f"--{name.replace('_', '-')}: found one policy without --factor; it is for a study")
    return False


def is_by_hand(baselines: str, starts: Path | None) -> bool:
    """Return whether the hand-written velocities are run beside a study; refuse what a study does not have.

    Raises:
        TestudoError: planners, or the starts of an incident.
    """
    if baselines not in ("auto", "none"):
        raise TestudoError(f"--baselines: found {baselines!r} with several policies or factors, expected auto or none")
    if starts is not None:
        raise TestudoError("--starts: found it with several policies or factors; evaluate one policy with it")
    return baselines == "auto"


def with_team_sizes(study: StudyOptions, team_size: Sequence[int]) -> StudyOptions:
    """Return the options with the sizes of `--team-size` as a factor.

    Raises:
        TestudoError: that factor was declared, too.
    """
    if not team_size:
        return study
    if any(text.startswith(f"{TEAM_SIZE}=") for text in study.factor):
        raise TestudoError(f"--team-size: found it with --factor {TEAM_SIZE}; give one of the two")
    return replace(study, factor=(f"{TEAM_SIZE}={','.join(map(str, team_size))}", *study.factor))


def run_and_show(
    policies: Sequence[Path],
    options: StudyOptions,
    layers: Sequence[str],
    runner: Runner,
    json: Path | None,
    console: Console,
) -> None:
    """Run a study, print its tables, and write its files."""
    groups = [Group.load(policies), *([Group.load(options.against)] if options.against else [])]
    check_alike(groups)
    tested = [one for group in groups for one in group.runs.values()]
    study = run_study(
        groups, cells(options.factor, options.trained, options.held_out, tested), layers, options.score, runner
    )
    if not options.factor:
        _show_runs(study, console)
    for table in tables(study):
        console.print(table)
    for line in notes(study):
        console.print(line, highlight=False)
    write_output(json, to_dict(study), console)
    if options.picture is not None:
        from testudo_policies.evaluation.study_picture import (  # noqa: PLC0415 -- Matplotlib takes a third of a second
            study_picture,
        )

        options.picture.write_bytes(study_picture(study).png)
        console.print(Text(f"wrote {options.picture}"))


def _show_runs(study: Study, console: Console) -> None:
    """Print what `testudo evaluate` prints of each run."""
    for place in study.places:
        columns = [replace(one, policy="/".join(Path(one.policy).parts[-2:])) for one in place.evaluations]
        if place.by_hand is not None:
            columns.append(place.by_hand)
        console.print(evaluation_table(columns, study.task))
