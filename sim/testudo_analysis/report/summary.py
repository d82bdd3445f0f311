"""Checks of a report, and `summary.json`."""

import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from testudo_analysis.replay.open_loop import OpenLoopGap
from testudo_analysis.report.fleet_summary import FleetSummary, flown_verdicts, summarise_fleet
from testudo_analysis.report.report_data import EvaluationRow, ReportData, ReportVerdict

SCHEMA = "testudo/summary/1"
_SHOWN_HORIZONS_S = (0.5, 2.0)


def verdicts(data: ReportData) -> tuple[ReportVerdict, ...]:
    """Return the rows of the table of checks, for all present sections."""
    found = [*_training(data)]
    for row in data.evaluation:
        found += _evaluation(row)
    if data.parity:
        error, tolerance = data.parity.max_error, data.parity.tolerance
        found.append(ReportVerdict("ONNX against JAX, largest difference", scientific(error),
                             f"≤ {tolerance:g}", error <= tolerance))  # fmt: skip
    if data.fleet:
        found += _fleet(summarise_fleet(data.fleet))
    found += flown_verdicts(data.runs)
    found += _reinference(data)
    if data.gap:
        found += _gap(data.gap)
    if data.wall_s is not None:
        found.append(_timing("the whole job", data.wall_s, data.wall_bar_s))
    return tuple(found)


def all_passed(lines: tuple[ReportVerdict, ...]) -> bool:
    """Return whether no check failed; timings depend on the machine and do not count."""
    return all(line.passed is not False or line.is_timing for line in lines)


def write_summary(data: ReportData, path: Path) -> Path:
    """Write the report's values as JSON and return the path."""
    lines = verdicts(data)
    values: dict[str, Any] = {
        "schema": SCHEMA,
        "title": data.title,
        "passed": all_passed(lines),
        "verdicts": [asdict(line) for line in lines],
        "wall_s": data.wall_s,
    }
    if data.training:
        last = data.training.rows[-1] if data.training.rows else {}
        values["training"] = {
            "seconds": data.training.seconds,
            "compile_s": data.training.compile_s,
            "updates": len(data.training.rows),
            "last": dict(last),
            "facts": dict(data.training.facts),
        }
    if data.evaluation:
        values["evaluation"] = [asdict(row) for row in data.evaluation]
    if data.parity:
        values["parity"] = asdict(data.parity)
    if data.fleet:
        values["fleet"] = summarise_fleet(data.fleet).to_dict()
    if data.runs:
        values["runs"] = [asdict(run) for run in data.runs]
    if data.reinference:
        values["reinference"] = data.reinference.result.to_dict()
        values["altered"] = [item.to_dict() for item in data.reinference.altered]
    if data.gap:
        values["open_loop"] = data.gap.to_dict()
    if data.contract:
        values["contract"] = {
            "contract_hash": data.contract.contract_hash,
            "shield": data.contract.shield.to_dict(),
        }
    values |= {"versions": dict(data.versions), "hashes": dict(data.hashes)}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(_plain(values), indent=2, allow_nan=False) + "\n", encoding="utf-8")
    return path


def scientific(value: float) -> str:
    """Return a small error as text."""
    return "0" if value == 0 else f"{value:.1e}"


def share(value: float, digits: int = 2) -> str:
    """Return a share in per cent, without trailing zeros."""
    shown = f"{100 * value:.{digits}f}"
    return (shown.rstrip("0").rstrip(".") if "." in shown else shown) + " %"


def _training(data: ReportData) -> Iterator[ReportVerdict]:
    if data.training:
        total = data.training.seconds + data.training.compile_s
        yield _timing("training with compilation", total, data.training_bar_s)


def _evaluation(row: EvaluationRow) -> Iterator[ReportVerdict]:
    robots = row.team
    bar = row.success_bar
    yield ReportVerdict(
        f"success, {robots}",
        f"{share(row.success)} ({share(row.success_low)} to {share(row.success_high)})",
        f"≥ {share(bar)}" if bar is not None else "",
        row.success >= bar if bar is not None else None,
    )
    yield ReportVerdict(
        f"contacts, {robots}",
        f"{row.contacts} in {row.episodes:,} episodes",
        "0",
        row.contacts == 0,
    )


def _fleet(summary: FleetSummary) -> Iterator[ReportVerdict]:
    total = len(summary.robots)
    when = "" if summary.arrival_s is None else f" after {summary.arrival_s:.1f} s"
    yield ReportVerdict("robots that arrived, ROS 2 fleet", f"{summary.arrived} of {total}{when}", "all",
                  summary.arrived == total)  # fmt: skip
    if summary.contacts is not None:
        yield ReportVerdict("contacts, ROS 2 fleet", str(summary.contacts), "0", summary.contacts == 0)
    if summary.minimum_separation_m is not None:
        distance = f"{summary.minimum_separation_m:.3f} m"
        yield ReportVerdict("least distance of two robots", distance, "", None)


def _reinference(data: ReportData) -> Iterator[ReportVerdict]:
    if data.reinference is None:
        return
    result, altered = data.reinference.result, data.reinference.altered
    yield ReportVerdict(
        "re-inference, largest deviation",
        f"{scientific(result.error)} over {result.reinferred:,} commands",
        f"≤ {result.tolerance:g}",
        result.passed,
    )
    if altered:
        caught = sum(item.caught for item in altered)
        yield ReportVerdict("changed inputs that re-inference catches", f"{caught} of {len(altered)}",
                      "all", caught == len(altered))  # fmt: skip


def _gap(gap: OpenLoopGap) -> Iterator[ReportVerdict]:
    for horizon in _SHOWN_HORIZONS_S:
        row = gap.find("position", horizon)
        if row:
            errors = row.errors
            value = f"{errors.median * 1e3:.1f} mm median, {errors.p90 * 1e3:.1f} mm p90"
            yield ReportVerdict(f"gap of the training model after {horizon:g} s", value, "", None)


def _timing(name: str, seconds: float, bar_s: float | None) -> ReportVerdict:
    bar = f"≤ {bar_s:g} s" if bar_s is not None else ""
    return ReportVerdict(
        name,
        f"{seconds:.1f} s",
        bar,
        seconds <= bar_s if bar_s is not None else None,
        is_timing=True,
    )


def _plain(value: Any) -> Any:
    """Return ``value`` with None for non-finite numbers, which JSON does not support."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
