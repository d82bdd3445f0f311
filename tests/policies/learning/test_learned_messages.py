"""Policies with a message to their peers: it travels as announcements do, is exported, and is learnt where it helps."""

import json
from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.policies.learning.guide_task import guide_components, success
from tests.policies.proven_file import trained_and_proven
from tests.policies.quick import TINY

from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_policies.evaluation.evaluation import evaluate_policy
from testudo_policies.evaluation.policy_under_test import load_policy_under_test, untrained_policy
from testudo_policies.exporting.packaging import make_contract
from testudo_policies.learning.builder import build
from testudo_policies.networks.actor_critic import NetworkConfig
from testudo_policies.networks.agent import Agent
from testudo_policies.networks.spoken_choice import SpokenChoice
from testudo_policies.networks.waypoint_choice import WaypointChoice
from testudo_sim.deployed_environment import DeployedEnvironment
from testudo_sim.physics_choice import PhysicsChoice
from testudo_sim.scenarios.scenario import Observation

pytestmark = pytest.mark.usefixtures("quick")

ROBOT = load_robot("gritsbot_x")
TALKING = replace(TINY, message=2)
SAID = jnp.array([[0.5, -0.25, 1.0], [0.75, 0.125, -1.0]])  # (M, N)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"trainer": "brax-ppo"}, "--message 2: found --trainer brax-ppo, expected testudo"),
        ({"message": 33}, "--message: found 33, expected 0 to 32"),
        ({"message": -1}, "--message: found -1, expected 0 to 32"),
    ],
)
def test_what_cannot_be_trained_is_refused_in_one_sentence(change, expected):
    with pytest.raises(TestudoError, match=expected):
        build(replace(TALKING, **change))


def test_without_a_message_nothing_of_a_policy_changes():
    plain = build(TINY)
    values = json.loads(make_contract(plain, []).replace(provenance={}).to_json())
    assert "message" not in json.dumps(values)
    assert (plain.agent.action_size, plain.environment.team.message_size) == (2, 0)
    world = jax.eval_shape(plain.environment.reset, jax.random.split(jax.random.key(0), 2))
    assert "neighbour_message" not in jax.eval_shape(plain.environment.signals, world)


@pytest.mark.parametrize("deployed", [False, pytest.param(True, marks=pytest.mark.slow)])  # see test_message_radio.py
def test_a_message_arrives_at_every_peer_unless_it_is_lost_and_the_critic_reads_it_before(deployed):
    environment = build(replace(TALKING, team_size=3, worlds=2)).environment
    if deployed:
        environment = DeployedEnvironment.of(environment, PhysicsChoice())

    @jax.jit
    def signals(command):
        """Return what is heard (E, N, K, M) at the start, later, and by the critic; all is lost in the second world."""
        world = environment.reset(jax.random.split(jax.random.key(3), 2))
        begin = environment.signals(world)
        losses = replace(world.team.parameters, message_loss=jnp.array([0.0, 1.0]))
        world = replace(world, team=replace(world.team, parameters=losses))
        end = replace(world, team=environment.run_ticks(world, command, jax.random.key(0))[0])
        central = environment.signals(end) if deployed else environment.central_signals(end)
        return tuple(found["neighbour_message"] for found in (begin, environment.signals(end), central))

    begin, end, central = signals(jnp.stack([jnp.concatenate([jnp.zeros((2, 3)), SAID])] * 2, axis=-1))
    assert begin.shape == (2, 3, 2, 2)
    assert not begin.any()  # nobody has said anything
    expected = np.stack([np.roll(SAID.T, -(slot + 1), axis=0) for slot in range(2)], axis=1)
    np.testing.assert_array_equal(end[0], expected)
    assert not end[1].any()
    if not deployed:
        np.testing.assert_array_equal(central[1], expected)


def test_the_distribution_of_a_choice_and_a_message_is_their_product():
    choice = WaypointChoice(2, 0.2, None)
    both, parameters = SpokenChoice(choice, 2), jax.random.normal(jax.random.key(0), (4, 5 + 4))
    action = both.sample_no_postprocessing(parameters, jax.random.key(1))
    said = both.postprocess(action)
    assert (action.shape, said.shape) == ((4, 3), (4, 7))
    np.testing.assert_array_equal(jnp.sum(said[:, :5], axis=-1), jnp.ones(4))
    assert jnp.all(jnp.abs(said[:, 5:]) < 1)
    apart = choice.log_prob(parameters[:, :5], action[:, 0])
    moved = both.log_prob(parameters, action.at[:, 0].set((action[:, 0] + 1) % 5))
    other = choice.log_prob(parameters[:, :5], (action[:, 0] + 1) % 5)
    np.testing.assert_allclose(both.log_prob(parameters, action) - moved, apart - other, atol=1e-5)
    np.testing.assert_allclose(both.mode(parameters)[:, 5:], jnp.tanh(parameters[:, 5:7]), atol=1e-6)


def test_a_message_comes_after_the_yaw_rate():
    agent = Agent(NetworkConfig(), 3, 0.4, Observation(), yaw_rate_limit=2.0, message_size=2)
    assert agent.action_size == 6
    features = SimpleNamespace(frame=jnp.array([1.0, 0.0]), speed=None)
    command = agent.command(features, jnp.array([0.5, 0.0, 0.0, 1.0, 0.3, -0.3]))
    np.testing.assert_allclose(command, [0.2, 0.0, 0.0, 2.0, 0.3, -0.3], atol=1e-6)


def test_the_contract_says_what_a_policy_says():
    contract = make_contract(build(TALKING), [])
    assert contract.command.message_size == 2
    assert contract.signals[8].shape == ("neighbours", 2)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["velocity", "waypoints"])
def test_the_exported_file_says_what_was_trained(tmp_path, command):
    components = build(replace(TALKING, command=command, memory=4))
    artefact, paths = trained_and_proven(components, ROBOT, tmp_path)
    assert artefact.contract.command.message_size == 2
    assert artefact.contract.signals[8].shape == ("neighbours", 2)
    for tested in map(load_policy_under_test, paths):
        assert tested.environment(2, all_layers=True).team.message_size == 2


@pytest.mark.slow
def test_a_policy_with_a_message_is_evaluated_as_deployed_beside_the_silent_hand_written_one():
    components = build(TALKING)
    deployed = DeployedEnvironment.of(components.environment, PhysicsChoice())
    for policy in (untrained_policy(components), None):
        assert evaluate_policy(deployed, policy, 0, episodes=2).episodes == 2


@pytest.mark.slow
def test_a_message_is_learnt_where_only_one_robot_knows_the_way():
    talking, silent = (success(guide_components(message)) for message in (2, 0))
    assert talking > 0.9
    assert silent < 0.6
