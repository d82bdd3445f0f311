"""Training under all layers: the environment of a deployed team, with the prices and signals of training."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.policies.quick import TINY

from testudo_hardware.errors import TestudoError
from testudo_policies.learning.builder import build
from testudo_sim.deployed_environment import DeployedEnvironment

CONFIG = replace(TINY, layers="all", change_price=0.3, failures=0.1)


def test_the_environment_is_that_of_a_deployed_team_and_keeps_what_training_asks_for():
    environment = build(CONFIG).environment
    assert isinstance(environment, DeployedEnvironment)
    assert environment.layers == "all"
    assert environment.scoring.change_price == CONFIG.change_price
    assert environment.failures == CONFIG.failures
    assert environment.decision_s == pytest.approx(build(replace(CONFIG, layers="1")).environment.decision_s)


@pytest.mark.parametrize("message", [0, 2])
def test_policy_and_central_critic_read_the_same_signals_under_all_layers_as_under_the_first(message):
    """At the start of equal worlds, where nothing has been said yet: names, shapes and numbers."""
    found = []
    for layers in ("1", "all"):
        environment = build(replace(CONFIG, layers=layers, message=message)).environment

        @jax.jit
        def begun(keys, environment=environment):
            state = environment.reset(keys)
            central = {f"central_{name}": value for name, value in environment.central_signals(state).items()}
            return environment.signals(state) | central

        found.append(begun(jax.random.split(jax.random.key(0), 2)))
    one, every = found
    assert one.keys() == every.keys()
    for name, value in one.items():
        if "age" not in name:  # of messages by echo, which simulation steps of half the length bound closer
            np.testing.assert_allclose(value, every[name], atol=2e-3, err_msg=name)


@pytest.mark.slow
def test_a_world_that_begins_while_others_drive_is_as_one_that_begins_with_them():
    """World 0 is made to begin anew after two decisions; its next decisions are those of a first start."""
    environment = build(replace(CONFIG, failures=0.0, message=2)).environment
    begin = jax.jit(environment.reset)(jax.random.split(jax.random.key(1), 2))
    nominal = jnp.full((4, CONFIG.team_size, 2), 0.1)
    run = jax.jit(lambda state, key: environment.run_ticks(state, nominal, key)[0])

    def signals_after(state, count):
        for i in range(count):
            state = replace(state, team=run(state, jax.random.key(i)))
        return state, environment.signals(state) | environment.central_signals(state)

    drove, _ = signals_after(begin, 2)
    again = environment.restarted(np.array([True, False]), begin, drove)
    assert again.team.number.shape == ()
    found, expected = signals_after(again, 2)[1], signals_after(begin, 2)[1]
    for name, value in expected.items():
        np.testing.assert_allclose(found[name][0], value[0], atol=1e-5, err_msg=name)
    said = expected["neighbour_message"]
    assert float(np.abs(said).max()) == pytest.approx(0.1)  # the learned message of the last decision is heard
    assert not np.allclose(found["control_point_world"][1], expected["control_point_world"][1])  # control: went on


def test_more_ticks_than_numbers_of_messages_are_refused():
    with pytest.raises(TestudoError, match=r"--layers all: found .* ticks, expected at most 16777216; take more"):
        build(replace(CONFIG, decisions=2**24, worlds=8))
