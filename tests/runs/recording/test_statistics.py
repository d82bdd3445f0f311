"""Gaps, equal and backward stamps and clocks that were set, each in a series that has exactly that."""

import numpy as np
import pytest

from testudo_runs.importing.logs.log_stamps import in_order, longest_rise, to_ns
from testudo_runs.importing.mapping.column_conversion import FileLosses, ranges
from testudo_runs.importing.mapping.mapping_file import TimeMap
from testudo_runs.recording.recording import Series
from testudo_runs.recording.statistics import series_facts


def series(stamps, received=None):
    return Series(np.asarray(stamps, float), np.zeros((len(stamps), 1)), received)


def test_a_sound_series_has_nothing_to_tell():
    facts = series_facts(series(np.arange(500) * 0.01, np.arange(500) * 0.01 + 0.003))
    assert (facts.rate_hz, facts.mean_hz) == (pytest.approx(100), pytest.approx(100))
    assert facts.gaps == facts.duplicates == facts.backward == facts.not_finite == 0
    assert facts.delay_median_s == pytest.approx(0.003)
    assert facts.clock_jumps == ()


def test_gaps_count_from_a_tenth_of_a_second_and_five_intervals():
    stamps = np.arange(1000) * 0.01
    stamps[400:] += 0.3
    stamps[700:] += 0.095  # with the interval itself just over 0.1 s
    facts = series_facts(series(stamps))
    assert (facts.gaps, facts.longest_gap_s) == (2, pytest.approx(0.31))
    assert [(gap.at_s, gap.length_s) for gap in facts.worst_gaps] == [
        (pytest.approx(3.99), pytest.approx(0.31)),
        (pytest.approx(7.29), pytest.approx(0.105)),
    ]
    slow = series_facts(series(np.arange(20) * 1.0))
    assert (slow.gaps, slow.gap_from_s) == (0, pytest.approx(5.0))


def test_equal_and_backward_stamps_are_counted():
    facts = series_facts(series([0, 0.1, 0.1, 0.3, 0.25, 0.4]))
    assert (facts.duplicates, facts.backward) == (1, 1)
    assert facts.furthest_back_s == pytest.approx(0.05)


def test_a_clock_that_was_set_is_found_and_late_messages_are_not():
    stamps = np.arange(1000) * 0.02
    rng = np.random.default_rng(0)
    late = rng.exponential(0.004, 1000)
    late[300:308] += 0.4  # a radio that paused
    received = stamps + late
    assert series_facts(series(stamps, received)).clock_jumps == ()
    moved = np.where(np.arange(1000) >= 600, stamps + 0.25, stamps)
    (jump,) = series_facts(series(moved, received)).clock_jumps
    assert jump.at_s == pytest.approx(moved[600], abs=0.1)
    assert jump.by_s == pytest.approx(0.25, abs=0.01)


def test_empty_series_and_single_samples_have_facts():
    for stamps in ([], [1.0], [1.0, 1.0]):
        facts = series_facts(series(stamps, np.asarray(stamps, float)))
        assert (facts.samples, facts.rate_hz, facts.gaps) == (len(stamps), None, 0)


def test_stamps_keep_the_digits_that_stand_in_the_log():
    unix = TimeMap(1, "s", "unix")
    texts = [f"{1248444187 + k // 1000}.{k % 1000:03d}" for k in range(0, 5000, 7)]
    found = to_ns(np.array([float(text) for text in texts]), unix)
    assert found.tolist() == [int(text.replace(".", "")) * 1_000_000 for text in texts]
    assert to_ns(np.array([9807.0, 0.5]), TimeMap(1, "us", "boot")).tolist() == [9_807_000, 500]
    assert to_ns(np.array([np.nan, np.inf, -1.0, 3.0, 1e300]), unix).tolist() == [-1] * 5
    wraps = TimeMap(1, "ms", "boot", bits=16)
    assert np.diff(to_ns(np.array([65_000, 65_500, 464, 964.0]), wraps)).tolist() == [500_000_000] * 3


def test_stamps_that_go_back_are_left_out_and_named(tmp_path):
    losses = FileLosses(tmp_path / "log.csv")
    time_ns = np.array([10, 20, 999, 30, 30, 25, 40, -1, 50]) * 1_000_000
    keep = in_order(time_ns, np.arange(1, 10), losses)
    assert time_ns[keep].tolist() == [k * 1_000_000 for k in (10, 20, 30, 30, 40, 50)]
    assert {loss.why: loss.places for loss in losses.all()} == {
        "the stamp is no time of the clock that the mapping names": "line 8",
        "the stamp goes back against its neighbours": "lines 3, 6",
    }
    far = np.r_[np.arange(50), 10**9 + np.arange(3)] * 1_000_000_000
    assert len(in_order(far, np.arange(53), losses)) == 50


@pytest.mark.parametrize("seed", range(5))
def test_the_longest_rise_rises_and_no_longer_one_exists(seed):
    values = np.random.default_rng(seed).integers(0, 12, 14)
    found = longest_rise(values)
    assert (np.diff(values[found]) >= 0).all()
    best = np.ones(14, int)  # longest that ends at each value, by trying all before it
    for k in range(14):
        best[k] += max((best[j] for j in range(k) if values[j] <= values[k]), default=0)
    assert len(found) == best.max()


def test_ranges_are_short():
    assert ranges([], "line") == ""
    assert ranges([3], "line") == "line 3"
    assert ranges([1, 2, 3, 7, 5, 6], "line") == "lines 1-3, 5-7"
    assert ranges(range(0, 100, 2), "record") == "records 0, 2, 4, 6, 8, 10 and 44 more"
