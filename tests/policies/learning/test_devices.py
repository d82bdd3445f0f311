"""What the program says of its devices, how many worlds it chooses for them, and what it says when they are full."""

import jax
import jax.numpy as jnp
import pytest
from tests.policies.quick import TINY

from testudo_hardware.errors import TestudoError
from testudo_policies.learning.builder import build
from testudo_policies.learning.training_run import train_run
from testudo_policies.learning.world_count import bytes_per_world, explain_out_of_memory, largest_that_fits
from testudo_policies.train_config import TrainConfig
from testudo_sim.devices import PRECISION, Devices, devices

pytestmark = pytest.mark.usefixtures("quick")
GIB = 2**30
LARGE = TrainConfig(decisions=10**9)


def gpus(count=1, memory_gib=80.0):
    return Devices("gpu", "NVIDIA H200", count, 1, int(memory_gib * GIB), PRECISION)


def test_the_device_is_told_in_one_line():
    found = devices()
    assert found.platform == "cpu"
    assert found.memory_bytes > 0.1 * GIB
    assert found.text.startswith("device cpu, ")
    assert gpus(2).text == "device 2 x NVIDIA H200 (gpu), 80.0 GiB each, matrix products highest"
    assert found.to_dict()["count"] == jax.device_count()


def test_matrix_products_are_float32_wherever_our_environment_is_imported():
    assert jax.config.jax_default_matmul_precision == PRECISION == TrainConfig().precision
    text = str(jax.make_jaxpr(jnp.dot)(jnp.ones((2, 2)), jnp.ones((2, 2))))
    assert "HIGHEST" in text


def test_training_uses_the_precision_that_its_configuration_states():
    with pytest.raises(TestudoError, match="--precision: found 'double', expected one of highest, high, default"):
        build(TrainConfig(precision="double"))


@pytest.mark.parametrize(
    ("config", "found", "world_bytes", "worlds", "reason"),
    [
        (LARGE, gpus(), 200_000, 65_536, "only make a step slower"),
        (LARGE, gpus(4), 200_000, 4 * 65_536, "only make a step slower"),
        (LARGE, gpus(memory_gib=8), 200_000, 32_768, "would not fit into device memory"),
        (LARGE, gpus(2, 8), 200_000, 2 * 32_768, "would not fit into device memory"),
        (LARGE, gpus(3, 8), 200_000, 3 * 32_768, "would not fit into device memory"),
        (TrainConfig(), gpus(), 200_000, 256, "fewer than 50 updates of --decisions 700000"),
        (LARGE, Devices("cpu", "cpu", 1, 1, 16 * GIB, PRECISION), 200_000, 256, "only make a step slower"),
    ],
)  # fmt: skip
def test_worlds_are_chosen_by_memory_length_and_use(config, found, world_bytes, worlds, reason):
    sizing = largest_that_fits(config, found, world_bytes)
    assert sizing.worlds == worlds
    assert reason in sizing.reason
    assert f"--worlds {worlds}: " in sizing.reason


@pytest.mark.parametrize(
    ("config", "found", "world_bytes", "message"),
    [
        (LARGE, gpus(memory_gib=1), 2 * GIB, "would not fit into device memory; give fewer --minibatches"),
        (TrainConfig(minibatches=7), gpus(), 200_000, "give fewer --minibatches"),
    ],
)
def test_worlds_that_cannot_be_chosen_are_told(config, found, world_bytes, message):
    with pytest.raises(TestudoError, match=message):
        largest_that_fits(config, found, world_bytes)


def test_the_memory_of_a_world_is_what_the_compiler_says(quick):
    one = bytes_per_world(TINY)
    state = jax.eval_shape(build(TINY).learner.init, jax.random.key(0)).rollout
    held = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree_util.tree_leaves(state.worlds.team.physics))
    assert one > 2 * held / TINY.worlds, "at least the state before and after an update"
    assert one < 200_000


def test_full_memory_is_told_in_a_sentence_that_names_the_option(tmp_path, monkeypatch):
    def full(*_):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 99999999 bytes.")

    monkeypatch.setattr("testudo_policies.learning.training_run._compiled", full)
    with pytest.raises(TestudoError) as caught:
        train_run(build(TINY), tmp_path)
    assert str(caught.value).startswith("--worlds: the memory of cpu, ")
    assert "is too small for 4 worlds; try --worlds 2 in a new run, or 0" in str(caught.value)


def test_another_failure_of_the_device_stays_what_it_is():
    with pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL"), explain_out_of_memory(TINY):
        raise jax.errors.JaxRuntimeError("INTERNAL: something else")
