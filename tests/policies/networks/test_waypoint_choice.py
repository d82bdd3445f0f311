"""The choice of a way-point: where its steps lead, and its distribution against SciPy's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax
from scipy.stats import entropy

from testudo_deploy.shield.arena import Arena
from testudo_policies.networks.waypoint_choice import WaypointChoice

FLAT = WaypointChoice.create(0.2, 0.99, Arena((-1.6, -1.0), (1.6, 1.0)), 2)
DRONE = WaypointChoice.create(0.5, 2.0, None, 3)


def test_the_steps_are_those_of_the_suite_and_a_drone_has_two_more():
    np.testing.assert_allclose(FLAT.offset(jnp.eye(5)), [(0, 0), (0, 0.2), (0, -0.2), (0.2, 0), (-0.2, 0)], atol=1e-7)
    assert DRONE.step_m == 1.0  # of a decision that takes longer than a second
    np.testing.assert_allclose(DRONE.offset(jnp.eye(7))[5:], [(0, 0, 1), (0, 0, -1)])


def test_waypoints_are_a_decimetre_inside_the_arena():
    places = jnp.array([(1.55, 0.0), (-9.0, 9.0), (0.3, -0.4)])
    np.testing.assert_allclose(FLAT.inside(places), [(1.5, 0.0), (-1.5, 0.9), (0.3, -0.4)])
    assert DRONE.inside(places) is places


def test_probabilities_and_entropy_are_those_of_scipy():
    scores = np.random.default_rng(0).normal(size=(6, 5))
    logarithm = log_softmax(scores, axis=-1)
    np.testing.assert_allclose(FLAT.entropy(jnp.array(scores), None), entropy(np.exp(logarithm), axis=-1), rtol=1e-5)
    for choice in range(5):
        found = FLAT.log_prob(jnp.array(scores), jnp.full(6, choice))
        np.testing.assert_allclose(found, logarithm[:, choice], rtol=1e-5)


def test_the_mode_is_the_highest_score_and_samples_follow_the_probabilities():
    scores = jnp.log(jnp.array([0.1, 0.2, 0.0, 0.6, 0.1]))
    np.testing.assert_array_equal(FLAT.mode(scores), [0, 0, 0, 1, 0])
    drawn = FLAT.sample_no_postprocessing(jnp.broadcast_to(scores, (4000, 5)), jax.random.key(0))
    share = np.mean(FLAT.postprocess(drawn), axis=0)
    np.testing.assert_allclose(share, [0.1, 0.2, 0.0, 0.6, 0.1], atol=0.03)


@pytest.mark.parametrize(("pull", "expected"), [((2.0, 0.0), 3), ((0.0, -1.0), 2), ((-0.5, 0.1), 4)])
def test_a_pull_prefers_the_step_along_it_and_none_prefers_nothing(pull, expected):
    assert int(jnp.argmax(FLAT.scores_of(jnp.array(pull)))) == expected
    assert not np.any(FLAT.scores_of(jnp.zeros(2)))
