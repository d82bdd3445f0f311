"""Picture of a study."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from testudo_analysis.report.plot_style import BAD, FAINT, GOOD, INK, WARN, PlotImage, drawing, picture
from testudo_policies.evaluation.factors import HELD_OUT, IN, OUT
from testudo_policies.evaluation.scores import Estimate
from testudo_policies.evaluation.study import Place, Study

_COLOURS = {IN: GOOD, HELD_OUT: WARN, OUT: BAD}
_MARKS = "os"


def study_picture(study: Study) -> PlotImage:
    """Return a picture of the cells: interquartile means and intervals, coloured by class."""
    labels = [f"{place.cell.name}{f', layers {layers}' * (len(study.layers) > 1)}" for layers, _, place in _rows(study)]
    with drawing(8.5, 1.4 + 0.32 * len(labels)) as figure:
        axes = figure.subplots()
        for row, (layers, at, place) in enumerate(_rows(study)):
            for index, group in enumerate(study.groups):
                found = study.estimates[group.label, layers]
                _draw(axes, row + 0.18 * index, found.cells[at], _COLOURS[place.cell.distribution], _MARKS[index])
            if place.by_hand is not None:
                axes.plot(study.score.of(place.by_hand), row, "|", color=FAINT, markersize=11)
        for index, group in enumerate(study.groups):
            axes.plot([], [], _MARKS[index], color=INK, label=group.label)
        present = [name for name in _COLOURS if any(place.cell.distribution == name for place in study.places)]
        for name in present:
            axes.plot([], [], color=_COLOURS[name], linewidth=4, label=name)
        if study.places[0].by_hand is not None:
            axes.plot([], [], "|", color=FAINT, markersize=11, label="hand-written")
        axes.set_yticks(np.arange(len(labels)), labels)
        axes.invert_yaxis()
        axes.set(xlabel=f"{study.score.text}: interquartile mean over runs, 95 % interval")
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
        return picture(figure, f"{study.score.name} by cell")


def _rows(study: Study) -> Sequence[tuple[str, int, Place]]:
    return [(layers, at, place) for layers in study.layers for at, place in enumerate(study.places_of(layers))]


def _draw(axes: Any, row: float, found: Estimate, colour: str, mark: str) -> None:
    axes.plot([found.low, found.high], [row, row], color=colour)
    axes.plot(found.value, row, mark, color=colour, markersize=5)
