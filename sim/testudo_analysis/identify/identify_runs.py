"""Identification from several runs: one identification per robot, and one of all that covers the population."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from testudo_analysis.identify.drone.identify_drone import DroneSettings, can_identify, identify_drone
from testudo_analysis.identify.estimation.identification_result import HALF, RUNS, Identification
from testudo_analysis.identify.identify_run import align, choose, facts_of, identify_ground, usable
from testudo_hardware.errors import TestudoError
from testudo_hardware.schema import VELOCITY_POINT
from testudo_hardware.spec import RobotSpec, load_robot
from testudo_runs.alignment import AlignedRobot, TeamRecording
from testudo_runs.progress_bar import Steps, Tell, quiet
from testudo_runs.recording.recording import RobotRecording

FLEET = "fleet"
"""Name of the file for all robots of the type."""


@dataclass(frozen=True)
class RunsIdentification:
    """The identifications of some runs."""

    source: str  # registered robot or robot file that they start from
    fleet: Identification  # of all robots: its intervals cover every robot in every run
    robots: Mapping[str, Identification]  # by name, each from its own data in all runs


@dataclass(frozen=True)
class _Unit:
    """One robot in one run."""

    run: str
    robot: RobotRecording
    team: TeamRecording


def identify_runs(
    teams: Mapping[str, TeamRecording], *, robots: Sequence[str] = (), tell: Tell = quiet
) -> RunsIdentification:
    """Return the identifications of all robots of one type in runs, by name of the run.

    Each of several runs is held out in turn, with all its robots; of a single run the second half. ``robots`` are
    names, by default all of the type; ``tell`` gets the current step and the completed fraction.

    Raises:
        TestudoError: no such robot, no type or several, or too little motion.
    """
    units, sources = [], []
    for run, team in teams.items():
        known = tuple(name for name in robots if name in team.source.robots)
        if robots and not known:
            continue
        chosen, source = choose(team.source, known, team.robot_type)
        sources.append(source)
        units += [_Unit(run, robot, team) for robot in (chosen if robots else usable(chosen)[0])]
    if not units:
        raise TestudoError(f"--robot: found {', '.join(robots)}, expected robots of the runs {', '.join(teams)}")
    if len(set(sources)) > 1:
        raise TestudoError(f"identify: found robots of the types {', '.join(sorted(set(sources)))}, expected one type")
    spec = load_robot(sources[0])
    if spec.kind == VELOCITY_POINT and all(can_identify(unit.robot) for unit in units):
        fit = _Flights(spec)
    else:
        fit = _Driven(spec, _aligned(units, tell))
    names = tuple(dict.fromkeys(unit.robot.name for unit in units))
    if FLEET in names:
        raise TestudoError(f"identify: found a robot called {FLEET}, expected another name: fleet.toml is of all")
    steps = Steps(tell, {FLEET: 2.0 * len(names)} | dict.fromkeys(names, 1.0))
    found = {}
    for name in (FLEET, *names):
        steps.begin(name)
        own = [unit for unit in units if name in (FLEET, unit.robot.name)]
        found[name] = fit.identified(own, RUNS if len({unit.run for unit in own}) > 1 else HALF)
    return RunsIdentification(sources[0], found.pop(FLEET), found)


def _aligned(units: Sequence[_Unit], tell: Tell) -> dict[tuple[str, str], AlignedRobot]:
    """Return the aligned robots by run and name; in several runs they are named after both."""
    tell("aligning", 0.0)
    found = {}
    for unit in units:
        (robot,) = align(unit.team, [unit.robot])
        found[unit.run, unit.robot.name] = replace(robot, name=f"{unit.run}/{robot.name}")
    return found


@dataclass(frozen=True)
class _Driven:
    """Fits of robots that follow velocities."""

    spec: RobotSpec
    aligned: Mapping[tuple[str, str], AlignedRobot]

    def identified(self, units: Sequence[_Unit], split: str) -> Identification:
        robots = [self.aligned[unit.run, unit.robot.name] for unit in units]
        runs = [unit.run for unit in units]
        return identify_ground(
            robots, self.spec, _facts(units), hold_out=(RUNS,) if split == RUNS else (HALF,), runs=runs
        )


@dataclass(frozen=True)
class _Flights:
    """Fits of drones to their motor signals."""

    spec: RobotSpec

    def identified(self, units: Sequence[_Unit], split: str) -> Identification:
        runs = {unit.run: unit.team.source for unit in units}
        recordings = [
            replace(source, robots={unit.robot.name: unit.robot for unit in units if unit.run == run})
            for run, source in runs.items()
        ]
        found = identify_drone(recordings, self.spec, settings=DroneSettings(hold_out=(split,)))
        return replace(found, facts=_facts(units) | dict(found.facts))


def _facts(units: Sequence[_Unit]) -> dict[str, Any]:
    """Return the provenance of some robots in some runs; what differs between the runs is listed."""
    runs = {unit.run: unit for unit in units}
    facts = [facts_of(unit.team.source, [own.robot for own in units if own.run == run]) for run, unit in runs.items()]
    names = ", ".join(dict.fromkeys(unit.robot.name for unit in units))
    return {
        "run": ", ".join(runs),
        "run_sha256": ", ".join(fact["run_sha256"] for fact in facts),
        "recorded": ", ".join(dict.fromkeys(fact["recorded"] for fact in facts if fact["recorded"])),
        "version": facts[0]["version"],
        "fitted": names,
        "duration_s": sum(fact["duration_s"] for fact in facts),
        "complete": all(fact["complete"] for fact in facts),
    }
