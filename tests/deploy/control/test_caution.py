"""A robot whose motion is outside of its file drives slower by its own control loop, records it, and says so."""

import dataclasses

import numpy as np
import pytest
from tests.deploy.fine_motion import nominal
from tests.deploy.lone_drive import Drive

from testudo_deploy.shield.caution import Caution
from testudo_hardware.spec import load_robot


def wandering(drive, seconds, rng):
    """Drive to and fro; yields the records."""
    spec = drive.spec
    for tick in range(round(seconds / spec.control_period_s)):
        if tick % 30 == 0:
            wish = rng.uniform(-1, 1, spec.dimension)
            wish *= 1.5 * spec.control_point_speed_m_s / np.linalg.norm(wish) * (tick % 90 != 60)
        drive.see(0.03)
        yield drive.tick(wish)
        drive.move(spec.control_period_s)


def test_a_lag_beyond_the_interval_slows_the_robot():
    spec, rng = load_robot("gritsbot_x"), np.random.default_rng(0)
    truth = nominal(spec)
    late = dataclasses.replace(truth, lag_s=1.6 * spec.quantities["dynamics.velocity_lag"].high)
    drive = Drive(spec, truth, rng, noise=0.3)
    assert not any(record.caution for record in wandering(drive, 10.0, rng))
    assert drive.loop.warning == ""
    drive.truth = late
    records = list(wandering(drive, 40.0, rng))
    slow = [record for record in records if record.caution]
    assert slow
    assert drive.loop.warning.startswith(("assumption_lag: ", "assumption_delay: "))
    # the actuation monitor may stop it permanently
    assert {record.reason.partition(":")[0] for record in records} <= {"", "no_response"}
    for record in slow:
        most_m_s, more_m = record.caution
        assert more_m > 0
        assert most_m_s <= spec.control_point_speed_m_s / 2
        assert np.linalg.norm(record.shielded_world) <= most_m_s + 1e-9
        assert np.linalg.norm(record.nominal_world) > spec.control_point_speed_m_s or not any(record.nominal_world)


@pytest.mark.parametrize("name", ["gritsbot_x", "crazyflie_2x"])
def test_more_distance_and_less_speed_reach_the_shield(name):
    """The same tick with and without caution, in the open and beside a wall."""
    spec = load_robot(name)
    found = []
    for caution in (None, Caution(0.3 * spec.control_point_speed_m_s, 0.05)):
        drive = Drive(spec, nominal(spec), np.random.default_rng(1), noise=0.0)
        drive.loop.motion.assumptions._conclude = lambda: None
        drive.loop.motion.assumptions._found = caution
        wish = np.zeros(spec.dimension)
        wish[0] = spec.control_point_speed_m_s
        for _ in range(10):
            drive.see(0.03)
            record = drive.tick(wish)
            drive.move(spec.control_period_s)
        found.append(record)
    free, careful = found
    assert free.caution == ()
    assert careful.caution == pytest.approx((0.3 * spec.control_point_speed_m_s, 0.05))
    assert np.linalg.norm(free.shielded_world) > 0.9 * spec.control_point_speed_m_s
    assert np.linalg.norm(careful.shielded_world) == pytest.approx(0.3 * spec.control_point_speed_m_s, rel=1e-6)
    assert np.linalg.norm(careful.sent_command) < np.linalg.norm(free.sent_command)
