"""The radio to drones: what is lost is what the model says, alike with one seed."""

import numpy as np
import pytest

from testudo_hardware.errors import TestudoError
from testudo_plant.plant.injected_faults import RadioModel, SetPointRadio


def carried(model, seed=0, count=3, duration_s=60.0, period_s=0.02):
    """Return what became of set-points (T, N) sent at a fixed period: what they are late by, NaN if lost."""
    radio = SetPointRadio(model, count, np.random.default_rng(seed), 100.0)
    found = np.array(
        [[radio.carry(i, 100.0 + k * period_s) for i in range(count)] for k in range(round(duration_s / period_s))],
        dtype=float,
    )
    return found, radio


def runs(lost):
    """Return the lengths of the times in which nothing came, of one drone (T,)."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], lost.astype(int), [0]])))
    return edges[1::2] - edges[::2]


def test_a_perfect_radio_loses_nothing():
    found, radio = carried(RadioModel())
    assert np.all(found == 0)
    assert (radio.lost, radio.bursts) == (0, 0)


def test_single_losses_have_their_share():
    found, radio = carried(RadioModel(loss=0.2))
    assert np.isnan(found).mean() == pytest.approx(0.2, abs=0.01)
    assert radio.lost == np.isnan(found).sum()


def test_bursts_have_their_length_for_each_drone_and_hit_all_or_some():
    found, radio = carried(RadioModel(burst_s=0.1, every_s=0.5), duration_s=120.0)
    lost = np.isnan(found)
    lengths = np.concatenate([runs(lost[:, i]) for i in range(3)])
    assert set(lengths) <= {5, 6}  # 100 ms of 20 ms each
    assert radio.bursts == pytest.approx(120.0 / 0.6, rel=0.2)
    deaf = lost.sum(axis=1)
    assert (deaf == 3).any()
    assert ((deaf > 0) & (deaf < 3)).any()


def test_one_seed_says_it_all():
    model = RadioModel(loss=0.1, burst_s=0.1, late_s=(0.0, 0.004))
    first, again, other = (carried(model, seed)[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(np.isnan(first), np.isnan(other))
    assert np.nanmax(first) <= 0.004
    assert np.nanmin(first) >= 0


def test_a_dead_radio_is_dark_until_it_is_taken_back():
    radio = SetPointRadio(RadioModel(), 2, np.random.default_rng(0), 0.0)
    radio.kill(1, True)
    assert [radio.carry(i, 1.0) for i in range(2)] == [0.0, None]
    radio.kill(1, False)
    assert radio.carry(1, 1.1) == 0.0


@pytest.mark.parametrize("values", [{"loss": 1.2}, {"burst_s": -0.1}, {"every_s": 0.0}, {"late_s": (0.2, 0.1)}])
def test_what_is_no_radio_is_refused(values):
    with pytest.raises(TestudoError, match=r"^radio: found loss"):
        RadioModel(**values)
