"""Training on several devices: the worlds are shared out, and nothing else changes."""

import shutil
from dataclasses import replace

import jax
import numpy as np
import pytest
from jax.sharding import Mesh
from tests.policies.quick import TINY
from tests.policies.spread_run import assert_same_run, digest, outcome, spread, start

from testudo_policies.distributed.sharding import AXIS, DevicePlacement
from testudo_policies.learning.builder import build
from testudo_policies.learning.training_run import load_parameters, train_run

pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture(scope="module")
def alone(quick, tmp_path_factory):
    """Return the folder of a run on one device."""
    folder = tmp_path_factory.mktemp("alone") / "run"
    assert train_run(build(spread()), folder).finished
    return folder


@pytest.fixture(scope="module")
def pair(quick, tmp_path_factory):
    """Return the folder of the same run on two devices, and what the program printed."""
    folder = tmp_path_factory.mktemp("pair") / "run"
    return folder, outcome(start(folder, devices=2))


def test_two_devices_give_the_losses_of_one_for_the_same_worlds(alone, pair):
    folder, found = pair
    assert (found["devices"], found["updates"]) == (2, 3)
    assert_same_run(folder, alone)


def test_a_run_on_two_devices_is_evaluated_and_exported_from_one(alone, pair):
    folder, found = pair
    parameters = load_parameters(build(spread()), folder)
    assert digest(parameters) == found["digest"]
    for one, two in zip(
        jax.tree_util.tree_leaves(load_parameters(build(spread()), alone)),
        jax.tree_util.tree_leaves(parameters),
        strict=True,
    ):
        # Adam divides a gradient by its own size: where that is almost zero its rounding counts
        np.testing.assert_allclose(two, one, atol=1e-4)


@pytest.mark.slow
def test_the_same_seed_on_as_many_devices_gives_the_same_bits(pair, tmp_path):
    assert outcome(start(tmp_path / "run", devices=2)) == pair[1]


@pytest.mark.slow
def test_a_run_goes_on_with_another_number_of_devices(alone, tmp_path):
    folder = tmp_path / "run"
    seen = []

    def stop(progress):
        seen.append(progress)
        raise KeyboardInterrupt

    assert train_run(build(spread()), folder, stop).updates == 2
    assert outcome(start(folder, devices=2))["updates"] == 3
    assert_same_run(folder, alone)


@pytest.mark.parametrize(
    ("changes", "available", "used"),
    [
        ({}, 1, 1),
        ({}, 2, 2),
        ({}, 3, 2),  # 8 worlds do not go into 3
        ({}, 8, 8),
        ({"minibatches": 16}, 2, 1),  # a minibatch is a single robot
        ({"worlds": 9, "minibatches": 2}, 4, 3),
    ],
)
def test_devices_that_would_not_get_an_equal_share_are_left_out(changes, available, used):
    config = replace(TINY, **{"worlds": 8, "minibatches": 2, **changes})
    assert DevicePlacement.shares(config, available) == used


def test_one_device_needs_no_mesh():
    placement = DevicePlacement.create(TINY, jax.devices()[:1])
    assert (placement.mesh, placement.count) == (None, 1)


def test_what_grows_with_the_worlds_is_spread_and_all_else_is_on_every_device():
    ppo = build(spread()).ppo
    places = DevicePlacement(Mesh(np.array(jax.devices()[:1]), (AXIS,))).places(ppo)
    state = jax.eval_shape(ppo.init, jax.random.key(0))
    for place, leaf in zip(
        jax.tree_util.tree_leaves(places.rollout), jax.tree_util.tree_leaves(state.rollout), strict=True
    ):
        split = [size for name, size in zip(place.spec, leaf.shape, strict=True) if name == AXIS]
        assert split in ([8], [16]), "worlds, or robots of all worlds"
    for part in (places.parameters, places.optimiser, places.key, places.updates):
        assert all(place.is_fully_replicated for place in jax.tree_util.tree_leaves(part))
        assert not any(AXIS in place.spec for place in jax.tree_util.tree_leaves(part))


def test_a_copied_folder_of_two_devices_is_complete(pair, tmp_path):
    # evaluated on another machine: nothing of the run lies outside its folder
    shutil.copytree(pair[0], tmp_path / "run")
    assert digest(load_parameters(build(spread()), tmp_path / "run")) == pair[1]["digest"]
