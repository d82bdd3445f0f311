"""Late messages of the fault matrix: their caller does not wait, and they come in the order of their times."""

import threading
import time

from testudo_bench.fault_matrix.harness.delayed_calls import DelayedCalls


def test_calls_come_at_their_times_and_none_after_the_end():
    calls, found, done = DelayedCalls(), [], threading.Event()
    begin_s = time.monotonic()
    calls.after(0.06, lambda: (found.append(("late", time.monotonic() - begin_s)), done.set()))
    calls.after(0.02, lambda: found.append(("early", time.monotonic() - begin_s)))
    calls.after(60.0, found.append, "never")
    assert time.monotonic() - begin_s < 0.02 or not found  # its caller does not wait
    assert done.wait(10)
    calls.close()
    assert [name for name, _ in found] == ["early", "late"]
    assert found[0][1] >= 0.02
    assert found[1][1] >= 0.06
    assert not calls._thread.is_alive()
