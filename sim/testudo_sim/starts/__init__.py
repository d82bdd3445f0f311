"""Start-state distributions: moments of real runs that training, evaluation and tests begin from."""

from testudo_sim.starts.file import STARTS_SCHEMA, load_starts, parse_starts, save_starts, starts_text
from testudo_sim.starts.types import Spread, Start, Starts, StartsError, StartsSource

__all__ = [
    "STARTS_SCHEMA",
    "Spread",
    "Start",
    "Starts",
    "StartsError",
    "StartsSource",
    "load_starts",
    "parse_starts",
    "save_starts",
    "starts_text",
]
