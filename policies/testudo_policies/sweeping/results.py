"""Results of a sweep: the table of its trials, its plots, and the best configuration."""

import warnings
from pathlib import Path
from typing import Any

from rich.table import Table

from testudo_policies.learning.checkpoints import write_config
from testudo_policies.sweeping.declaration import Sweep, best_trials, counted_trials, optuna_library, run_of
from testudo_policies.sweeping.search_space import with_values
from testudo_policies.sweeping.worker import shown
from testudo_policies.train_config import TrainConfig

BEST = "best.json"
_ROWS = 10
_PLOTS = ("optimization_history", "intermediate_values", "param_importances", "parallel_coordinate", "slice")


def table(study: Any, sweep: Sweep) -> Table:
    """Return the table of the best trials; its title says how many were finished, pruned, failed, or are left."""
    counts = ", ".join(f"{count} {name}" for name, count in state_counts(study).items() if count)
    names = [one.name for one in sweep.dimensions]
    made = Table("trial", sweep.objective, *names, "run", title=f"best trials ({counts})")
    for trial in best_trials(study)[:_ROWS]:
        values = (shown(trial.params[name]) for name in names)
        made.add_row(str(trial.number), f"{trial.value:.4g}", *values, run_of(trial))
    return made


def state_counts(study: Any) -> dict[str, int]:
    """Return the number of trials by state; those that were stopped are counted once, where they go on."""
    states = optuna_library().trial.TrialState
    names = {states.COMPLETE: "finished", states.PRUNED: "pruned", states.RUNNING: "stopped", states.FAIL: "failed"}
    found = dict.fromkeys(names.values(), 0)
    for trial in counted_trials(study):
        found[names[trial.state]] += 1
    return found


def best_configuration(study: Any, sweep: Sweep) -> TrainConfig | None:
    """Return the configuration of the best trial; None without a finished one."""
    best = best_trials(study)
    return with_values(sweep.config, best[0].params) if best else None


def write_results(folder: Path, study: Any, sweep: Sweep) -> list[Path]:
    """Write the best configuration and the plots; return the files, without plots that the trials do not give yet."""
    best = best_configuration(study, sweep)
    if best is None:
        return []
    write_config(folder / BEST, best)
    return [folder / BEST, *_plots(folder / "plots", study)]


def _plots(folder: Path, study: Any) -> list[Path]:
    import matplotlib as mpl  # noqa: PLC0415 -- slow to import

    mpl.use("Agg")
    visualization: Any = optuna_library().visualization.matplotlib
    folder.mkdir(exist_ok=True)
    written = []
    for name in _PLOTS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its pictures are experimental
            axes = _drawn(getattr(visualization, f"plot_{name}"), study)
        if axes is None:
            continue
        figure = getattr(axes, "figure", None) or axes.flat[0].figure
        path = folder / f"{name}.png"
        figure.set_size_inches(10, 6)
        figure.savefig(path, dpi=120, bbox_inches="tight")
        written.append(path)
    import matplotlib.pyplot as plt  # noqa: PLC0415 -- slow to import

    plt.close("all")
    return written


def _drawn(plot: Any, study: Any) -> Any:
    """Return the axes of a plot; None where the trials are too few or too alike for it."""
    try:
        return plot(study)
    except (ValueError, RuntimeError):
        return None
