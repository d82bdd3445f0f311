"""The self-contained HTML page of a report; styles, plots and film are embedded."""

from pathlib import Path

from testudo_analysis.replay.gap_names import ALL_ROBOTS
from testudo_analysis.replay.replay_tables import SHOWN_UNITS
from testudo_analysis.report import run_plots, training_plots
from testudo_analysis.report.fleet_summary import COLUMNS, FleetSummary, RobotSummary, flown_row, summarise_fleet
from testudo_analysis.report.html_markup import (
    Html,
    code,
    details,
    document,
    facts,
    figure,
    film,
    link,
    paragraph,
    pill,
    table,
)
from testudo_analysis.report.report_data import EvaluationRow, ReportData
from testudo_analysis.report.summary import all_passed, scientific, share, verdicts


def headline(data: ReportData) -> str:
    """Return the table of verdicts; a missed time limit is no failure, because it depends on the machine."""
    late = Html('<span class="pill warn">slower here</span>')
    rows = [
        (v.name, v.value, v.bar, late if v.is_timing and v.passed is False else pill(v.passed)) for v in verdicts(data)
    ]
    return table(("what", "measured", "required", ""), rows) if rows else ""


def training(data: ReportData) -> str:
    """Return configuration and learning curves of the training."""
    section = data.training
    if section is None:
        return ""
    last = section.rows[-1] if section.rows else {}
    values = {
        **section.facts,
        "updates": f"{len(section.rows):,}",
        "decisions": f"{last.get('decisions', 0):,.0f}",
        "time": f"{section.seconds:.1f} s",
        "compilation": f"{section.compile_s:.1f} s",
    }
    caption = "Thin: each update. Thick: the mean of neighbouring updates. The shield was active."
    return facts(values) + figure(training_plots.training_plot(section.rows), caption)


def evaluation(data: ReportData) -> str:
    """Return the evaluation on held-out episodes by team size."""
    if not data.evaluation:
        return ""
    columns = ("robots", "episodes", "success (95 % interval)", "contacts", "contact rate at most",
               "least distance", "shield acts", "deadlocks", "time to success")  # fmt: skip
    rows = [_evaluation_row(row) for row in data.evaluation]
    note = (
        "Episodes start from seeds that training never used. Contacts are counted at every "
        "simulation step; the rate of episodes with a contact is at most the given one with 95 % confidence."
    )
    crossing = data.evaluation[0].crossing_share
    if crossing is not None:
        note += f" Straight paths cross in {share(crossing, 0)} of the episodes."
    return table(columns, rows, numbers=range(9)) + paragraph(note)


def _evaluation_row(row: EvaluationRow) -> tuple[object, ...]:
    distance, time_s = row.minimum_separation_m, row.time_to_success_s
    return (
        row.team.replace(" robots", ""),
        f"{row.episodes:,}",
        f"{share(row.success)} ({share(row.success_low)} to {share(row.success_high)})",
        row.contacts,
        share(row.contact_rate_high),
        None if distance is None else f"{distance:.3f} m",
        share(row.intervention_rate, 1),
        row.deadlocks,
        None if time_s is None else f"{time_s:.1f} s",
    )


def fleet(data: ReportData) -> str:
    """Return the fleet run: film, paths, distances, and a table by robot."""
    if data.fleet is None:
        return ""
    summary = summarise_fleet(data.fleet)
    parts = [facts(_fleet_facts(summary))]
    if data.fleet.film is not None:
        parts.append(film(data.fleet.film, "The run, as the plant moved the robots."))
    if data.fleet.view is not None:
        parts.append(
            link(
                data.fleet.view.name,
                "Look around in the run in 3-D",
                "a page of its own, beside this one; it can be passed on by itself",
            )
        )
    parts.append(
        figure(
            run_plots.trajectory_plot(data.fleet),
            "Paths. Circles are starts, crosses goals with their tolerance, discs the robots at the end; a dot every "
            "two seconds.",
        )
    )
    parts.append(
        figure(
            run_plots.separation_plot(data.fleet),
            "Above: centres, with the distance at which bodies touch. Below: control points as the "
            "robots knew them, with the distance that the shield keeps for a message of age zero.",
        )
    )
    columns = ("robot", "arrived", "way", "ticks", "late at most", "tick p50", "tick p99")
    rows = [_robot_row(robot) for robot in summary.robots]
    parts.append(table(columns, rows, numbers=range(1, 7)))
    if len(data.runs) > 1:
        parts.append(
            paragraph(
                f"{len(data.runs)} runs, each from another start with another plant; the first is the "
                "one above. Distances are the least of a run."
            )
        )
        parts.append(table(COLUMNS, [flown_row(run) for run in data.runs], numbers=range(2, len(COLUMNS))))
    parts += [paragraph(f"Warning: {warning}") for warning in data.fleet.run.warnings]
    return "".join(parts)


def _fleet_facts(summary: FleetSummary) -> dict[str, object]:
    separation = summary.minimum_separation_m
    return {
        "arrived": f"{summary.arrived} of {len(summary.robots)}",
        "last arrival": None if summary.arrival_s is None else f"{summary.arrival_s:.1f} s",
        "contacts": summary.contacts,
        "least distance": None if separation is None else f"{separation:.3f} m",
        "between": " and ".join(summary.closest) or None,
        "recorded": f"{summary.duration_s:.1f} s",
    }


def _robot_row(robot: RobotSummary) -> tuple[object, ...]:
    return (
        robot.robot,
        "no" if robot.arrived_s is None else f"{robot.arrived_s:.1f} s",
        f"{robot.path_m:.2f} m",
        f"{robot.ticks:,}",
        f"{robot.worst_late_s * 1e3:.1f} ms",
        f"{robot.duration_p50_s * 1e6:.0f} µs",
        f"{robot.duration_p99_s * 1e6:.0f} µs",
    )


def shield(data: ReportData) -> str:
    """Return the shield's activity in the run."""
    if data.fleet is None:
        return ""
    rows = []
    for robot in summarise_fleet(data.fleet).robots:
        braked = sum(robot.braked.values())
        passed = robot.ticks - robot.projected - braked
        why = ", ".join(f"{reason} {count}" for reason, count in robot.braked.items())
        shares = [share(count / robot.ticks, 1) for count in (passed, robot.projected, braked)]
        rows.append((robot.robot, *shares, why or None))
    caption = "Height: how far the command was changed. Strip: what became of each command."
    columns = ("robot", "passed", "projected", "braked", "ticks braked, by reason")
    return figure(run_plots.shield_plot(data.fleet), caption) + table(columns, rows, numbers=range(1, 4))


def reinference(data: ReportData) -> str:
    """Return the result of re-inference and of its negative control."""
    if data.reinference is None:
        return ""
    result, altered = data.reinference.result, data.reinference.altered
    robots = [
        (r.robot, f"{r.ticks:,}", r.lost, f"{r.decisions:,}", f"{r.reinferred:,}",
         ", ".join(f"{reason} {count}" for reason, count in r.skipped.items()) or None,
         scientific(r.error))
        for r in result.robots
    ]  # fmt: skip
    checks = [(c.name, c.what, f"{c.compared:,}", scientific(c.error)) for c in result.fields]
    note = (
        "Every recorded input went through the same policy file, estimate and shield again; the "
        "inputs themselves were traced to odometry, fleet file and the peers' announcements. "
        f"Largest deviation {scientific(result.error)}, allowed {result.tolerance:g}."
    )
    columns = ("robot", "ticks", "lost", "decisions", "commands inferred", "skipped", "deviation")
    parts = [paragraph(note), table(columns, robots, numbers=(1, 2, 3, 4, 6))]
    fields = ("quantity", "compared with", "ticks", "deviation")
    parts.append(details("By quantity", table(fields, checks, numbers=(2, 3))))
    if altered:
        rows = [(code(a.field), a.robot, a.sequence, f"{a.amount:g}", scientific(a.error),
                 pill(a.caught, "yes", "no")) for a in altered]  # fmt: skip
        columns = ("input", "robot", "tick", "changed by", "deviation", "caught")
        parts.append(paragraph("Negative control: one recorded number changed, one at a time."))
        parts.append(table(columns, rows, numbers=(2, 3, 4)))
    return "".join(parts)


def gap(data: ReportData) -> str:
    """Return the deviation of the training model from the run."""
    found = data.gap
    if found is None:
        return ""
    note = (
        f"The sent commands through the training model (lag {found.velocity_lag_s * 1e3:.0f} ms, "
        f"delay {found.command_delay_s * 1e3:.0f} ms), from every recorded pose, against "
        f"{found.reference}: how far apart the two are after a while."
    )
    columns = ("robot", "channel", "horizon", "median", "p90", "p99", "unit", "starts")
    rows = []
    for row in found.rows:
        unit, factor = SHOWN_UNITS[row.unit]
        values = (row.errors.median, row.errors.p90, row.errors.p99)
        rows.append((row.robot, row.channel, f"{row.horizon_s:g} s",
                     *(f"{value * factor:.2f}" for value in values), unit,
                     f"{row.errors.count:,}"))  # fmt: skip
    pooled = [row[1:] for row in rows if row[0] == ALL_ROBOTS]
    short = table(columns[1:], pooled, numbers=(1, 2, 3, 4, 6))
    whole = table(columns, rows, numbers=(2, 3, 4, 5, 7))
    return (
        paragraph(note)
        + figure(training_plots.gap_plot(found), "Error of the model over the horizon; median by robot.")
        + details("All robots together, by channel", short)
        + details("By robot and channel", whole)
    )


def parity(data: ReportData) -> str:
    """Return the deviation of the exported graph from the trained function."""
    found = data.parity
    if found is None:
        return ""
    rows = [
        ("command", f"{found.inputs:,} random inputs", scientific(found.command_error)),
        ("hidden state", f"{found.inputs:,} random inputs", scientific(found.hidden_error)),
    ]
    if found.loop_steps:
        loops = f"{found.loops} closed loops of {found.loop_steps} steps"
        rows.append(("command and hidden state", f"{loops}, teacher-forced",
                     scientific(found.teacher_forced_error)))  # fmt: skip
        drift = scientific(found.free_running_drift)
        rows.append(("command", f"{loops}, free-running (not bounded)", drift))
    note = f"Allowed: {found.tolerance:g}."
    return table(("output", "compared over", "largest difference"), rows, numbers=(2,)) + paragraph(note)


def margins(data: ReportData) -> str:
    """Return the terms of the separation that the shield keeps."""
    if data.contract is None:
        return ""
    parameters = data.contract.shield
    rows: list[tuple[object, ...]] = [
        (term.name, f"{term.value_m * 1e3:.1f}", term.source) for term in parameters.terms
    ]
    rows.append((Html("<strong>sum</strong>"), f"{parameters.separation_m * 1e3:.1f}",
                 "distance of control points that is kept from a peer at rest"))  # fmt: skip
    rows.append(("wall", f"{parameters.wall_m * 1e3:.1f}", "distance that is kept from a wall"))
    values = {
        "share of the gap": f"{parameters.gap_share:g}",
        "hold": f"{parameters.hold_s * 1e3:.0f} ms",
        "kappa": f"{parameters.direction_factor:.3f}",
        "control tick": f"{data.contract.control_period_s * 1e3:.0f} ms",
        "decision": f"every {data.contract.decision_ticks} ticks",
        "dead-man time": f"{data.contract.dead_man_s * 1e3:.0f} ms",
    }
    return facts(values) + table(("term", "mm", "what it covers"), rows, numbers=(1,))


def versions(data: ReportData) -> str:
    """Return versions and hashes."""
    parts = []
    if data.versions:
        parts.append(facts(data.versions))
    if data.hashes:
        rows = [(name, code(value)) for name, value in data.hashes.items()]
        parts.append(table(("what", "hash"), rows))
    return "".join(parts)


def next_steps(data: ReportData) -> str:
    """Return commands for next steps."""
    rows = [(code(command), meaning) for command, meaning in data.next_steps]
    return table(("command", "what for"), rows) if rows else ""


_SECTIONS = (
    ("summary", "Summary", headline),
    ("fleet", "Fleet run", fleet),
    ("shield", "Shield", shield),
    ("training", "Training", training),
    ("evaluation", "Evaluation", evaluation),
    ("parity", "Parity", parity),
    ("reinference", "Re-inference", reinference),
    ("gap", "Gap", gap),
    ("margins", "Margins", margins),
    ("versions", "Versions and hashes", versions),
    ("next", "Next steps", next_steps),
)


def write_html(data: ReportData, path: Path) -> Path:
    """Write the page and return its path.

    Raises:
        TestudoError: the film cannot be read.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(data), encoding="utf-8")
    return path


def page(data: ReportData) -> str:
    """Return the page."""
    sections = [(anchor, title, make(data)) for anchor, title, make in _SECTIONS]
    return document(data.title, data.subtitle, sections, banner=banner(data))


def banner(data: ReportData) -> str:
    """Return the overall verdict; empty without checks."""
    lines = verdicts(data)
    asked = [line for line in lines if line.passed is not None and not line.is_timing]
    if not asked:
        return ""
    good, total = sum(bool(line.passed) for line in asked), len(asked)
    kind, word = ("good", "all passed") if all_passed(lines) else ("bad", f"{total - good} failed")
    count = f"{good} of {total} checks passed"
    return f'<div class="banner {kind}"><strong>{word}</strong>{count}</div>'
