"""Robots swap places over DDS while the network delays and loses their messages."""

from importlib.util import find_spec

import pytest

from testudo_hardware.errors import TestudoError

pytestmark = [
    pytest.mark.ros,
    pytest.mark.skipif(find_spec("rclpy") is None, reason="ROS 2 (rclpy) is not installed"),
    pytest.mark.timeout(240),
]

if find_spec("rclpy") is not None:
    from testudo_bench.fault_matrix.harness.network_emulation import Network
    from testudo_bench.fault_matrix.lossy_network_runs import UNSHIELDED, bench_lossy, drive

SECONDS = 20.0


@pytest.mark.slow
def test_no_contact_with_late_and_lost_messages():
    found = drive(Network(100.0, 0.3), 2, seed=1, limit_s=SECONDS)
    assert not found["contacts"]
    assert 0.25 < found["lost"] / found["messages"] < 0.35
    assert found["longest_delay_s"] >= 0.1
    # by echo: what is known of a peer has come through the network once in each direction
    assert found["peer_age_p50_s"] > 0.2


@pytest.mark.slow
def test_without_the_shield_the_same_robots_have_contacts():
    assert drive(Network(100.0, 0.3), 2, seed=1, limit_s=SECONDS, module=UNSHIELDED)["contacts"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delay_ms": -1.0}, "--delay-ms: found -1"),
        ({"loss": 30.0}, "--loss: found 30, expected a share"),
        ({"team_size": 1}, "--team-size: found 1"),
    ],
)
def test_invalid_network_options_are_refused(options, message):
    with pytest.raises(TestudoError, match=message):
        bench_lossy(**options)
