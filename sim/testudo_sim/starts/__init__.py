"""Start-state distributions: moments of real runs that training, evaluation and tests begin from."""

from testudo_sim.starts.start_distribution import (
    StartDistribution,
    StartPerturbation,
    StartSample,
    StartsError,
    StartsSource,
)
from testudo_sim.starts.start_file import STARTS_SCHEMA, load_starts, parse_starts, save_starts, starts_text

__all__ = [
    "STARTS_SCHEMA",
    "StartDistribution",
    "StartPerturbation",
    "StartSample",
    "StartsError",
    "StartsSource",
    "load_starts",
    "parse_starts",
    "save_starts",
    "starts_text",
]
