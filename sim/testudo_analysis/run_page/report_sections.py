"""Training, evaluation, export and re-inference as sections of the page."""

from testudo_analysis.report.fleet_summary import COLUMNS, FleetSummary, RobotSummary, flown_row, summarise_fleet
from testudo_analysis.report.report_data import EvaluationRow, ReportData
from testudo_analysis.report.summary import scientific, share, verdicts
from testudo_analysis.run_page.html_markup import Html, code, details, facts, paragraph, pill, table
from testudo_analysis.run_page.page_data import Finding, PageSection, Severity
from testudo_analysis.run_page.training_curves import training_markup, training_panels


def headline(data: ReportData) -> str:
    """Return the table of verdicts; a missed time limit is no failure, because it depends on the machine."""
    late = Html('<span class="pill warn">slower here</span>')
    rows = [
        (v.name, v.value, v.bar, late if v.is_timing and v.passed is False else pill(v.passed)) for v in verdicts(data)
    ]
    return table(("what", "measured", "required", ""), rows) if rows else ""


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
    """Return the fleet run by robot, with what the shield did, and the table of several runs."""
    if data.fleet is None:
        return ""
    summary = summarise_fleet(data.fleet)
    rows = []
    for robot in summary.robots:
        braked = sum(robot.braked.values())
        why = ", ".join(f"{reason} {count}" for reason, count in robot.braked.items())
        counts = (robot.ticks - robot.projected - braked, robot.projected, braked)
        rows.append((*_robot_row(robot), *(share(count / robot.ticks, 1) for count in counts), why or None))
    columns = ("robot", "arrived", "way", "ticks", "late at most", "tick p50", "tick p99", "passed", "projected",
               "braked", "ticks braked, by reason")  # fmt: skip
    parts = [facts(_fleet_facts(summary)), table(columns, rows, numbers=range(1, 10))]
    if len(data.runs) > 1:
        parts.append(
            paragraph(
                f"{len(data.runs)} runs, each from another start with another plant; the first is that of this page. "
                "Distances are the least of a run."
            )
        )
        parts.append(table(COLUMNS, [flown_row(run) for run in data.runs], numbers=range(2, len(COLUMNS))))
    return "".join(parts)


def _fleet_facts(summary: FleetSummary) -> dict[str, object]:
    separation = summary.minimum_separation_m
    return {
        "arrived": f"{summary.arrived} of {len(summary.robots)}",
        "last arrival": None if summary.arrival_s is None else f"{summary.arrival_s:.1f} s",
        "contacts": summary.contacts,
        "least distance": None if separation is None else f"{separation:.3f} m",
        "between": " and ".join(summary.closest) or None,
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


def report_sections(data: ReportData) -> list[PageSection]:
    """Return the sections that have contents."""
    curves = [] if data.training is None else training_panels(data.training.rows)
    sections = [
        PageSection("checks", "Checks", headline(data)),
        PageSection("fleet", "Fleet run", fleet(data)),
        PageSection("training", "Training", training_markup(data.training), {"training": tuple(curves)}),
        PageSection("evaluation", "Evaluation", evaluation(data)),
        PageSection("reinference", "Re-inference", reinference(data)),
        PageSection("parity", "Parity of the exported file", parity(data)),
        PageSection("terms", "Terms of the shield's margins", margins(data)),
        PageSection("versions", "Versions and hashes", versions(data)),
        PageSection("next", "Next steps", next_steps(data)),
    ]
    return [section for section in sections if section.markup]


def report_findings(data: ReportData) -> list[Finding]:
    """Return the checks that failed, those that depend on the machine as notes, and the number of those that passed."""
    lines = verdicts(data)
    asked = [line for line in lines if line.passed is not None]
    found = [
        Finding(
            Severity.NOTE if line.is_timing else Severity.BAD,
            f"{'Slower here' if line.is_timing else 'Check failed'}: {line.name}: {line.value}, required {line.bar}",
        )
        for line in asked
        if not line.passed
    ]
    good = sum(bool(line.passed) for line in asked)
    if asked:
        found.append(Finding(Severity.GOOD, f"{good} of {len(asked)} checks passed"))
    return found
