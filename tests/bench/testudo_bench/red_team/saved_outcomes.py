"""Outcomes of episodes in a file, so that a campaign of many hours goes on where it was stopped."""

import json
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any

import testudo_bench.red_team
import testudo_deploy
import testudo_hardware
from testudo_bench.red_team.episode import EpisodeOutcome
from testudo_deploy.files.atomic_files import write_whole
from testudo_deploy.files.package_hash import package_hash
from testudo_hardware.errors import TestudoError

_SOURCES = (testudo_deploy, testudo_hardware, testudo_bench.red_team)


@dataclass(frozen=True)
class Arm:
    """One row with its defences, or its control, in one tier."""

    name: str
    mujoco: bool
    control: bool


@dataclass
class Outcomes:
    """Outcomes of each arm, in the order of their episodes."""

    robot: str
    arms: dict[Arm, list[EpisodeOutcome]] = field(default_factory=dict)
    sources: dict[str, int] = field(default_factory=dict)
    """Episodes that ran with each state of the sources, by the begin of its hash."""

    def add(self, arm: Arm, outcomes: list[EpisodeOutcome], source: str) -> None:
        """Take further outcomes of an arm."""
        self.arms.setdefault(arm, []).extend(outcomes)
        self.sources[source] = self.sources.get(source, 0) + len(outcomes)

    def episodes(self) -> int:
        """Return the number of episodes of all arms."""
        return sum(map(len, self.arms.values()))

    def values(self) -> dict[str, Any]:
        """Return what a file keeps, JSON-ready."""
        arms = [
            {**vars(arm), "outcomes": [list(astuple(outcome)) for outcome in outcomes]}
            for arm, outcomes in self.arms.items()
        ]
        return {"robot": self.robot, "sources": self.sources, "arms": arms}

    def write(self, path: Path | None) -> None:
        """Write the file whole, if there is to be one."""
        if path is not None:
            write_whole(path, json.dumps(self.values()) + "\n")


def read_outcomes(path: Path | None, robot: str) -> Outcomes:
    """Return the outcomes of a file; none without a file.

    Raises:
        TestudoError: it is no file of the red team, or one of another robot.
    """
    if path is None or not path.exists():
        return Outcomes(robot)
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        found = Outcomes(values["robot"], sources=dict(values["sources"]))
        for one in values["arms"]:
            arm = Arm(one["name"], one["mujoco"], one["control"])
            found.arms[arm] = [EpisodeOutcome(*outcome) for outcome in one["outcomes"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TestudoError(f"--json {path}: is no output of `testudo bench redteam`; give another file") from error
    if found.robot != robot:
        raise TestudoError(f"--json {path}: found episodes of {found.robot}, expected those of {robot}")
    return found


def source_hash() -> str:
    """Return the begin of a hash of the attacked code and of the attacks."""
    return package_hash(_SOURCES)
