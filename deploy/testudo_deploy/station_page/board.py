"""The newest picture of the fleet, for any number of readers: who does not read holds up nobody."""

import threading
from typing import NamedTuple


class Posted(NamedTuple):
    """One picture."""

    number: int
    text: str


class Board:
    """One place for the newest picture; the writer never waits for a reader, and a slow reader misses pictures."""

    def __init__(self) -> None:
        """Begin without a picture."""
        self._changed = threading.Condition()
        self._posted = Posted(0, "")
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """Return whether there will be no more pictures."""
        return self._is_closed

    def post(self, text: str) -> None:
        """Replace the picture, and wake the readers."""
        with self._changed:
            self._posted = Posted(self._posted.number + 1, text)
            self._changed.notify_all()

    def close(self) -> None:
        """Wake the readers for the last time."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def after(self, number: int, seconds: float) -> Posted | None:
        """Return the newest picture if it comes after one, waiting for some time [s]; None if none came."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._posted.number > number, seconds)
            return self._posted if self._posted.number > number and not self._is_closed else None
