"""The comparison of ways of learning: every arm traces from the same old policies and recorded runs."""

from functools import partial

import jax
import pytest

from testudo_bench.learning.candidates import CANDIDATES
from testudo_bench.learning.improve import bench_improve
from testudo_bench.learning.model_mismatch import ARMS, QUICK, Study, learner_of
from testudo_hardware.errors import TestudoError
from testudo_policies.learning.ppo import PPO

pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture(scope="module")
def study():
    return Study(QUICK, CANDIDATES[0])


@pytest.fixture(scope="module")
def given(study):
    """Return the shapes of an old policy and of its recorded run."""
    parts = study.ppo.components
    policy = jax.eval_shape(PPO(parts.config, parts.agent, parts.environment).init, jax.random.key(0)).parameters
    return policy, jax.eval_shape(study._record, policy, jax.random.key(1))


def test_both_learners_get_the_same_recorded_transitions(study, given):
    rollouts, joined = given[1].rollout, given[1].pairs
    length, robots = study.ppo.components.config.rollout, QUICK.recorded_worlds * QUICK.recorded_pieces * 2
    assert rollouts.batch.reward.shape == (length, robots)
    assert joined.reward.shape == (2, length * robots)
    assert joined.memory is None
    assert study.recorded_minutes == pytest.approx(length * QUICK.recorded_worlds * QUICK.recorded_pieces * 0.33 / 60)


@pytest.mark.slow
@pytest.mark.parametrize("name", ARMS)
def test_an_update_of_an_arm_keeps_the_form_of_its_state(study, given, name):
    learner = partial(learner_of, study, ARMS[name])
    start = jax.eval_shape(lambda key, one: learner(one).init(key), jax.random.key(2), given)
    after, _ = jax.eval_shape(lambda state, one: learner(one).update(state), start, given)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), after) == jax.tree.map(lambda x: (x.shape, x.dtype), start)
    assert jax.tree.structure(start.parameters.actor) == jax.tree.structure(given[0].actor)


def test_options_out_of_range_are_refused():
    with pytest.raises(TestudoError, match="--repeats: found 0"):
        bench_improve(repeats=0)
    with pytest.raises(TestudoError, match="--scenario: found 'swap'"):
        bench_improve(scenario="swap")
