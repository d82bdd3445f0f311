"""Advantages and the PPO loss against numbers worked out by hand."""

from dataclasses import fields
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from testudo_policies.learning import losses
from testudo_policies.learning.losses import Batch, ppo_loss
from testudo_policies.train_config import TrainConfig

advantages = jax.jit(losses.advantages)


def column(*values, dtype=float):
    """Return (T, 1): one robot."""
    return np.array(values, np.float32 if dtype is float else dtype)[:, None]


def test_advantages_with_a_time_out_and_a_termination_in_the_middle():
    # discount 0.5, trace 0.5, so that the next advantage weighs 0.25
    # step      0     1         2    3           4
    #                 time-out       terminated  rollout ends
    # reward    1     2         3    4           5
    # value     1     1         2    2           4
    # next      1     6         2    100         8
    # 1's next state is the last one of its episode (6), not the first of the next (value 2);
    # 3's has no future, whatever the critic says (100)
    # delta is reward + 0.5 * next - value:
    #   0: 1 + 0.5 - 1 = 0.5    1: 2 + 3 - 1 = 4    2: 3 + 1 - 2 = 2    3: 4 + 0 - 2 = 2
    #   4: 5 + 4 - 4 = 5
    # advantage, from behind: 4: 5    3: 2 (cut)    2: 2 + 0.25 * 2 = 2.5    1: 4 (cut)
    #   0: 0.5 + 0.25 * 4 = 1.5
    found = advantages(
        reward=column(1, 2, 3, 4, 5),
        value=column(1, 1, 2, 2, 4),
        next_value=column(1, 6, 2, 100, 8),
        terminated=column(0, 0, 0, 1, 0, dtype=bool),
        truncated=column(0, 1, 0, 0, 0, dtype=bool),
        discount=0.5,
        trace=0.5,
    )
    np.testing.assert_allclose(found[:, 0], [1.5, 4.0, 2.5, 2.0, 5.0], rtol=1e-6)


def test_what_one_robot_lives_through_does_not_touch_another():
    # the same numbers without an end, beside the column above:
    # delta 3: 4 + 50 - 2 = 52; advantage 4: 5    3: 52 + 1.25 = 53.25
    #   2: 2 + 13.3125 = 15.3125    1: 4 + 3.828125 = 7.828125    0: 0.5 + 1.95703125 = 2.45703125
    def both(*values):
        return np.tile(column(*values), (1, 2))

    ended = np.array([[0, 0], [0, 0], [0, 0], [1, 0], [0, 0]], bool)
    timed_out = np.array([[0, 0], [1, 0], [0, 0], [0, 0], [0, 0]], bool)
    found = advantages(both(1, 2, 3, 4, 5), both(1, 1, 2, 2, 4), both(1, 6, 2, 100, 8), ended, timed_out, 0.5, 0.5)
    np.testing.assert_allclose(found[:, 0], [1.5, 4.0, 2.5, 2.0, 5.0], rtol=1e-6)
    np.testing.assert_allclose(found[:, 1], [2.45703125, 7.828125, 15.3125, 53.25, 5.0], rtol=1e-6)


class HandMadeAgent:
    """Says what it was told to say; ``parameters`` are (log probabilities, values)."""

    distribution = SimpleNamespace(
        log_prob=lambda logits, _: logits,
        entropy=lambda logits, _: jnp.full(logits.shape, 0.7),
    )

    def act(self, parameters, _features, hidden, _fresh):
        return parameters[0], hidden

    def value(self, parameters, _central):
        return parameters[1]

    def value_scale(self, _parameters):
        return 2.0


def hand_made_loss(log_probability, value, advantage, trust=None, joint_ratio=False, **changes):
    shape = advantage.shape
    blank = dict.fromkeys(field.name for field in fields(Batch))
    known = {"log_probability": np.full(shape, -2.0, np.float32), "value": np.zeros(shape, np.float32)}
    batch = Batch(**(blank | known | {"trust": trust, "counted": np.ones(shape, bool)} | changes))
    config = TrainConfig(clip=0.2, value_weight=0.5, entropy=0.1, team_size=2, joint_ratio=joint_ratio)

    @jax.jit
    def loss(log_probability, value, advantage):
        return ppo_loss((log_probability, value), HandMadeAgent(), config, batch, None, advantage, jax.random.key(0))

    return loss(log_probability, value, advantage)


def test_loss_of_a_batch_made_by_hand():
    # four robots at one step; advantages have mean 0 and variance (9 + 1 + 1 + 9) / 4 = 5
    # advantage  3          1     -1          -3
    # ratio      1.5        1.1   0.5         1.5
    # clipped    1.2        1.1   0.8         1.2
    # the lesser 1.2 * 3    1.1   0.8 * -1    1.5 * -3     sum -0.6, mean -0.15, over sqrt(5)
    # value target = old value 0 + advantage; new values 3, 1, -1, -1 miss it by 0, 0, 0, 2, in units
    # of 2 by 1: mean 1 / 4
    ratio = np.float32([[1.5, 1.1, 0.5, 1.5]])
    value = np.float32([[3.0, 1.0, -1.0, -1.0]])
    total, parts = hand_made_loss(np.log(ratio) - 2, value, np.float32([[3.0, 1.0, -1.0, -3.0]]))
    assert parts["loss/actor"] == pytest.approx(0.15 / 5**0.5, rel=1e-5)
    assert parts["loss/value"] == pytest.approx(0.25)
    assert parts["loss/entropy"] == pytest.approx(0.7)
    assert parts["loss/ratio_off"] == pytest.approx(0.4, rel=1e-5)
    assert total == pytest.approx(0.15 / 5**0.5 + 0.5 * 0.25 - 0.1 * 0.7, rel=1e-5)
    # of the targets' variance of 5 the errors 0, 0, 0, 2 leave 3 / 4
    assert parts["value/explained_variance"] == pytest.approx(1 - 0.75 / 5, rel=1e-5)
    assert (parts["value/mean"], parts["value/deviation"]) == pytest.approx((0.5, 2.75**0.5), rel=1e-5)
    assert (parts["value/target_mean"], parts["value/target_deviation"]) == pytest.approx((0, 5**0.5), abs=1e-5)
    assert parts["value/scale"] == 2


def test_statistics_of_values_are_of_what_counts_and_finite_for_equal_targets():
    value, target = np.float32([1.0, 9.0, 3.0]), np.float32([2.0, 7.0, 2.0])
    found = jax.jit(losses.value_statistics)(value, target, np.array([True, False, True]), np.float32(1.0))
    assert found["value/mean"] == 2
    assert (found["value/target_deviation"], found["value/explained_variance"]) == (0, 0)


def test_a_clipped_ratio_has_no_gradient_and_a_falling_one_for_good_actions_has():
    # ratio 1.5 with advantage 3 is beyond the clip: nothing pulls it further; 0.5 is pulled back up
    def actor_loss(log_probability):
        advantage = np.float32([[3.0, 1.0, -1.0, -3.0]])
        value = np.zeros((1, 4), np.float32)
        return hand_made_loss(log_probability, value, advantage)[1]["loss/actor"]

    high = jax.jit(jax.grad(actor_loss))(np.log(np.float32([[1.5, 1.0, 1.0, 1.0]])) - 2)[0]
    low = jax.jit(jax.grad(actor_loss))(np.log(np.float32([[0.5, 1.0, 1.0, 1.0]])) - 2)[0]
    assert high[0] == 0
    assert low[0] < 0
    assert high[1] < 0 < high[3]


def test_the_joint_ratio_is_the_product_of_those_of_a_world():
    """Two worlds of two robots: 1.5 x 1.1 and 0.5 x 1.5, clipped as one; a robot that stands changes nothing."""
    ratio, advantage = np.float32([[1.5, 1.1, 0.5, 1.5]]), np.float32([[3.0, 1.0, -1.0, -3.0]])

    def actor_loss(counted):
        given = (np.log(ratio) - 2, np.zeros((1, 4), np.float32), advantage)
        return hand_made_loss(*given, joint_ratio=True, counted=counted)[1]

    parts = actor_loss(np.ones((1, 4), bool))
    # 1.65 and 0.75, clipped to 1.2 and 0.8: 1.2 * 3 + 1.2 - 0.8 - 0.8 * 3, over sqrt(5)
    assert parts["loss/actor"] == pytest.approx(-(3.6 + 1.2 - 0.8 - 2.4) / 4 / 5**0.5, rel=1e-5)
    assert parts["loss/ratio_off"] == pytest.approx((0.65 * 2 + 0.25 * 2) / 4, rel=1e-5)
    alone = actor_loss(np.array([[True, True, False, True]]))
    assert alone["loss/ratio_off"] == pytest.approx((0.65 * 2 + 0.5) / 3, rel=1e-5)


def test_what_is_not_trusted_pushes_nothing_and_moves_no_mean():
    """Two trusted steps with advantages 1 and 3 beside two untrusted ones are those two alone, but for the scale."""

    def pull(log_probability, advantage, trust):
        return hand_made_loss(log_probability, np.zeros((1, 4), np.float32), advantage, trust)[1]["loss/actor"]

    advantage, trust = np.float32([[3.0, 1.0, 0.0, 0.0]]), np.float32([[1.0, 1.0, 0.0, 0.0]])
    same, gradient = np.full((1, 4), -2.0, np.float32), jax.jit(jax.grad(pull))
    push = np.asarray(gradient(same, advantage, trust)[0])
    np.testing.assert_allclose(push[2:], 0.0, atol=1e-7)
    assert push[0] == pytest.approx(-push[1], rel=1e-5)  # their mean is 2: one better, one as much worse
    assert push[0] < 0
    everybody = gradient(same, advantage, None)[0]
    assert everybody[2] > 0.1  # negative control: without the weights the mean pushes them
    np.testing.assert_array_equal(gradient(same, advantage, np.ones((1, 4), np.float32))[0], everybody)


def test_nothing_is_learned_from_robots_that_stand():
    """The loss of four robots, of which two stand, and its gradients are those of the other two alone."""

    def loss(given, advantage, stood):
        return hand_made_loss(*given, advantage, counted=~stood)[0]

    given = (np.log(np.float32([[1.1, 0.9, 1.5, 0.5]])) - 2, np.float32([[2.0, -1.0, 4.0, 7.0]]))
    stood = np.array([[False, False, True, True]])
    total, push = jax.jit(jax.value_and_grad(loss))(given, np.float32([[3.0, 1.0, 0.0, 0.0]]), stood)
    pair = tuple(x[:, :2] for x in given)
    alone, expected = jax.jit(jax.value_and_grad(loss))(pair, np.float32([[3.0, 1.0]]), np.zeros((1, 2), bool))
    assert total == pytest.approx(float(alone), rel=1e-6)
    for found, other in zip(push, expected, strict=True):
        np.testing.assert_array_equal(found[:, 2:], 0)
        np.testing.assert_allclose(found[:, :2], other, rtol=1e-6)


def test_what_a_robot_lives_through_ends_where_it_leaves_and_begins_anew_where_it_returns():
    # one robot, six steps of reward 1 and value 0: it takes part in the first two and the last two
    none = np.zeros((6, 1), bool)
    blank = dict.fromkeys(field.name for field in fields(Batch))
    stood, left = np.array([0, 0, 1, 1, 0, 0], bool)[:, None], np.array([0, 1, 0, 0, 0, 0], bool)[:, None]
    batch = Batch(**(blank | {"terminated": none, "truncated": none, "counted": ~stood, "left": left}))
    value, after = column(0, 0, 0, 0, 0, 0), column(0, 100, 100, 100, 0, 0)
    found = advantages(column(1, 1, 1, 1, 1, 1), value, after, batch.ended, none, 0.5, 1.0, batch.weight)
    assert found[:, 0].tolist() == [1.5, 1.0, 0.0, 0.0, 1.5, 1.0]
