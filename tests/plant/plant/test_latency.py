"""The time from odometry to actuator, by hand-made times."""

import pytest

from testudo_plant.plant.odometry_sensor import LatencyMeter


def test_a_command_counts_from_the_odometry_that_began_its_tick():
    meter = LatencyMeter(warm_up_s=0.0)
    for now_s in (1.0, 1.02, 1.04):
        meter.odometry(now_s)
    meter.command(stamp_s=1.021, received_s=1.026)  # the newest before its stamp is that of 1.02
    meter.command(stamp_s=1.019, received_s=1.03)  # a tick that began alone
    meter.command(stamp_s=0.5, received_s=1.03)  # before any odometry
    found = meter.summary()
    assert found["commands"] == 2
    assert found["worst_s"] == pytest.approx(0.03)
    assert found["p50_s"] == pytest.approx(0.018)


def test_what_comes_while_warming_up_does_not_count():
    meter = LatencyMeter(warm_up_s=10.0)
    for k in range(300):
        meter.odometry(0.05 * k)
        meter.command(0.05 * k + 0.001, 0.05 * k + 0.002)
    assert meter.summary()["commands"] == 300 - 200
    assert LatencyMeter(1.0).summary() == {"commands": 0}
