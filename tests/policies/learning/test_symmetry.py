"""Steps of mapped worlds: what networks read, what robots did, and a task that is learned from them too."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.policies.learning.test_learners import success
from tests.policies.learning.two_places_task import components_of
from tests.policies.quick import TINY

from testudo_hardware.errors import TestudoError
from testudo_policies.learning.builder import build
from testudo_policies.learning.other_views import with_mapped
from testudo_policies.learning.rollout import Kept, collect_rollout
from testudo_sim.scenarios.symmetry import WorldMap

pytestmark = pytest.mark.usefixtures("quick")
ROBOTS = TINY.worlds * TINY.team_size


@pytest.mark.parametrize(
    "changes", [{}, pytest.param({"command": "waypoints", "scenario": "discovery"}, marks=pytest.mark.slow)]
)
def test_commands_of_mapped_worlds_are_the_mapped_commands(changes):
    """In the world the mapped action is the mapped command, whatever the frame of the features is."""
    components = build(replace(TINY, symmetry=True, **changes))
    agent, environment = components.agent, components.environment

    @jax.jit
    def run(key):
        state = components.learner.init(key)
        mapping = WorldMap.drawn(environment.scenario.symmetries, key, TINY.worlds)
        _, batch, _ = collect_rollout(
            agent, environment, state.parameters, state.rollout, key, 4, kept=Kept(True, mapping)
        )
        whole = with_mapped(agent, state.parameters, batch, mapping)
        commands = agent.command(whole.features, agent.distribution.postprocess(whole.action))
        return jax.tree.map(lambda x: jnp.repeat(x, TINY.team_size, axis=-1), mapping), whole, commands

    mapping, whole, commands = run(jax.random.key(0))
    assert whole.reward.shape == (4, 2 * ROBOTS)
    np.testing.assert_array_equal(whole.reward[:, :ROBOTS], whole.reward[:, ROBOTS:])
    expected = jnp.moveaxis(mapping.vector(jnp.moveaxis(commands[:, :ROBOTS], -1, 0)), 0, -1)
    np.testing.assert_allclose(commands[:, ROBOTS:], expected, atol=1e-5)
    assert np.abs(commands[:, ROBOTS:] - commands[:, :ROBOTS]).max() > 0.05
    assert np.all(whole.trust <= 1)
    assert np.mean(whole.trust[:, ROBOTS:]) > 0.8  # the untrained policy drives to the goal in a mirror too


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"scenario": "warehouse"}, "--symmetry: scenario 'warehouse' declares none here"),
        ({"memory": 8}, "--symmetry: found --memory 8, expected 0"),
        ({"algorithm": "vdn", "command": "waypoints"}, "--symmetry: found --algorithm vdn, expected mappo or ippo"),
    ],
)
def test_what_has_no_symmetry_is_refused(changes, text):
    with pytest.raises(TestudoError, match=text):
        build(replace(TINY, symmetry=True, **changes))


@pytest.mark.slow
def test_two_places_are_learned_with_their_mirror():
    assert success(components_of("mappo", memory=0, symmetry=True, epochs=4), 40) > 0.9
