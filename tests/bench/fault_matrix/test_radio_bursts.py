"""Drones swap places over ROS 2 in lock-step while their radio is lost in bursts."""

from importlib.util import find_spec

import pytest

from testudo_hardware.errors import TestudoError

pytestmark = [
    pytest.mark.ros,
    pytest.mark.skipif(find_spec("rclpy") is None, reason="ROS 2 (rclpy) is not installed"),
    pytest.mark.timeout(300),
]

if find_spec("rclpy") is not None:
    from testudo_bench.fault_matrix.lossy_network_runs import SHIELDED, UNSHIELDED, bench_lossy
    from testudo_bench.fault_matrix.radio_bursts import drive

BURSTS = {"burst_s": 0.1, "every_s": 0.5}


@pytest.mark.slow
def test_no_contact_in_bursts_of_100_ms():
    found = drive("crazyflie_2x", 2, BURSTS, SHIELDED, seed=1, limit_s=8.0)
    assert not found["contacts"]
    assert found["radio"]["bursts"] > 5
    assert 0.05 < found["radio"]["lost"] / found["radio"]["sent"] < 0.3
    assert found["separation_m"] < 1.5  # they met


@pytest.mark.slow
def test_without_the_shield_the_same_drones_have_contacts():
    assert drive("crazyflie_2x", 2, BURSTS, UNSHIELDED, seed=1, limit_s=8.0)["contacts"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"radio_burst_ms": -5.0}, "--radio-burst-ms: found -5"),
        ({"radio_burst_ms": 100.0, "radio_every_s": 0.0}, "--radio-every-s: found 0"),
        ({"radio_burst_ms": 100.0, "robot": "gritsbot_x"}, "--robot: found gritsbot_x, expected a drone"),
        ({"robot": "crazyflie_2x"}, "--robot: found crazyflie_2x, expected it together with --radio-burst-ms"),
    ],
)
def test_invalid_radio_options_are_refused(options, message):
    with pytest.raises(TestudoError, match=message):
        bench_lossy(**options)
