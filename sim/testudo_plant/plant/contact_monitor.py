"""Records contacts and separations at every physics step."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from testudo_plant.worlds import Contact


@dataclass(frozen=True)
class ContactEvent:
    """A contact from its first to its last state."""

    time_s: float
    """Start time."""
    first: str
    second: str
    """Another robot, ``wall_x_low`` and the like, or ``floor``."""
    depth_m: float
    """Greatest overlap so far."""
    until_s: float
    """Time of the last overlap."""


@dataclass(frozen=True)
class Separation:
    """The smallest distance of the centres of two robots."""

    distance_m: float
    first: str
    second: str
    time_s: float


class ContactWatch:
    """Records contacts and the smallest separation of each pair of robots."""

    def __init__(self, pair_names: Iterable[tuple[str, str]]) -> None:
        self._pair_names = tuple(pair_names)
        self._closest_m = np.full(len(self._pair_names), math.inf)
        self._closest_s = np.full(len(self._pair_names), math.nan)
        self._open: dict[tuple[str, str], int] = {}
        self._events: list[ContactEvent] = []
        self.states_in_contact = 0

    @property
    def events(self) -> tuple[ContactEvent, ...]:
        """Return all contacts in order of their start."""
        return tuple(self._events)

    @property
    def separations(self) -> tuple[Separation, ...]:
        """Return the smallest separation of each pair, smallest first."""
        found = zip(self._closest_m.tolist(), self._pair_names, self._closest_s.tolist(), strict=True)
        return tuple(Separation(distance, *names, time) for distance, names, time in sorted(found))

    @property
    def minimum_separation_m(self) -> float:
        """Return the smallest distance of the centres of two robots; infinite for a single robot."""
        return float(self._closest_m.min(initial=math.inf))

    def look(self, time_s: float, contacts: tuple[Contact, ...], distances_m: np.ndarray) -> None:
        """Add one state: its contacts and the distances (P,) [m] of the pairs."""
        closer = distances_m < self._closest_m
        if closer.any():
            self._closest_m[closer] = distances_m[closer]
            self._closest_s[closer] = time_s
        if not contacts:
            self._open.clear()
            return
        self.states_in_contact += 1
        still = {}
        for contact in contacts:
            pair = (contact.first, contact.second)
            index = self._open.get(pair)
            if index is None:
                index = len(self._events)
                self._events.append(ContactEvent(time_s, *pair, contact.depth_m, time_s))
            else:
                event = self._events[index]
                self._events[index] = replace(event, depth_m=max(event.depth_m, contact.depth_m), until_s=time_s)
            still[pair] = index
        self._open = still
