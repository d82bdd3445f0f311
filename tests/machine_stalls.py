"""A pytest plugin for tests in real time: one that failed while the machine stalled runs again.

A test whose nodes got no processor for a while says nothing about the code. `make test` repeats a test only for
`MachineStallError`, so that a test that fails on a machine that kept time fails at once. A stall is seen by a thread
that sleeps: it wakes late.
"""

import contextlib
import threading
import time

import pytest

PERIOD_S = 0.02
STALL_S = 0.1
"""Lateness that counts as a stall [s]: the shortest time-out that the tests' fleets brake for."""


class MachineStallError(Exception):
    """A test failed, and the machine stalled while it ran."""


class StallWatch:
    """A thread that keeps the longest lateness of its own sleep [s]."""

    def __init__(self):
        self.worst_s = 0.0
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self):
        due_s = time.monotonic() + PERIOD_S
        while True:
            time.sleep(max(0.0, due_s - time.monotonic()))
            now_s = time.monotonic()
            self.worst_s = max(self.worst_s, now_s - due_s)
            due_s = now_s + PERIOD_S

    @contextlib.contextmanager
    def blamed(self):
        """Raise `MachineStallError` from an error of the body if the machine stalled meanwhile."""
        self.worst_s = 0.0
        try:
            yield
        except (Exception, pytest.fail.Exception) as error:
            time.sleep(2 * PERIOD_S)  # a stall that has just ended is counted too
            if self.worst_s < STALL_S:
                raise
            raise MachineStallError(f"the machine stood still for {self.worst_s:.2f} s") from error


_WATCH = StallWatch()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    """Start the fixtures, which start fleets too, under the watch."""
    with _WATCH.blamed():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Run a test under the watch."""
    with _WATCH.blamed():
        return (yield)
