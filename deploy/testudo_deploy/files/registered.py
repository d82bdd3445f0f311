"""What the installed distributions register as entry points; the search reads files of each of them."""

from functools import cache
from importlib import metadata


def entry_points(group: str) -> metadata.EntryPoints:
    """Return the entry points of a group, searched once: what is installed while the process runs is not found."""
    return _all_entry_points().select(group=group)


@cache
def _all_entry_points() -> metadata.EntryPoints:
    return metadata.entry_points()
