"""Several seeds in one program: each is the run with that seed, and a stopped run goes on."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from tests.policies.quick import TINY

from testudo_hardware.errors import TestudoError
from testudo_policies.commands.train import train
from testudo_policies.learning.builder import build
from testudo_policies.learning.checkpoints import load_config
from testudo_policies.learning.seeds import SeveralSeeds, seed_folders
from testudo_policies.learning.training_run import load_parameters, train_run, train_seeds

pytestmark = pytest.mark.usefixtures("quick")


def test_each_seed_starts_as_the_run_with_that_seed_and_all_are_updated_together():
    learner = build(replace(TINY, seed=3)).learner
    several = SeveralSeeds(learner, 2)
    state = jax.device_get(several.start(jax.random.key(9)).parameters)
    for index in range(2):
        alone = jax.device_get(learner.start(jax.random.key(3 + index)).parameters)
        for one, other in zip(leaves(alone), leaves(state), strict=True):
            np.testing.assert_allclose(other[index], one, atol=1e-6)
    before = several.start.eval_shape(jax.random.key(9))
    after, metrics = jax.eval_shape(several.update, before)
    assert after == before
    assert {value.shape for value in metrics.values()} == {(2,)}


@pytest.mark.slow
def test_each_seed_is_the_run_with_that_seed_also_after_a_stop(tmp_path):
    components = build(replace(TINY, seed=3))
    shown = []

    def stop(progress):
        shown.append(progress)
        if progress.update == 2:
            raise KeyboardInterrupt

    assert not train_seeds(components, tmp_path / "two", 2, stop).finished
    assert train(run=tmp_path / "two") == 0  # the command resumes them, without options
    folders = seed_folders(tmp_path / "two", components.config, 2)
    assert [load_config(folder) for folder in folders] == list(folders.values())
    folder, config = list(folders.items())[1]
    alone = build(config)
    expected, found = train_run(alone, tmp_path / "one").parameters, load_parameters(alone, folder)
    for part in ("actor", "critic"):
        for one, other in zip(*(leaves(getattr(x, part)) for x in (expected, found)), strict=True):
            np.testing.assert_allclose(one, other, atol=2e-4)
    assert shown[0].decisions_per_s > 0


def leaves(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def test_seeds_that_cannot_be_trained_together_are_refused(tmp_path):
    with pytest.raises(TestudoError, match="--seeds 2: found --trainer brax-ppo"):
        train(seeds=2, config=replace(TINY, trainer="brax-ppo"))
    with pytest.raises(TestudoError, match="--seeds: found 0, expected at least 1"):
        train(seeds=0, config=TINY)
