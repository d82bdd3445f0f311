"""Coverage of a dataset: how many of its pairs of state and action differ from each other.

Off-the-Grid MARL (Formanek et al., 2023, and "Dispelling the Mirage of Progress in Offline MARL", 2024): SACo is the
number of unique pairs of state and joint action over the number of transitions, with numbers rounded to four decimals;
OACo is that of pairs of an agent's observation and action, the mean over agents. Measured states hardly ever repeat to
four decimals, so that both are near 1 for any run of real robots; the same shares with one decimal, of metres and
metres per second, tell runs apart.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

FINE, COARSE = 4, 1  # decimals


def coverage(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Return the coverage of the arrays of a dataset, JSON-ready; transitions that are not valid are left out."""
    valid = arrays["infos/valid"]
    whole = valid.all(axis=1)
    state, joint = arrays["infos/state"][whole], arrays["actions"][whole]
    found: dict[str, Any] = {"transitions": int(whole.sum())}
    for name, decimals in (("", FINE), ("_coarse", COARSE)):
        counts = repeats(state, joint, decimals)
        found[f"SACo{name}"] = _share(counts)
        agents = [
            _share(repeats(arrays["observations"][valid[:, i], i], arrays["actions"][valid[:, i], i], decimals))
            for i in range(valid.shape[1])
        ]
        known = [share for share in agents if share is not None]
        found[f"OACo{name}"] = float(np.mean(known)) if known else None
        # for the plot on logarithmic axes: how many pairs occur once, twice, ...
        times, pairs = np.unique(counts, return_counts=True)
        found[f"pairs_by_count{name}"] = {str(time): int(number) for time, number in zip(times, pairs, strict=True)}
    return found


def repeats(state: np.ndarray, action: np.ndarray, decimals: int) -> np.ndarray:
    """Return how often each unique pair of state (T, ...) and action (T, ...) occurs, rounded."""
    if not len(state):
        return np.zeros(0, int)
    rows = np.concatenate([part.reshape(len(part), -1).astype(float) for part in (state, action)], axis=1)
    rounded = np.round(rows, decimals) + 0.0  # -0 is 0
    return np.unique(rounded, axis=0, return_counts=True)[1]


def _share(counts: np.ndarray) -> float | None:
    return len(counts) / int(counts.sum()) if len(counts) else None
