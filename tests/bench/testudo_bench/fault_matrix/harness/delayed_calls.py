"""Calls at later times, in one thread that waits for all of them.

A `threading.Timer` for each call blocks its caller until the new thread has run: on a machine with other work the
observer, which has a real-time priority that new threads do not, waited so long that it passed odometry on too late.
"""

import heapq
import itertools
import threading
import time
from collections.abc import Callable
from typing import Any


class DelayedCalls:
    """Calls functions when their time has come, in its own thread, until closed."""

    def __init__(self) -> None:
        """Begin without a call."""
        self._waiting: list[tuple[float, int, Callable[..., Any], tuple[Any, ...]]] = []
        self._numbers = itertools.count()  # of two calls at one time the first one comes first
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def after(self, delay_s: float, function: Callable[..., Any], *arguments: Any) -> None:
        """Call a function after a delay."""
        with self._changed:
            heapq.heappush(self._waiting, (time.monotonic() + delay_s, next(self._numbers), function, arguments))
            self._changed.notify()

    def close(self) -> None:
        """Stop; what has not been called is dropped."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(5)

    def _run(self) -> None:
        while True:
            with self._changed:
                now_s = time.monotonic()
                while not self._closing and (not self._waiting or self._waiting[0][0] > now_s):
                    self._changed.wait(self._waiting[0][0] - now_s if self._waiting else None)
                    now_s = time.monotonic()
                if self._closing:
                    return
                _, _, function, arguments = heapq.heappop(self._waiting)
            function(*arguments)
