"""`jax.device_put_replicated`, which brax calls and JAX removed: present while brax runs, reported when unnecessary."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from brax.training import pmap
from brax.training.agents.ppo import train as ppo
from brax.training.agents.sac import train as sac

from testudo_policies.brax import trainers as replicate
from testudo_policies.brax.trainers import NAME, device_put_replicated, replication_for_brax

SUPERFLUOUS = "remove `replication_for_brax` from policies/testudo_policies/brax/trainers.py"


def test_jax_has_not_got_it_back():
    assert not hasattr(jax, NAME), f"JAX has {NAME} again: {SUPERFLUOUS}"


def test_brax_still_calls_it():
    users = [module for module in (ppo, sac) if f"jax.{NAME}(" in inspect.getsource(module)]
    assert users, f"brax no longer calls {NAME}: {SUPERFLUOUS}"


def test_brax_fails_without_it_and_works_with_it():
    with pytest.raises(AttributeError, match=NAME):
        pmap.bcast_local_devices({"x": jnp.ones(3)})
    with replication_for_brax():
        replicated = pmap.bcast_local_devices({"x": jnp.ones(3)})
    assert replicated["x"].shape == (1, 3)


def test_it_is_gone_afterwards_also_when_training_fails():
    def interrupted():
        with replication_for_brax():
            assert getattr(jax, NAME) is device_put_replicated
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not hasattr(jax, NAME)


def test_a_jax_that_has_it_keeps_its_own(monkeypatch):
    monkeypatch.setattr(jax, NAME, len, raising=False)
    with replication_for_brax():
        assert getattr(jax, NAME) is len
    assert getattr(jax, NAME) is len


def test_every_leaf_is_on_every_device_as_a_pmapped_program_leaves_it():
    # else JAX compiles brax's training program a second time, for what the first step returned
    value = {"number": 2.0, "array": jnp.arange(6.0).reshape(2, 3)}
    placed = device_put_replicated(value, jax.local_devices())
    np.testing.assert_array_equal(placed["array"][0], value["array"])
    assert placed["number"].shape == (jax.local_device_count(),)
    program = jax.pmap(lambda x: x * 2, axis_name=replicate._AXIS)
    assert program(placed["array"]).sharding == placed["array"].sharding
    assert ppo._PMAP_AXIS_NAME == sac._PMAP_AXIS_NAME == replicate._AXIS
