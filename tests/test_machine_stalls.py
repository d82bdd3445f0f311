"""The rule by which a test in real time runs again."""

import pytest
from tests.machine_stalls import STALL_S, MachineStallError, StallWatch


def run(late_s, end):
    """Run a test that ends in a way, on a machine that wakes late."""
    watch = StallWatch()
    with watch.blamed():
        watch.worst_s = late_s
        end()


def disagree():
    assert 1 + 1 == 3


def test_a_failure_on_a_machine_that_keeps_time_is_the_tests_own():
    with pytest.raises(AssertionError):
        run(0.0, disagree)


def test_a_failure_during_a_stall_is_blamed_on_the_machine():
    with pytest.raises(MachineStallError, match="stood still") as blamed:
        run(2 * STALL_S, disagree)
    assert isinstance(blamed.value.__cause__, AssertionError)
    with pytest.raises(MachineStallError):
        run(2 * STALL_S, pytest.fail)


def test_a_test_that_passes_or_is_skipped_stays_so():
    run(2 * STALL_S, lambda: None)
    with pytest.raises(pytest.skip.Exception):
        run(2 * STALL_S, pytest.skip)
