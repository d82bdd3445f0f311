"""The residual motion of a robot file: parsed whole or refused, and sampled with its variance and correlation."""

import copy
import tomllib

import jax.numpy as jnp
import numpy as np
import pytest

from testudo_hardware.motion.motion_noise import (
    MotionNoise,
    NoiseChannel,
    integral_deviation_s,
    integral_tangent_s,
    measured_pose,
    sampled_path,
)
from testudo_hardware.spec import SpecError, load_robot, parse_robot, robot_files

PERIOD_S, STEPS, DRAWS = 0.05, 40, 20_000


def section(*channels):
    """Return a [motion_noise] with numbers that are all different."""
    named = {
        f"{channel}_{name}": (0.01 * (k + 1) + more, unit)
        for k, channel in enumerate(channels)
        for name, more, unit in (
            ("deviation", 0.001, "rad/s" if channel == "turn" else "m/s"),
            ("share", 0.002, "1"),
            ("timing", 0.003, "s"),
            ("correlation", 0.3, "s"),
        )
    }
    named |= {"pose_position": (0.003, "m"), "pose_yaw": (0.004, "rad")}
    return {key: {"value": value, "unit": unit, "source": "test"} for key, (value, unit) in named.items()}


def tables_of(name, *channels):
    return copy.deepcopy(tomllib.loads(robot_files()[name].read_text())) | {"motion_noise": section(*channels)}


def test_a_robot_file_without_the_section_has_no_process():
    assert MotionNoise.from_spec(load_robot("gritsbot_x")) is None


@pytest.mark.parametrize(
    ("robot", "channels"),
    [("gritsbot_x", ("along", "across", "turn")), ("crazyflie_2x", ("along", "across", "up", "turn"))],
)
def test_every_number_of_the_section_arrives_and_a_missing_one_is_refused(robot, channels):
    tables = tables_of(robot, *channels)
    spec = parse_robot(tables, "mine.toml")
    noise = MotionNoise.from_spec(spec)
    found = [number for each in noise.channels for number in vars(each).values()]
    found += [noise.pose_position_m, noise.pose_yaw_rad]
    assert found == [entry["value"] for entry in tables["motion_noise"].values()]
    assert spec.sha256 != load_robot(robot).sha256  # the shield's margins contain it
    assert parse_robot(spec.to_dict(), "contract").sha256 == spec.sha256
    del tables["motion_noise"]["turn_share"]
    with pytest.raises(SpecError, match=r"mine\.toml: motion_noise\.turn_share: missing"):
        parse_robot(tables, "mine.toml")


def test_the_integral_has_the_deviation_of_many_sampled_ones():
    correlation_s, time_s = 0.3, PERIOD_S * STEPS
    process = np.random.default_rng(0).standard_normal(DRAWS)
    kept, total = np.exp(-PERIOD_S / correlation_s), np.zeros(DRAWS)
    for normal in np.random.default_rng(1).standard_normal((STEPS, DRAWS)):
        after = kept * process + np.sqrt(1 - kept**2) * normal
        total, process = total + PERIOD_S * (process + after) / 2, after
    assert integral_deviation_s(time_s, correlation_s) == pytest.approx(total.std(), rel=0.02)
    # both forms of the formula meet where one takes over from the other
    assert integral_deviation_s(0.99e-3, 1.0) == pytest.approx(0.99e-3, rel=1e-3)
    assert integral_deviation_s(1.01e-3, 1.0) == pytest.approx(1.01e-3, rel=1e-3)


@pytest.mark.parametrize("correlation_s", [0.05, 1.0, 1000.0])
def test_the_tangent_is_never_exceeded_and_touches(correlation_s):
    start_s, slope = integral_tangent_s(0.5, correlation_s)
    assert start_s + 0.5 * slope == pytest.approx(integral_deviation_s(0.5, correlation_s))
    assert start_s >= 0
    for time_s in np.geomspace(1e-3, 100.0, 60):
        assert integral_deviation_s(time_s, correlation_s) <= (start_s + slope * time_s) * (1 + 1e-9)


def test_a_ground_robot_has_no_vertical_noise():
    with pytest.raises(SpecError, match=r"motion_noise\.up_.*unknown key"):
        parse_robot(tables_of("gritsbot_x", "along", "across", "up", "turn"), "mine.toml")


@pytest.mark.parametrize("xp", [np, jnp])
def test_sampled_displacements_have_the_variance_of_the_process_in_numpy_and_jax(xp):
    noise = MotionNoise(
        (NoiseChannel(0.01, 0.4, 0.0, 0.5), NoiseChannel(0.01, 0.0, 0.3, 5.0), NoiseChannel(0.0, 0.0, 9.0, 0.2)),
        0.002,
        0.01,
        True,
    )
    normal = xp.asarray(np.random.default_rng(0).standard_normal((3, STEPS, DRAWS)))
    velocity = xp.asarray(np.broadcast_to(np.array([0.1, 0.0])[:, None, None], (2, STEPS + 1, 1)))
    position, yaw = sampled_path(noise, velocity, xp.asarray(np.array(0.5)), normal, PERIOD_S)
    position, yaw = np.asarray(position), np.asarray(yaw)
    time_s = PERIOD_S * STEPS
    ahead = np.array([np.cos(0.5), np.sin(0.5)]) @ position[:, -1]
    left = np.array([-np.sin(0.5), np.cos(0.5)]) @ position[:, -1]
    assert np.isclose(ahead.mean(), 0.1 * time_s, rtol=0.02)
    for found, deviation, tau in ((ahead, 0.05, 0.5), (left, 0.01, 5.0)):  # 0.05: 0.01 at rest and 0.04 at 0.1 m/s
        variance = 2 * deviation**2 * tau**2 * (time_s / tau - 1 + np.exp(-time_s / tau))
        assert np.isclose(found.var(), variance, rtol=0.05)
    assert np.all(yaw == yaw[0, 0])  # nothing turns it
    seen, heading = measured_pose(noise, position[:, -1], yaw[-1], np.asarray(normal)[:, 1])
    assert np.isclose((seen - position[:, -1]).std(), 0.002, rtol=0.05)
    assert np.isclose((heading - yaw[-1]).std(), 0.01, rtol=0.05)
    brakes = velocity * xp.asarray(np.linspace(1.0, 0.0, STEPS + 1))[:, None]  # 0.05 m/s^2: 0.015 m/s across
    braked, _ = sampled_path(noise, brakes, xp.asarray(np.array(0.0)), normal, PERIOD_S)
    assert np.isclose(np.asarray(braked)[1, -1].var() / variance, 2.5**2, rtol=0.05)
    still, _ = sampled_path(noise.silent(), velocity, xp.asarray(np.array(0.5)), normal, PERIOD_S)
    assert np.asarray(still)[:, -1].std(axis=-1).max() < 1e-6
