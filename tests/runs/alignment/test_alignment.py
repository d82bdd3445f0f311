"""Alignment: each step undoes what was done to a motion that is known."""

import numpy as np
import pytest

from testudo_runs.alignment import (
    Smoother,
    clock_fit,
    heading,
    on_recorder_clock,
    response_latency,
    smooth_velocity,
    tidy,
)
from testudo_runs.recording.recording import RecordingError, Series


def wander(times):
    """Return a signal (T, 2) with power up to about 1 Hz."""
    return np.stack([np.sin(2.1 * times) + np.sin(5.3 * times + 1), np.cos(1.3 * times) * np.sin(3.1 * times)], axis=1)


def test_samples_are_put_in_order_and_counted():
    stamps = np.array([0.0, 0.1, 0.1, 0.3, 0.2, 0.4, np.nan, 1.5, 1.6])
    values = np.arange(9.0)[:, None]
    clean, report = tidy(Series(stamps, values, stamps + 0.01))
    assert clean.stamp_s.tolist() == [0.0, 0.1, 0.2, 0.3, 0.4, 1.5, 1.6]
    assert clean.values[:, 0].tolist() == [0.0, 1.0, 4.0, 3.0, 5.0, 7.0, 8.0]
    assert (report.backward, report.duplicate, report.not_finite, report.kept) == (1, 1, 1, 7)
    assert report.gaps == ((0.4, 1.5),)
    assert np.isclose(report.missing_s, 1.1)
    again, nothing = tidy(clean)
    assert np.array_equal(again.stamp_s, clean.stamp_s)
    assert nothing.backward == nothing.duplicate == 0


def test_an_empty_series_and_one_sample_are_tidy():
    for count in (0, 1):
        clean, report = tidy(Series(np.zeros(count), np.zeros((count, 3))))
        assert len(clean) == report.kept == count
        assert report.to_dict()["period_s"] is None
    with pytest.raises(RecordingError, match="found 2 stamps and 1 samples"):
        tidy(Series(np.zeros(2), np.zeros((1, 3))))


def test_headings_have_no_jumps_and_the_right_sense():
    yaw = np.linspace(0, 12, 100)
    quaternion = np.stack([0 * yaw, 0 * yaw, np.sin(yaw / 2), np.cos(yaw / 2)], axis=1)
    assert np.allclose(heading(quaternion), yaw)
    assert np.allclose(heading(-quaternion), yaw)  # the same turns


@pytest.mark.parametrize(("offset", "drift"), [(0.0, 0.0), (-3.2, 4e-5), (17.0, -2e-4)])
def test_offset_and_drift_of_a_clock_are_found_under_the_delays_of_a_network(offset, drift):
    rng = np.random.default_rng(1)
    true = np.sort(rng.uniform(0, 300, 6000))
    stamp = (true - offset) / (1 + drift)
    received = true + 0.002 + rng.exponential(0.02, true.shape)
    received[::500] += 1.5
    fit = clock_fit(stamp, received)
    assert abs(fit.drift - drift) < 5e-6
    assert np.abs(fit.to_recorder(stamp) - true).max() < 0.004  # the shortest transport is 2 ms
    moved, used = on_recorder_clock(Series(stamp, np.zeros((6000, 1)), received))
    assert used.corrected == (offset != 0)
    assert np.abs(moved.stamp_s - true).max() < 0.004


def test_a_series_of_unknown_arrival_is_left_alone():
    series = Series(np.arange(3.0), np.zeros((3, 1)))
    assert on_recorder_clock(series) == (series, None)
    assert clock_fit(np.zeros(1), np.zeros(1)) is None


@pytest.mark.parametrize("delay", [0.0, 0.0137, 0.1234, 0.45])
def test_latency_is_found_between_samples(delay):
    rng = np.random.default_rng(2)
    command_s, response_s = np.arange(0, 60, 0.015), np.cumsum(rng.uniform(0.01, 0.02, 3500))
    response = wander(response_s - delay) + 0.1 * rng.standard_normal((3500, 2))
    found = response_latency(command_s, wander(command_s), response_s, response)
    assert found.determined
    assert abs(found.delay_s - delay) < 0.002
    assert found.correlation > 0.9


def test_latency_of_a_constant_command_is_not_told():
    times = np.arange(0, 10, 0.01)
    found = response_latency(times, np.ones(1000), times, wander(times)[:, 0])
    assert not found.determined
    assert found.to_dict()["delay_s"] is None
    short = response_latency(times[:20], np.ones(20), times[:20], np.ones(20))
    assert not short.determined


def test_velocity_has_no_delay_on_uneven_stamps_and_never_bridges_a_gap():
    rng = np.random.default_rng(3)
    times = np.cumsum(rng.uniform(0.005, 0.03, 4000))
    times[2000:] += 3.0
    values = wander(times) + 1e-4 * rng.standard_normal((4000, 2))
    found = smooth_velocity(times, values)
    step = 1e-5
    truth = (wander(times + step) - wander(times - step)) / (2 * step)
    inner = np.abs(times - times[1999]) > 0.2
    inner &= np.abs(times - times[2000]) > 0.2
    inner[:10] = inner[-10:] = False
    assert np.sqrt(np.mean((found - truth)[inner] ** 2)) < 0.05
    assert response_latency(
        times[:2000], truth[:2000], times[:2000], found[:2000], earliest_s=-0.2
    ).delay_s == pytest.approx(0, abs=1e-3)
    # a jump across the gap leaves no trace
    values[2000:] += 100
    assert np.allclose(smooth_velocity(times, values), found, atol=1e-6)
    with pytest.raises(RecordingError, match="do not rise"):
        smooth_velocity(np.zeros(5), np.zeros((5, 1)))


def test_a_lone_sample_has_no_rate():
    found = smooth_velocity(np.array([0.0, 5.0, 5.01, 5.02, 5.03]), np.zeros((5, 1)), Smoother(gap_s=1.0))
    assert np.isnan(found[0, 0])
    assert np.isfinite(found).sum() == 4
