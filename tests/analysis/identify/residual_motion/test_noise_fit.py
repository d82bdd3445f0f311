"""A residual motion that is put into runs is found again: its bands hold new motions, and fail without it."""

import numpy as np
import pytest

from testudo_analysis.identify.residual_motion.noise_fit import fit_noise, pose_noise
from testudo_analysis.identify.residual_motion.rate_windows import RateWindows, integrals
from testudo_analysis.identify.residual_motion.sampled_futures import bands, inside, without_noise
from testudo_hardware.motion.motion_noise import MotionNoise, NoiseChannel, measured_pose, sampled_path
from testudo_hardware.spec import load_robot
from testudo_runs.alignment import Trajectory

SPEC = load_robot("irobot_create")
STEP_S, STRETCHES, LENGTH = 0.02, 240, 350
HORIZONS = (25, 50, 100)  # steps
TRUTH = MotionNoise(
    (NoiseChannel(0.003, 0.0, 0.12, 0.5), NoiseChannel(0.002, 0.02, 0.0, 0.5), NoiseChannel(0.02, 0.1, 0.06, 0.2)),
    2e-4,
    1e-3,
    True,
)


@pytest.fixture(scope="module")
def windows():
    """Return windows of a robot with steps of speed and turn rate whose residual motion is `TRUTH`."""
    rng = np.random.default_rng(5)
    asked = np.repeat(rng.choice([0.0, 0.0, 1.0, -1.0], (STRETCHES, 2, LENGTH // 35)), 35, axis=2) * [[0.07], [0.3]]
    velocity = np.zeros((STRETCHES, 2, LENGTH + 1))
    for k in range(LENGTH):
        velocity[..., k + 1] = velocity[..., k] + STEP_S / 0.15 * (asked[..., k] - velocity[..., k])
    drawn = [(rng.standard_normal((3, LENGTH)), rng.standard_normal((3, LENGTH + 1))) for _ in range(STRETCHES)]
    normal = np.stack([motion for motion, _ in drawn], axis=-1)  # all stretches at once, as many robots
    true, plain = (
        sampled_path(noise, np.moveaxis(velocity, 0, -1), np.zeros(STRETCHES), normal, STEP_S)
        for noise in (TRUTH, TRUTH.silent())
    )
    rows = []
    for k, (_, error) in enumerate(drawn):
        seen = measured_pose(TRUTH, true[0][..., k], true[1][:, k], error)
        for h, steps in enumerate(HORIZONS):
            start = np.arange(50, 240, 19)
            found, told = (moved(*path, start, start + steps) for path in (seen, (plain[0][..., k], plain[1][:, k])))
            rows += [(k, s, s + steps, h, *(told - found)[:, i], *told[:2, i]) for i, s in enumerate(start)]
    columns = np.array(rows).T
    stretch, first, last, horizon = columns[:4].astype(int)
    way = np.hypot(*columns[7:9])
    slope = np.zeros((0, 3, len(rows)))
    return RateWindows(
        velocity, STEP_S, stretch, first, last, horizon, columns[4:7], slope, way, np.zeros(len(rows), int)
    )


def moved(position, yaw, first, last):
    way, heading = position[:, last] - position[:, first], yaw[first]
    cos, sin = np.cos(heading), np.sin(heading)
    return np.stack([cos * way[0] + sin * way[1], cos * way[1] - sin * way[0], yaw[last] - yaw[first]])


def test_bands_hold_motions_that_were_not_fitted_and_without_the_process_they_do_not(windows):
    train = np.arange(STRETCHES) < STRETCHES // 2
    none = np.zeros(0)
    noise = fit_noise(windows.of_stretches(train), SPEC, none, (TRUTH.pose_position_m, TRUTH.pose_yaw_rad))
    new = windows.of_stretches(~train)
    held = inside(bands(noise, new, none, 100), new)
    control = inside(bands(without_noise(noise), new, none, 50), new)
    for h in range(len(HORIZONS)):
        at = new.horizon == h
        assert (np.abs(held[:, at].mean(axis=1) - 0.95) < 0.03).all(), held[:, at].mean(axis=1)
        assert (control[:, at].mean(axis=1) < 0.75).all()


def test_the_variance_of_a_window_is_that_of_the_integrated_process(windows):
    """A constant part has the closed form of an Ornstein-Uhlenbeck process; parts that start within a window add up."""
    few = windows.of_stretches(np.arange(STRETCHES) < 2)
    parts = np.ones((3, STRETCHES, LENGTH))
    parts[1, :, :100], parts[2, :, 100:] = 0.0, 0.0
    found, time_s, tau = integrals(few, parts, 0.4), few.duration_s, 0.4
    assert np.allclose(found[0, 0], 2 * tau**2 * (time_s / tau - 1 + np.exp(-time_s / tau)), rtol=0.01)
    assert np.allclose(found[1, 1] + found[2, 2] + 2 * found[1, 2], found[0, 0], rtol=0.02)


def test_the_error_of_a_measured_pose_is_seen_beside_the_motion():
    rng, stamps = np.random.default_rng(0), np.arange(0, 20, 0.02)
    way = np.stack([0.3 * stamps, np.sin(stamps)], axis=1) + 0.002 * rng.standard_normal((len(stamps), 2))
    yaw = 0.5 * stamps + 0.01 * rng.standard_normal(len(stamps))
    track = Trajectory(stamps, way, yaw, 0 * way, np.ones(len(stamps), bool), 0.1)
    position_m, yaw_rad = pose_noise([track])
    assert np.isclose(position_m, 0.002, rtol=0.1)
    assert np.isclose(yaw_rad, 0.01, rtol=0.1)
