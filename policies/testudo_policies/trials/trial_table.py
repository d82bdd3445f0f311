"""The table of trials against the same starts in simulation, with intervals."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from rich.table import Table

from testudo_policies.evaluation.evaluation import EpisodeBatch
from testudo_policies.evaluation.shares import share_interval

_DRAWS = 10_000
_COLUMNS = ("simulation", "fleet", "fleet less simulation")


def comparison(results: Sequence[Mapping[str, Any]], simulated: EpisodeBatch) -> dict[str, Any]:
    """Return the figures of the trials that were scored, and of the same episodes in simulation, JSON-ready.

    Shares have Wilson's 95 % interval, means the percentiles of a bootstrap over trials. The difference of a figure is
    that of the same starts, trial by trial.
    """
    scored = [result for result in results if result["scored"]]
    rows = np.array([result["number"] - 1 for result in scored], int)
    fields: dict[str, tuple[Sequence[float], np.ndarray]] = {
        "success": ([float(result["success"]) for result in scored], simulated.success[rows]),
        "return": ([result["return"] for result in scored], simulated.returns[rows]),
        "time [s]": ([result["time_s"] for result in scored], simulated.duration_s[rows]),
    }
    for name, values in simulated.metrics.items():
        fields[name] = ([result["metrics"].get(name, math.nan) for result in scored], values[rows])
    if not simulated.has_success:
        fields.pop("success")
    return {
        "trials": len(results),
        "scored": len(scored),
        "not_scored": [
            {"number": result["number"], "outcome": result["outcome"], "reasons": result["reasons"]}
            for result in results
            if not result["scored"]
        ],
        "repeated": [
            {"number": result["number"], **tried} for result in results for tried in result.get("earlier", ())
        ],
        "figures": {name: _figure(name, real, sim) for name, (real, sim) in fields.items()},
        "contacts": {
            "simulation": int((simulated.contacts[rows] > 0).sum()),
            "fleet": _with_contact(scored),
        },
        "separation_m": {
            "simulation": float(simulated.separation_m[rows].min()) if scored else None,
            "fleet": min((result["separation_m"] for result in scored if result["separation_m"]), default=None),
        },
    }


def _with_contact(scored: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the number of trials with a contact; None where nothing measures contacts, as with real robots."""
    known = [result["contacts"] for result in scored if result["contacts"] is not None]
    return sum(count > 0 for count in known) if len(known) == len(scored) else None


def _figure(name: str, real: Sequence[float], simulated: np.ndarray) -> dict[str, Any]:
    """Return mean and interval of both, and of their difference by trial; None without a trial."""
    fleet, sim = np.array(real, float), np.asarray(simulated, float)
    interval = _wilson if name == "success" else _bootstrap
    return {"simulation": interval(sim), "fleet": interval(fleet), "difference": _bootstrap(fleet - sim)}


def _wilson(values: np.ndarray) -> dict[str, float] | None:
    if not len(values):
        return None
    low, high = share_interval(int(values.sum()), len(values))
    return {"mean": float(values.mean()), "low": low, "high": high}


def _bootstrap(values: np.ndarray) -> dict[str, float] | None:
    if not len(values) or not np.isfinite(values).all():
        return None
    drawn = np.random.default_rng(0).choice(values, (_DRAWS, len(values))).mean(axis=1)
    low, high = np.percentile(drawn, [2.5, 97.5])
    return {"mean": float(values.mean()), "low": float(low), "high": float(high)}


def trial_table(found: Mapping[str, Any]) -> Table:
    """Return the table of a `comparison`."""
    table = Table("", *_COLUMNS, title=f"{found['scored']} of {found['trials']} trials scored")
    for name, figure in found["figures"].items():
        table.add_row(name.replace("[", "\\["), *(_cell(figure[key]) for key in ("simulation", "fleet", "difference")))
    for name, text in (("trials with a contact", _count), ("least separation \\[m]", _length)):
        values = found["contacts" if text is _count else "separation_m"]
        table.add_row(name, text(values["simulation"]), text(values["fleet"]), "")
    table.caption = "mean (95 % interval: Wilson for success, else bootstrap over trials)"
    return table


def not_scored_lines(found: Mapping[str, Any]) -> list[str]:
    """Return a line for each trial that is not in the table, and for each try that was repeated."""
    said = (("is not counted", found["not_scored"]), ("was tried before", found["repeated"]))
    return [
        f"trial {one['number']} {what}: {one['outcome']}: {'; '.join(one['reasons']) or 'no reason given'}"
        for what, ones in said
        for one in ones
    ]


def _cell(value: Mapping[str, float] | None) -> str:
    return "-" if value is None else f"{value['mean']:.3g} ({value['low']:.3g} to {value['high']:.3g})"


_count: Callable[[Any], str] = lambda value: "not measured" if value is None else str(value)  # noqa: E731
_length: Callable[[Any], str] = lambda value: "-" if value is None else f"{value:.3f}"  # noqa: E731
