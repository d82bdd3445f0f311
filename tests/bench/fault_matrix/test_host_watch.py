"""Stolen processor time is read from the kernel, between two times of the steady clock."""

from importlib.util import find_spec

import pytest

pytestmark = pytest.mark.skipif(find_spec("rclpy") is None, reason="ROS 2 (rclpy) is not installed")

if find_spec("rclpy") is not None:
    from testudo_bench.fault_matrix.harness.relay_observer import HostWatch, stolen_s


def test_stolen_time_of_all_cores_is_read_from_the_kernel():
    assert stolen_s("cpu  8021558 2202586 303452 2434473 6033 0 42285 509878 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n") > 0
    ticks = [stolen_s(f"cpu 1 2 3 4 5 6 7 {steal} 0 0\n") for steal in (100, 300)]
    assert ticks[1] == 3 * ticks[0]
    assert stolen_s("cpu 1 2 3 4\n") == 0


def test_stolen_time_is_the_difference_of_the_enclosing_samples():
    watch = HostWatch.__new__(HostWatch)
    watch._at_s, watch._total_s = [1.0, 1.01, 1.02, 1.03], [5.0, 5.0, 5.02, 5.05]
    assert watch.taken_s(1.0, 1.005) == 0
    assert watch.taken_s(1.015, 1.019) == pytest.approx(0.02)
    assert watch.taken_s(1.015, 9.0) == pytest.approx(0.05)
    assert watch.taken_s(0.0, 0.5) == 0
    watch._at_s, watch._total_s = [], []
    assert watch.taken_s(0.0, 9.0) == 0


def test_sampling_ends_when_closed():
    watch = HostWatch()
    watch.close()
    watch._thread.join(5)
    assert not watch._thread.is_alive()
