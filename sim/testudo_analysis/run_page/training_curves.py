"""Learning curves, with words on what each figure counts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from testudo_analysis.report.report_data import TrainingSection
from testudo_analysis.run_page.html_markup import chart, facts, paragraph
from testudo_analysis.run_page.page_data import ChartPanel, Curve

_SMOOTH_SHARE = 0.04  # width of the moving average, as a share of all updates
_MOST_POINTS = 400
_X = "decisions of a team"


@dataclass(frozen=True)
class _Curve:
    key: str
    title: str
    unit: str
    about: str


_CURVES = (
    _Curve(
        "train/success",
        "Success",
        "share",
        "Of the episodes that ended within the newest full length of an episode. Nothing before one such length is "
        "over: until then only short, that is easy, episodes have ended. Until the second one is over some failures "
        "are still missing.",
    ),
    _Curve(
        "train/episode_length", "Length of an episode", "decisions", "Mean of the same episodes; falls as they succeed."
    ),
    _Curve("train/return", "Return", "sum of rewards", "Of a robot, mean over the team and the same episodes."),
    _Curve(
        "train/difficulty", "Difficulty", "share", "Below 100 % the curriculum makes episodes easier than the task."
    ),
    _Curve("shield/intervention_rate", "The shield acts", "share", "Of the control ticks, in all worlds."),
    _Curve("train/contacts", "Contacts", "pairs and ticks", "In an update, over all worlds."),
)


def training_markup(section: TrainingSection | None) -> str:
    """Return configuration, explanation and the place of the curves; empty without a training."""
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
    note = (
        "Thin: each update. Thick: mean of neighbouring updates. Actions are drawn at random during training, so the "
        "evaluation, which takes the most probable one, is usually better than the end of these curves."
    )
    return facts(values) + paragraph(note) + "".join(map(paragraph, warnings_of(section.rows))) + chart("training")


def warnings_of(rows: Sequence[Mapping[str, float]]) -> list[str]:
    """Return what makes the curve of success misleading in this log."""
    known = [row for row in rows if "train/success" in row]
    if not known:
        return []
    if not any("train/episode_length" in row for row in rows):
        words = (
            "This log counts the episodes that ended in each single update. At first only easy episodes end, because "
            "those that succeed end early: ignore the success before one full length of an episode."
        )
        return [words]
    return []


def training_panels(rows: Sequence[Mapping[str, float]]) -> list[ChartPanel]:
    """Return the panels of `metrics.jsonl`; none without known figures."""
    panels = []
    for curve in _CURVES:
        used = [row for row in rows if curve.key in row]
        if len(used) < 2:
            continue
        y = np.array([row[curve.key] for row in used], float)
        x = np.array([row.get("decisions", k) for k, row in enumerate(used)], float)
        begin = float(rows[0].get("decisions", 0.0))
        panels.append(_panel(curve, x, y, begin))
    return panels


def _panel(curve: _Curve, x: np.ndarray, y: np.ndarray, begin: float) -> ChartPanel:
    stride = max(1, -(-len(x) // _MOST_POINTS))
    thin, mean = y[::stride], _smoothed(y)[::stride]
    # an empty first point keeps the time without a figure in the picture
    times = (begin, *x[::stride].tolist())
    is_share = curve.unit == "share"
    curves = (
        Curve("each update", times, (None, *thin.tolist()), style="faint"),
        Curve("mean of neighbouring updates", times, (None, *mean.tolist())),
    )
    note = "none" if not np.any(y) else ""
    return ChartPanel(curve.title, _X, curve.unit, curves, curve.about, share=is_share, note=note)


def _smoothed(values: np.ndarray) -> np.ndarray:
    """Return the moving average, with a shorter window at the ends."""
    half = int(_SMOOTH_SHARE * len(values) / 2)
    total = np.concatenate([[0.0], np.cumsum(values)])
    index = np.arange(len(values))
    first, end = np.maximum(index - half, 0), np.minimum(index + half + 1, len(values))
    return (total[end] - total[first]) / (end - first)
