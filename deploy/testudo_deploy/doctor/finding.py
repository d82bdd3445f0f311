"""One result of a check: what was found, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Level(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    WARNING = "warning"  # the fleet may drive, but worse than it could, or less safely diagnosed
    FAILED = "failed"  # the fleet does not start, or brakes


@dataclass(frozen=True)
class Finding:
    """Result of one check."""

    check: str  # name of the check, such as `clock`; of a robot `r1 odometry`
    level: Level
    found: str  # one sentence
    remedy: str = ""  # one sentence, with the command where there is one; empty if all is well


def ok(check: str, found: str) -> Finding:
    """Return a finding without a remedy."""
    return Finding(check, Level.OK, found)


def warning(check: str, found: str, remedy: str) -> Finding:
    """Return a finding that does not make the verb fail."""
    return Finding(check, Level.WARNING, found, remedy)


def failed(check: str, found: str, remedy: str) -> Finding:
    """Return a finding that makes the verb fail."""
    return Finding(check, Level.FAILED, found, remedy)


def has_failed(findings: Iterable[Finding]) -> bool:
    """Return whether any check failed."""
    return any(finding.level == Level.FAILED for finding in findings)


def findings_values(findings: Iterable[Finding]) -> dict[str, Any]:
    """Return the findings as JSON values."""
    listed = tuple(findings)
    return {
        "schema": "testudo/doctor/1",
        "failed": has_failed(listed),
        "findings": [
            {"check": one.check, "level": str(one.level), "found": one.found, "remedy": one.remedy} for one in listed
        ],
    }
