"""What a browser may ask of the station, read strictly; pure."""

import json
import math
from dataclasses import dataclass
from typing import Any

from testudo_hardware.errors import TestudoError
from testudo_hardware.strict_files import is_list, is_table

RELEASE, GOAL, HOME = "release", "goal", "home"
ROBOT_VERBS = ("arm", "start", "rearm", "pause")
VERBS = (RELEASE, *ROBOT_VERBS, GOAL, HOME)
"""The emergency stop is none of them: it has an address of its own and no content that could be refused."""
MOST_BYTES = 4096
_KEYS = {"verb", "robots", "place"}


class PageRequestError(TestudoError):
    """A request is refused; nothing was done."""


@dataclass(frozen=True)
class PageRequest:
    """A request to robots; `release` is for the whole fleet."""

    verb: str
    robots: tuple[str, ...] = ()
    place_world: tuple[float, float] | None = None  # of a goal, seen from above [m]


def read_request(data: bytes, robots: tuple[str, ...], *, orders: bool) -> PageRequest:
    """Read a request from JSON.

    Args:
        data: an object with `verb`, `robots` and, of a goal, `place`.
        robots: the names of the fleet's robots.
        orders: the fleet takes goals.

    Raises:
        PageRequestError: anything is wrong with it.
    """
    found = _object(data)
    verb, names = found.get("verb"), found.get("robots", [])
    unknown = sorted(set(found) - _KEYS)
    if unknown:
        raise PageRequestError(f"{unknown[0]}: not a key of a request; known are {', '.join(sorted(_KEYS))}")
    if verb not in VERBS:
        raise PageRequestError(f"verb: found {verb!r}, expected one of {', '.join(VERBS)}")
    if verb == RELEASE:
        return PageRequest(RELEASE)
    if not is_list(names) or not names or not all(name in robots for name in names):
        raise PageRequestError(f"robots: found {names!r}, expected some of {', '.join(robots)}")
    if len(set(names)) != len(names):
        raise PageRequestError(f"robots: found {names!r}, expected each once")
    if verb in (GOAL, HOME) and not orders:
        raise PageRequestError("this fleet takes no goals: its file needs `orders: true`")
    return PageRequest(verb, tuple(names), _place(found.get("place"), names) if verb == GOAL else None)


def _object(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise PageRequestError("a request is a JSON object; this is no JSON") from error
    if not is_table(found):
        raise PageRequestError("a request is a JSON object")
    return dict(found)


def _place(place: Any, names: list[str]) -> tuple[float, float]:
    if len(names) != 1:
        raise PageRequestError(f"robots: found {len(names)} with a place, expected one")
    numbers = [value for value in place if type(value) in (int, float)] if is_list(place) else []
    try:
        x, y = map(float, numbers)
    except (ValueError, OverflowError):
        x = y = math.nan
    if place != numbers or not math.isfinite(x + y):
        raise PageRequestError("place: expected two numbers [m]")
    return x, y
