"""The paired test: its capital written out by hand, its error under constant looking, and its power."""

import numpy as np
import pytest

from testudo_policies.improve.paired_test import NEEDED, EpisodeOutcomes, capital, differences, evidence


def test_the_capital_is_that_of_bets_known_before_each_difference():
    found = capital(np.array([0.5, 0.4, -0.2]))
    # no bet at first; then the mean of an imagined 0 and 0.5, and of 0, 0.5 and 0.4; variances with 0.25 of the first
    first = 0.25 / ((0.25 + 0.25) / 2 - 0.25**2 + 0.25**2)
    second = 0.3 / ((0.25 + 0.25 + 0.16) / 3)
    assert first == 1.0  # both are clipped to half of the capital
    assert second > 0.5
    np.testing.assert_allclose(found, [1.0, 1 + 0.5 * 0.4, 1.2 * (1 - 0.5 * 0.2)])
    small = capital(np.array([0.1, 0.1, 0.1]))
    bets = [0.05 / ((0.25 + 0.01) / 2), 0.5]  # the first is 0.38; (0.2 / 3) / ((0.25 + 0.02) / 3) is 0.74
    np.testing.assert_allclose(small, np.cumprod([1.0, 1 + bets[0] * 0.1, 1 + bets[1] * 0.1]))


def test_equal_policies_are_called_better_in_at_most_one_of_twenty_looked_at_after_each_episode():
    random = np.random.default_rng(0)
    wrong, naive, tries = 0, 0, 600
    for _ in range(tries):
        values = random.choice([-1.0, 0.0, 1.0], size=300, p=[0.25, 0.5, 0.25])
        wrong += evidence([values]) >= NEEDED
        count = np.arange(10, 301)
        mean = np.cumsum(values)[9:] / count
        naive += np.any(mean / (np.sqrt(0.5) / np.sqrt(count)) > 1.645)
    assert wrong / tries <= 0.05
    assert naive / tries > 0.15  # control: a plain test of 5 % that is looked at as often is wrong far more often


def test_a_worse_policy_never_gathers_evidence_and_a_better_one_soon_does():
    random = np.random.default_rng(1)
    noise = 0.2 * random.standard_normal(500)
    assert evidence([np.clip(-0.05 + noise, -1, 1)]) < 3
    assert evidence([np.clip(0.05 + noise, -1, 1)]) > 1e3
    assert evidence([]) == evidence([np.zeros(0)]) == 1.0


def test_evidence_of_two_environments_is_the_mean_of_both_at_each_time():
    first, second = np.full(40, 0.5), np.zeros(20)
    expected = (capital(first) + 1.0) / 2
    assert evidence([first, second]) == pytest.approx(expected.max())


def outcomes(success, duration_s, episode_return=(0.0, 0.0), contact=(False, False), *, has_success=True):
    columns = (np.array(x) for x in (success, duration_s, episode_return, contact))
    return EpisodeOutcomes(*columns, 40.0, has_success)


def test_a_sooner_success_is_better_and_a_contact_loses_the_episode():
    old, new = outcomes([1, 0], [20.0, 40.0]), outcomes([1, 1], [10.0, 40.0])
    np.testing.assert_allclose(differences(old, new), [0.125, 0.5])
    touched = outcomes([1, 1], [10.0, 40.0], contact=[True, False])
    np.testing.assert_allclose(differences(old, touched), [-0.75, 0.5])


def test_without_success_the_sign_of_the_return_counts():
    old = outcomes([0, 0], [40.0, 40.0], [5.0, 7.0], has_success=False)
    new = outcomes([0, 0], [40.0, 40.0], [900.0, 6.9], has_success=False)
    assert differences(old, new).tolist() == [1.0, -1.0]
    touched = outcomes([0, 0], [40.0, 40.0], [900.0, 8.0], [True, False], has_success=False)
    assert differences(old, touched).tolist() == [-1.0, 1.0]


def test_outcomes_are_kept_in_the_folder_as_they_are():
    made = outcomes([1, 0], [20.0, 40.0], [1.5, -2.0], [False, True])
    again = EpisodeOutcomes.from_dict(made.to_dict())
    np.testing.assert_array_equal(again.score, made.score)
    assert again.has_success
    assert again.to_dict() == made.to_dict()
