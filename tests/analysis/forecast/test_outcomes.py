"""Outcomes of a team whose motion is known: arrival, separation, interventions, latency."""

import numpy as np
import pytest

from testudo_analysis.forecast.measured_series import as_measured
from testudo_analysis.forecast.outcomes import TeamSeries, outcomes
from testudo_hardware.spec import load_robot

SPEC = load_robot("turtlebot4")
PERIOD_S, GOAL_M = 0.05, 2.0


def two_robots(speeds, seconds=30.0, late_ticks=3):
    """Return a world for each speed, in which r0 drives 2 m and r1 stands 1 m beside its way, at its goal."""
    times = PERIOD_S * np.arange(round(seconds / PERIOD_S))
    position = np.zeros((len(times), 2, 2, len(speeds)))
    position[:, 0, 0] = np.minimum(times[:, None] * speeds, GOAL_M)
    position[:, :, 1] = np.array([1.0, 1.0])[:, None]
    command = np.random.default_rng(0).standard_normal((len(times), 2, 2, len(speeds))).cumsum(axis=0)
    velocity = np.roll(command, late_ticks, axis=0)
    changed = np.zeros((len(times), 2, len(speeds)), bool)
    changed[:40, 0] = True
    goal = np.zeros((2, 2, len(speeds)))
    goal[0, 0], goal[:, 1] = GOAL_M, 1.0
    return TeamSeries(PERIOD_S, position, velocity, command, changed), goal


def test_each_world_ends_when_all_stay_at_their_goals_and_one_that_does_not_arrive_counts_to_the_horizon():
    series, goal = two_robots(np.array([0.2, 0.1, 0.01]))
    found = outcomes(series, ("r0", "r1"), goal, 30.0, SPEC)
    assert found["success"].tolist() == [1.0, 1.0, 0.0]
    assert found["time_to_goal.r0"] == pytest.approx([9.5, 19.0, 30.0], abs=0.11)
    assert found["time_to_goal.r1"].tolist() == [0.0, 0.0, 0.0]
    assert found["least_separation"] == pytest.approx([1.0, 1.0, np.hypot(0.7, 1.0)], abs=0.01)
    # 40 ticks of one of two robots, of all until one second after the arrival
    assert found["interventions"] == pytest.approx([20 / 210, 20 / 400, 20 / 600], rel=0.02)
    for name in ("latency.r0", "latency.r1"):
        assert found[name] == pytest.approx(3 * PERIOD_S, abs=0.01)


def test_touching_robots_are_no_success_and_what_is_not_recorded_is_left_out():
    series, goal = two_robots(np.array([0.2]))
    near = series.position_world.copy()
    near[:, 1, 1] = 1.5 * SPEC.body_radius_m
    goal[1, 1] = near[0, 1, 1, 0]
    found = outcomes(TeamSeries(PERIOD_S, near, None, None, None), ("r0", "r1"), goal, 30.0, SPEC)
    assert found["success"].tolist() == [0.0]
    assert set(found) == {"success", "time_to_goal.r0", "time_to_goal.r1", "least_separation"}


def test_no_latency_is_claimed_of_a_robot_that_stands_or_does_not_follow():
    series, goal = two_robots(np.array([0.2]))
    still = TeamSeries(PERIOD_S, series.position_world, 0 * series.velocity, series.command, None)
    assert np.isnan(outcomes(still, ("r0", "r1"), goal, 30.0, SPEC)["latency.r0"]).all()


def test_robots_that_are_known_by_their_own_poses_seem_closer_than_they_are():
    still = np.zeros((200, 2, 2, 400))
    still[:, 0, 1] = 0.5
    series = TeamSeries(PERIOD_S, still, 0 * still, None, None)
    found = as_measured(series, SPEC, 0)
    seen = outcomes(found, ("r0", "r1"), still[0], 30.0, SPEC)["least_separation"]
    # the least of normal distances in the ticks until one second after the arrival, of two robots with equal errors
    drawn = np.random.default_rng(1).standard_normal((round(1.0 / PERIOD_S), 4000)).min(axis=0)
    expected = 0.5 + drawn * np.sqrt(2) * SPEC.position_error_m / 3
    assert seen.mean() == pytest.approx(expected.mean(), abs=1e-3)
    assert seen.std() == pytest.approx(expected.std(), rel=0.15)
    assert np.abs(found.position_world - still).max() <= SPEC.position_error_m + 1e-9
    rim = found.velocity[:, 0] + found.velocity[:, 1] * SPEC.wheel_base_m / 2  # speed of a wheel
    assert rim.std() == pytest.approx(SPEC.velocity_error_m_s / 3, rel=0.05)
    plain = outcomes(series, ("r0", "r1"), still[0], 30.0, SPEC)["least_separation"]
    assert (plain == 0.5).all()  # control
