"""Options and output that the modes of `testudo replay` share."""

from collections.abc import Sequence
from dataclasses import dataclass
from json import dumps
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console


@dataclass(frozen=True)
class CounterfactualOptions:
    """Options of counterfactual replay."""

    start: Annotated[tuple[float, ...], tyro.conf.arg(name="from")] = ()
    """Counterfactual: start times [s since the start of the run]."""
    commands: bool = False
    """Counterfactual: use the recorded commands, as for imported runs, instead of a policy."""
    shield: bool = True
    """Counterfactual: with and without the shield; `--no-shield` only without it."""
    horizon: float = 10.0
    """Counterfactual: simulated time [s]."""
    draws: int = 16
    """Counterfactual: worlds for each start time; the first has the robot file's dynamics, others random ones."""
    seed: int = 0
    """Counterfactual: seed of dynamics, noise and losses."""
    robot: str = ""
    """Counterfactual and open-loop: robot or robot file, for imported runs without one."""


def show_warnings(warnings: Sequence[str], console: Console) -> None:
    """Print the warnings of a run."""
    for warning in warnings:
        console.print(f"[yellow]warning:[/] {warning}", highlight=False)


def write_results(file: Path | None, results: dict[str, Any], console: Console) -> None:
    """Write the results as JSON, if a file was asked for."""
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(dumps(results, indent=2, allow_nan=False) + "\n", encoding="utf-8")
        console.print(f"written: {file}", highlight=False)
