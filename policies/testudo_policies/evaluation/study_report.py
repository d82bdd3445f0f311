"""Report of a study: tables for the terminal, and values for JSON."""

from dataclasses import asdict
from typing import Any

from rich.table import Table

from testudo_policies.evaluation.evaluation import Evaluation
from testudo_policies.evaluation.factors import OUT, Cell
from testudo_policies.evaluation.scores import SUCCESS, Aggregates, Estimate
from testudo_policies.evaluation.study import Place, Study

_FEW = 3


def tables(study: Study) -> list[Table]:
    """Return the table of cells, where factors are declared, and that of the aggregates for each set of layers."""
    declared = any(place.cell.levels for place in study.places)
    return [*([_cells(study)] if declared else []), *(_aggregates(study, layers) for layers in study.layers)]


def notes(study: Study) -> list[str]:
    """Return what a reader of the tables must know."""
    runs = min(len(group.runs) for group in study.groups)
    found = [f"Score: {study.score.text}. IQM: interquartile mean over runs and cells."]
    if runs == 1:
        found.append("One run tells nothing of other seeds: intervals over runs need several, as of `--seeds 5`.")
    else:
        found.append("Intervals: 95 %, bootstrap over the runs of each cell (rliable).")
    if 1 < runs <= _FEW:
        found.append(f"{runs} runs are few: their intervals are too narrow.")
    if not study.score.has_optimum:
        found.append(
            f"No optimality gap: the optimum of {study.score.name} is not known; --score NAME:LOW:HIGH sets it."
        )
    return found


def to_dict(study: Study) -> dict[str, Any]:
    """Return JSON-ready values."""
    return {
        "score": asdict(study.score),
        "groups": {group.label: list(group.runs) for group in study.groups},
        "cells": [_cell_values(study, layers, at) for layers in study.layers for at in _range(study, layers)],
        "aggregates": [_class_values(study, layers, name) for layers in study.layers for name in study.classes(layers)],
        "evaluations": [
            {"levels": _levels(place.cell), "group": label, **found.to_dict()}
            for place in study.places
            for label, found in _evaluations(place)
        ],
    }


def _evaluations(place: Place) -> list[tuple[str, Evaluation]]:
    """Return the evaluations of a place with their groups; the hand-written velocities are of none."""
    found = [(label, one) for label, runs in place.found.items() for one in runs.values()]
    return [*found, *([("", place.by_hand)] if place.by_hand else [])]


def _levels(cell: Cell) -> dict[str, str]:
    return {level.factor: level.text for level in cell.levels}


def _range(study: Study, layers: str) -> range:
    return range(len(study.places_of(layers)))


def _cell_values(study: Study, layers: str, at: int) -> dict[str, Any]:
    place = study.places_of(layers)[at]
    estimates = {group.label: study.estimates[group.label, layers] for group in study.groups}
    return {
        "levels": _levels(place.cell),
        "distribution": place.cell.distribution,
        "untrained": list(place.cell.untrained),
        "layers": layers,
        "iqm": {label: found.cells[at].to_dict(has_interval=found.has_interval) for label, found in estimates.items()},
        "hand_written": None if place.by_hand is None else study.score.of(place.by_hand),
        "episodes_with_contact": sum(one.episodes_with_contact for one in place.evaluations),
    }


def _class_values(study: Study, layers: str, name: str) -> dict[str, Any]:
    def values(found: Aggregates) -> dict[str, Any]:
        parts = {"iqm": found.iqm, "optimality_gap": found.optimality_gap, "mean": found.mean}
        if not study.score.has_optimum:
            parts.pop("optimality_gap")
        return {key: part[name].to_dict(has_interval=found.has_interval) for key, part in parts.items()}

    better = study.better.get(layers)
    return {
        "layers": layers,
        "cells": name,
        "groups": {group.label: values(study.estimates[group.label, layers]) for group in study.groups},
        "probability_of_improvement": better[name].to_dict() if better else None,
    }


def _cells(study: Study) -> Table:
    several = len(study.layers) > 1
    factors = [level.factor for level in study.places[0].cell.levels]
    by_hand = study.places[0].by_hand is not None
    heads = [*factors, "distribution", *(["layers"] if several else [])]
    heads += [f"{group.label}: {study.score.name}" for group in study.groups]
    heads += [*(["hand-written"] if by_hand else []), "episodes with a contact"]
    table = Table(*heads, title=f"{study.task}: cells")
    for layers in study.layers:
        for at, place in enumerate(study.places_of(layers)):
            cell = place.cell
            kind = f"out: {', '.join(cell.untrained)}" if cell.distribution == OUT else cell.distribution
            row = [*(level.text for level in cell.levels), kind, *([layers] if several else [])]
            row += [_cell_text(study, place, group.label, at) for group in study.groups]
            row += [f"{study.score.of(place.by_hand):.3f}"] if place.by_hand else []
            table.add_row(*row, str(sum(one.episodes_with_contact for one in place.evaluations)))
    return table


def _cell_text(study: Study, place: Place, label: str, at: int) -> str:
    found = study.estimates[label, place.layers]
    if found.has_interval:
        return _text(found.cells[at])
    only = next(iter(place.found[label].values()))
    if study.score.name == SUCCESS:  # of its episodes
        return _text(Estimate(only.success, only.success_low, only.success_high))
    return f"{found.cells[at].value:.3f}"


def _aggregates(study: Study, layers: str) -> Table:
    classes = study.classes(layers)
    shown = f", layers {layers}" if len(study.layers) > 1 else ""
    table = Table(
        "", *(f"{name} (cells: {mask.sum()})" for name, mask in classes.items()), title=f"{study.score.name}{shown}"
    )
    for group in study.groups:
        found = study.estimates[group.label, layers]
        parts = {"IQM": found.iqm, "optimality gap": found.optimality_gap, "mean": found.mean}
        for name, part in parts.items():
            if name != "optimality gap" or study.score.has_optimum:
                texts = [_text(part[one]) if found.has_interval else f"{part[one].value:.3f}" for one in classes]
                table.add_row(f"{group.label}: {name}", *texts)
    better = study.better.get(layers)
    if better:
        first, second = (group.label for group in study.groups)
        table.add_row(f"probability that {first} is better than {second}", *(_text(better[name]) for name in classes))
    return table


def _text(found: Estimate) -> str:
    return f"{found.value:.3f} ({found.low:.3f} to {found.high:.3f})"
