"""Attention over neighbours and entities: no order, no effect of what is absent or far, any number, one file."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from tests.policies.learning.test_learners import success
from tests.policies.learning.two_places_task import components_of
from tests.policies.proven_file import trained_and_proven
from tests.policies.quick import TINY
from tests.policies.team_signals import random_signals, with_entry, with_slots

from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_policies.learning.builder import build
from testudo_policies.networks.actor_critic import NetworkConfig
from testudo_policies.networks.agent import Agent
from testudo_sim.scenarios.scenario import Observation

pytestmark = pytest.mark.usefixtures("quick")
SIZE, RANGE_M = 6, Observation.peer_range_m


@pytest.fixture(scope="module")
def command(quick):
    """Return signals with neighbours and marks, and the commands of a network whose parameters all have an effect."""
    spec = load_robot("gritsbot_x")
    agent = Agent(NetworkConfig(width=12, attention=True), 2, spec.control_point_speed_m_s, Observation())
    rng = np.random.default_rng(1)
    named = random_signals(spec, SIZE) | {
        "mark_position_world": rng.normal(0, 1, (SIZE, 3, 2)).astype(np.float32),
        "mark_valid": with_entry(np.ones((SIZE, 3, 1)), np.s_[:, 1], 0.0),
    }
    features = jax.jit(agent.encode)(named)
    fresh = jax.jit(agent.init)(jax.random.key(0), features, features)
    actor = jax.tree.map(lambda x: np.asarray(x) + rng.normal(0, 0.3, x.shape).astype(np.float32), fresh.actor)
    policy, still = jax.jit(agent.policy(replace(fresh, actor=actor))), np.zeros((SIZE, 0), np.float32)
    return named, lambda signals: np.asarray(policy(signals, still)[0])


def test_order_and_absence_change_nothing_and_all_else_does(command):
    named, of = command
    first = of(named)
    for order in ([3, 2, 1, 0], [1, 3, 0, 2]):
        np.testing.assert_allclose(of(with_slots(named, order)), first, atol=1e-5)
    place, valid = named["mark_position_world"], named["mark_valid"]
    turned = named | {"mark_position_world": place[:, ::-1], "mark_valid": valid[:, ::-1]}
    np.testing.assert_allclose(of(turned), first, atol=1e-5)
    np.testing.assert_allclose(
        of(named | {"mark_position_world": with_entry(place, np.s_[:, 1], 1e4)}), first, atol=1e-5
    )
    assert (
        np.abs(of(named | {"mark_position_world": with_entry(place, np.s_[:, 0], place[:, 0] + 1.0)}) - first).max()
        > 1e-3
    )
    assert np.abs(of(with_slots(named, [0])) - first).max() > 1e-3
    assert np.isfinite(of(named | {"mark_valid": 0 * valid, "neighbour_valid": 0 * named["neighbour_valid"]})).all()


def test_a_neighbour_fades_out_towards_the_range(command):
    """Also a single one, whose weight among others would be all: at the range it counts as none."""
    named, of = command
    one = with_slots(named, [0])
    none = of(one | {"neighbour_valid": 0 * one["neighbour_valid"]})
    point = named["control_point_world"][:, None]

    def at(distance_m):
        return of(one | {"neighbour_position_world": point + np.array([distance_m, 0.0])})

    np.testing.assert_allclose(at(RANGE_M + 0.1), none, atol=1e-6)
    np.testing.assert_allclose(at(RANGE_M * 0.9999), none, atol=1e-3)
    assert np.abs(at(0.3) - none).max() > 1e-3


def test_the_file_equals_the_network_with_entities_and_any_number_of_neighbours(tmp_path):
    """Proven on random inputs and along loops; drop-out and memory are of the training and of the file."""
    config = replace(TINY, scenario="discovery", network="attention", drop_out=0.5, memory=4, decisions=16)
    artefact, _ = trained_and_proven(build(config), None, tmp_path)
    assert artefact.contract.provenance["config"]["network"] == "attention"


def test_an_unknown_network_and_drop_out_with_brax_are_refused():
    with pytest.raises(TestudoError, match="--network: found 'deep', expected one of pooled, attention"):
        build(replace(TINY, network="deep"))
    with pytest.raises(TestudoError, match=r"--drop-out: found 1\.5, expected 0 to 1"):
        build(replace(TINY, drop_out=1.5))
    with pytest.raises(TestudoError, match="--drop-out: found --trainer brax-ppo, expected testudo"):
        build(replace(TINY, drop_out=0.2, trainer="brax-ppo"))


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["mappo", "maddpg"])
def test_two_places_are_learned_with_attention(algorithm):
    components = components_of(algorithm, memory=0, network="attention", drop_out=0.3, epochs=4)
    assert success(components, 60) > 0.9
