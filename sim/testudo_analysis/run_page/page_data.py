"""Contents of a run page as frozen data, and as JSON for the scripts in it.

All series of a page share one grid of times, so that scene, plots and events have one cursor.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import StrEnum
from typing import Any

import numpy as np

SCHEMA = "testudo/page/1"
CANNOT_TELL = "cannot be told"
"""Words of a claim that is within the error of poses or model."""

_GAP = -32768
_LARGEST = 32767


class Severity(StrEnum):
    """How bad something is, the worst first."""

    BAD = "bad"  # it happened: a contact, a failed check, a margin that does not cover the run
    DOUBT = "doubt"  # it may have happened, or it came near
    NOTE = "note"  # worth knowing
    GOOD = "good"

    @property
    def rank(self) -> int:
        """Return the place in the order, 0 for the worst."""
        return list(Severity).index(self)


@dataclass(frozen=True)
class PageClock:
    """The grid of times of all series: ``count`` (K) times, ``step_s`` apart, since the start of the run."""

    begin_s: float
    step_s: float
    count: int

    @property
    def times_s(self) -> np.ndarray:
        """Return the times (K,) [s]."""
        return self.begin_s + self.step_s * np.arange(self.count)


@dataclass(frozen=True)
class Finding:
    """One cause or claim, with what limits its certainty and the command that examines or corrects it."""

    severity: Severity
    what: str  # one sentence
    doubt: str = ""  # the error of poses or model beside the claim; empty where it does not matter
    cause: str = ""  # likely cause, in one sentence
    command: str = ""
    purpose: str = ""  # of the command
    at_s: float | None = None  # moment to look at
    moments: tuple[float, ...] = ()  # all moments of the same kind [s]


@dataclass(frozen=True)
class PageEvent:
    """One incident on the timeline; times in seconds since the start of the run."""

    number: int  # as `testudo incident` counts
    moment: int  # events of one moment have one number
    severity: Severity
    kind: str
    robots: tuple[str, ...]
    begin_s: float
    end_s: float
    at_s: float  # of the worst value
    weight: float  # place in the order of severity, 0 for the worst
    what: str
    cause: str
    doubt: str
    command: str


@dataclass(frozen=True)
class PlotLine:
    """One line of a row."""

    name: str
    values: np.ndarray = field(repr=False)  # (K,) on the clock; NaN where unknown
    faint: bool = False  # drawn behind, as a comparison


@dataclass(frozen=True)
class PlotRow:
    """One robot in a plot."""

    robot: str
    lines: tuple[PlotLine, ...]


@dataclass(frozen=True)
class PlotLimit:
    """A horizontal line in every row of a plot."""

    name: str
    value: float
    severity: Severity


@dataclass(frozen=True)
class TimePlot:
    """One quantity over time, with one row for each robot and the same axis in each."""

    name: str
    unit: str
    about: str  # one sentence
    rows: tuple[PlotRow, ...]
    limits: tuple[PlotLimit, ...] = ()


@dataclass(frozen=True)
class PageBody:
    """A robot or a box in the scene."""

    name: str
    kind: str  # ground, drone or box
    colour: str  # hexadecimal
    size_m: tuple[float, ...]  # (radius, height); of boxes (length, width, height)
    error_m: float  # bound of the pose error; 0 for true poses of a plant
    poses: np.ndarray = field(repr=False)  # (K, 7): x, y, z [m], quaternion x, y, z, w; NaN where not seen
    model: np.ndarray | None = field(default=None, repr=False)  # (K, 7) predicted by the model; None without
    goal_world: tuple[float, ...] | None = None  # (3,) [m]


@dataclass(frozen=True)
class PageScene:
    """The bodies, and the walls and obstacles around them."""

    bodies: tuple[PageBody, ...]
    low_world: tuple[float, ...]  # (3,) [m]
    high_world: tuple[float, ...]  # (3,) [m]
    focus_world: tuple[tuple[float, ...], tuple[float, ...]]  # low and high corner (3,) [m] of motion and goals
    walls: bool  # the bounds are walls, and not only the space of the motion
    obstacles: tuple[Mapping[str, Any], ...] = ()
    flies: bool = False


@dataclass(frozen=True)
class Curve:
    """One line of a chart."""

    name: str
    x: tuple[float, ...]
    y: tuple[float | None, ...]
    low: tuple[float | None, ...] = ()  # band; empty without
    high: tuple[float | None, ...] = ()
    style: str = "solid"  # solid, dashed, faint


@dataclass(frozen=True)
class ChartPanel:
    """One axes of a chart."""

    title: str
    x_label: str
    y_label: str
    curves: tuple[Curve, ...]
    about: str = ""
    logarithmic_x: bool = False
    share: bool = False  # y is a share: 0 to 1, shown in per cent
    note: str = ""  # words inside, such as why there is no curve


@dataclass(frozen=True)
class HeatMap:
    """A quantity over two others."""

    title: str
    x_label: str
    y_label: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]  # by row, then column
    unit: str


@dataclass(frozen=True)
class PageSection:
    """A part of the page below the timeline; its markup refers to charts by their names."""

    anchor: str
    title: str
    markup: str
    charts: Mapping[str, tuple[ChartPanel | HeatMap, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class RunPage:
    """All contents of a page."""

    title: str
    subtitle: str
    severity: Severity
    verdict: str  # a few words
    detail: str  # one sentence below it
    findings: tuple[Finding, ...] = ()
    clock: PageClock | None = None
    scene: PageScene | None = None
    plots: tuple[TimePlot, ...] = ()
    events: tuple[PageEvent, ...] = ()
    sections: tuple[PageSection, ...] = ()
    searched: bool = True  # incidents were searched for

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values; series are packed, see `packed`, and the sections keep their charts only."""
        values = {item.name: plain(getattr(self, item.name)) for item in fields(self) if item.name != "sections"}
        charts = {name: plain(panels) for section in self.sections for name, panels in section.charts.items()}
        return {"schema": SCHEMA, **values, "charts": charts}


def packed(values: np.ndarray) -> dict[str, Any]:
    """Return an array (K, ...) as whole numbers of 16 bit: value = low + step * number, by column; -32768 is none."""
    table = np.asarray(values, dtype=float).reshape(len(values), -1)
    known = np.isfinite(table)
    low = np.where(known, table, np.inf).min(axis=0, initial=np.inf)
    high = np.where(known, table, -np.inf).max(axis=0, initial=-np.inf)
    low, high = (np.where(np.isfinite(end), end, 0.0) for end in (low, high))
    step = np.maximum((high - low) / (2.0 * _LARGEST), 1e-9)
    middle = (low + high) / 2
    whole = np.rint((np.where(known, table, middle) - middle) / step)
    numbers = np.where(known, whole, _GAP).astype("<i2")
    return {
        "columns": table.shape[1],
        "middle": middle.tolist(),
        "step": step.tolist(),
        "numbers": base64.b64encode(numbers.tobytes()).decode(),
    }


def plain(value: Any) -> Any:
    """Return JSON-ready values; numbers that are not finite become None, arrays are packed."""
    if isinstance(value, np.ndarray):
        found = packed(value)
    elif is_dataclass(value) and not isinstance(value, type):
        found = {item.name: plain(getattr(value, item.name)) for item in fields(value)}
    elif isinstance(value, Mapping):
        found = {str(key): plain(item) for key, item in value.items()}
    elif isinstance(value, list | tuple):
        found = [plain(item) for item in value]
    elif isinstance(value, float | np.floating):
        found = float(f"{value:.7g}") if np.isfinite(value) else None
    else:
        found = str(value) if isinstance(value, Severity) else value
    return found
