"""Builds the page of a recorded run, and that of an episode, from what is known of them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from testudo_analysis.gap.gap_analysis import TypeReplay
from testudo_analysis.gap.gap_report import GapReport
from testudo_analysis.gap.presentation.replayed_course import ReplayedCourse, courses
from testudo_analysis.incident.incident import Incident, IncidentThresholds
from testudo_analysis.incident.incident_replay import IncidentReplay
from testudo_analysis.rendering.animation import Animation
from testudo_analysis.report.report_data import ReportData
from testudo_analysis.run_page.gap_sections import gap_findings, gap_sections
from testudo_analysis.run_page.incident_sections import incident_sections
from testudo_analysis.run_page.page_data import Finding, PageSection, RunPage, Severity, TimePlot
from testudo_analysis.run_page.report_sections import report_findings, report_sections
from testudo_analysis.run_page.run_events import incident_findings, run_events
from testudo_analysis.run_page.scene_data import animation_scene, recorded_clock, recorded_scene
from testudo_analysis.run_page.time_plots import model_errors, moved_speeds, recorded_speeds, scene_plots, tick_plots
from testudo_runs.alignment import TeamRecording


@dataclass(frozen=True)
class RunContents:
    """What is known of a recorded run; every part but the recording may be missing."""

    recording: TeamRecording
    incidents: tuple[Incident, ...] = ()
    bounds: IncidentThresholds | None = None
    aftermaths: tuple[IncidentReplay, ...] = ()
    gap: GapReport | None = None
    replays: tuple[TypeReplay, ...] = ()
    report: ReportData | None = None  # training, evaluation, export and re-inference
    notes: tuple[str, ...] = ()  # parts that could not be made, and why: the run is then not judged as fine


def run_page(contents: RunContents, title: str = "") -> RunPage:
    """Return the page of a recorded run."""
    recording, clock = contents.recording, recorded_clock(contents.recording)
    scene = recorded_scene(recording, clock, replayed_courses(contents.replays))
    near_m = contents.bounds.near_m if contents.bounds else None
    plots = [*scene_plots(scene, near_m), recorded_speeds(recording, clock)]
    findings = incident_findings(recording, contents.incidents)
    sections: list[PageSection] = []
    if contents.gap is not None:
        errors = model_errors(contents.gap, contents.replays, clock)
        plots += [] if errors is None else [errors]
        findings += gap_findings(contents.gap)
    plots += tick_plots(recording, clock)
    sections += incident_sections(contents.aftermaths)
    if contents.gap is not None:
        sections += gap_sections(contents.gap)
    if contents.report is not None:
        findings += report_findings(contents.report)
        sections += report_sections(contents.report)
    damage = Severity.NOTE if recording.source.complete else Severity.DOUBT
    findings += [Finding(damage, warning) for warning in recording.warnings]
    findings += [Finding(Severity.DOUBT, f"not judged: {note}") for note in contents.notes]
    findings += [Finding(Severity.NOTE, "the run was not compared with the model")] * (contents.gap is None)
    name = "/".join(recording.folder.resolve().parts[-2:])
    kinds = ", ".join(dict.fromkeys(robot.spec.name for robot in recording.robots))
    subtitle = (
        f"{len(recording.robots)} {kinds}, {clock.times_s[-1] - clock.begin_s:.1f} s: {', '.join(recording.names)}"
    )
    return judged(
        RunPage(
            title or f"Run {name}",
            subtitle,
            Severity.GOOD,
            "",
            "",
            tuple(findings),
            clock,
            scene,
            tuple(plots),
            run_events(recording, contents.incidents),
            tuple(sections),
            searched=contents.bounds is not None,
        )
    )


def episode_page(animation: Animation) -> RunPage:
    """Return the page of an animation: the scene and what its poses give."""
    clock, scene = animation_scene(animation)
    plots: list[TimePlot] = [*scene_plots(scene), moved_speeds(clock, scene)]
    subtitle = f"{len(animation.scenery.specs)} robots, {animation.trajectory.duration_s:.1f} s"
    detail = "Only the motion is shown here. testudo evaluate judges episodes, testudo report judges recorded runs."
    shown = clock, scene, tuple(plots)
    return RunPage(animation.title, subtitle, Severity.NOTE, "not judged", detail, (), *shown, searched=False)


def replayed_courses(replays: Sequence[TypeReplay]) -> dict[str, ReplayedCourse]:
    """Return the courses of the best model by robot; none of drones whose motors were replayed."""
    found = {}
    for replay in replays:
        if not replay.flown:
            best = list(replay.models.values())[-1]
            found |= {course.robot: course for course in courses([out.robot for out in replay.outs], best)}
    return found


def judged(page: RunPage) -> RunPage:
    """Return the page with its findings in the order of severity, and the verdict that follows from them."""
    findings = tuple(sorted(page.findings, key=lambda finding: finding.severity.rank))
    counts = {kind: sum(finding.severity is kind for finding in findings) for kind in Severity}
    bad, doubt = counts[Severity.BAD], counts[Severity.DOUBT]
    if bad:
        severity, verdict = Severity.BAD, f"{bad} fault{'s' * (bad > 1)}"
        detail = "Something went wrong, or a bound of the robot file does not cover this run. The worst is first."
    elif doubt:
        severity, verdict = Severity.DOUBT, f"{doubt} matter{'s' * (doubt > 1)} to look at"
        detail = "Nothing certainly went wrong; these came near, or cannot be told from this recording."
    elif page.events or findings:
        severity, verdict = Severity.GOOD, "no fault found"
        detail = "Nothing of what this page looks for went wrong. Notes are below."
    else:
        severity, verdict = Severity.GOOD, "no fault found"
        detail = "Nothing of what this page looks for went wrong."
    return replace(page, severity=severity, verdict=verdict, detail=detail, findings=findings)
