"""Parameters of robots that are not shared: who learns what, in which file they end, and what is refused."""

from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.policies.learning.test_learners import success
from tests.policies.learning.two_places_task import components_of
from tests.policies.proven_file import trained_and_proven
from tests.policies.quick import TINY
from tests.policies.team_signals import random_signals

from testudo_deploy.fleet.fleet import load_fleet
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import MotionState
from testudo_hardware.spec import load_robot
from testudo_policies.evaluation.policy_under_test import load_policy_under_test
from testudo_policies.exporting.packaging import write_fleet
from testudo_policies.learning.builder import build
from testudo_policies.learning.sharing import changed_only
from testudo_policies.learning.training_run import load_parameters
from testudo_policies.networks.actor_critic import NetworkConfig
from testudo_policies.networks.agent import Agent
from testudo_sim.online_task.task_sender import TaskSender
from testudo_sim.online_task.task_state import make_task, scoring_of, task_of
from testudo_sim.physics.scene import Scene
from testudo_sim.scenarios.scenario import Observation

pytestmark = pytest.mark.usefixtures("quick")
OWN = replace(TINY, sharing="none", algorithm="ippo")


@pytest.fixture(scope="module")
def trained(tmp_path_factory, quick):
    """Return the parts of a tiny run of robots with parameters of their own, its artefact, and both as files."""
    components = build(OWN)
    return components, *trained_and_proven(components, None, tmp_path_factory.mktemp("own"))


def test_each_robot_of_the_file_drives_by_its_own_parameters(trained):
    """The file equals the networks in which each robot has its part, and other numbers drive otherwise."""
    components, artefact, (_, run) = trained
    parameters, agent = load_parameters(components, run), components.agent
    assert all(leaf.shape[0] == OWN.team_size for leaf in jax.tree.leaves((parameters.actor, parameters.critic)))
    rows = {name: np.array(value, np.float32) for name, value in artefact.contract.test_vector.inputs.items()}
    assert rows["robot_number"][:, 0].tolist() == [0, 1, 0, 1]
    features = agent.encode(rows)
    fresh, still = jnp.zeros((1, 4), bool), agent.blank_memory(4)
    logits, _ = agent.act(parameters, jax.tree.map(lambda x: x[None], features), still, fresh)
    expected = agent.command(features, agent.distribution.mode(logits[0]))
    for index, command in enumerate(np.asarray(expected)):
        signals = {name: value[index] for name, value in rows.items()}
        found, _ = artefact.step(signals, artefact.initial_hidden())
        np.testing.assert_allclose(found, command, atol=1e-5)
        signals["robot_number"] = 1 - signals["robot_number"]
        assert np.abs(artefact.step(signals, artefact.initial_hidden())[0] - command).max() > 1e-5


def test_a_robot_has_the_parameters_of_its_role_in_any_order_of_roles():
    """The policy that goes by the number equals the networks of the team, where roles are not side by side."""
    spec, groups = load_robot("gritsbot_x"), (0, 1, 1, 0)
    config = NetworkConfig(width=8, memory=3)
    agent = Agent(config, 2, spec.control_point_speed_m_s, Observation(), groups=groups)
    rng = np.random.default_rng(0)
    signals = random_signals(spec, 8) | {"robot_number": jnp.tile(jnp.arange(4.0)[:, None], (2, 1))}
    hidden = jnp.asarray(rng.normal(0, 0.5, (8, 3)), jnp.float32)

    @jax.jit
    def both(key):
        features = agent.encode(signals)
        parameters = agent.init(jax.random.key(0), features, features)
        parameters = replace(
            parameters, actor=jax.tree.map(lambda x: x + 0.3 * jax.random.normal(key, x.shape), parameters.actor)
        )
        found = agent.policy(parameters)(signals, hidden)
        logits, memory = agent.act(
            parameters, jax.tree.map(lambda x: x[None], features), hidden, jnp.zeros((1, 8), bool)
        )
        one = agent.policy(parameters)(signals | {"robot_number": jnp.ones((8, 1))}, hidden)
        return found, (agent.command(features, agent.distribution.mode(logits[0])), memory), one

    found, expected, one = both(jax.random.key(1))
    for mine, networks in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, networks, atol=1e-5)
    apart = np.abs(found[0] - one[0]).max(axis=1)
    assert (apart[[1, 5]] < 1e-6).all()  # robots that have this number
    assert (apart[[0, 3, 4, 7]] > 1e-3).all()  # those of the other role


def test_a_file_of_own_parameters_is_for_its_team_alone(trained):
    components, artefact, paths = trained
    for path in paths:
        under_test = load_policy_under_test(path)
        assert under_test.environment(2).scenario.task_signals[-1].name == "robot_number"
        with pytest.raises(TestudoError, match="found a team of 3, expected 2: each of these robots has its own"):
            under_test.environment(3)
    scenario = scoring_of(artefact.contract, components.spec).scenario
    assert scenario.task_signals == artefact.contract.task_signals  # what the task node of a fleet sends
    with pytest.raises(TestudoError, match="found a team of 3"):
        make_task(scenario, [[0.0, 0.0]] * 3)


def test_the_fleet_file_of_own_parameters_has_a_task_so_that_the_station_sends_the_numbers(trained, tmp_path):
    components, artefact, (file, _) = trained
    report = SimpleNamespace(path=file, sha256=artefact.sha256)
    fleet = load_fleet(write_fleet(components, report, tmp_path / "fleet.yaml", 0))
    scenario = scoring_of(artefact.contract, components.spec).scenario
    task = task_of(scenario, fleet)
    np.testing.assert_allclose(task.goal_world[..., 0], fleet.task["goal_world"], atol=1e-6)
    scene = Scene(MotionState(jnp.zeros((2, 2, 1)), jnp.zeros((2, 1)), jnp.zeros((2, 2, 1))))
    assert scenario.signals(task, scene)["robot_number"][0, :, 0].tolist() == [0, 1]
    TaskSender(artefact.contract, scenario, fleet.names, "epoch")  # refuses other signals than the policy reads


def test_only_the_moving_robots_change():
    new, old = {"w": jnp.ones((3, 2))}, {"w": jnp.zeros((3, 2))}
    moving = jnp.array([False, True, False, False])
    assert changed_only(moving, (0, 1, 1, 2), new, old)["w"].tolist() == [[0, 0], [1, 1], [0, 0]]


def test_robots_of_a_role_share_and_a_scenario_without_roles_is_refused():
    assert build(replace(TINY, scenario="discovery", team_size=4, sharing="role")).agent.groups == (0, 0, 1, 1)
    with pytest.raises(TestudoError, match="--sharing role: scenario 'navigation' declares no roles"):
        build(replace(TINY, sharing="role"))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"sharing": "own"}, "--sharing: found 'own', expected one of shared, none, role"),
        ({"sharing": "none", "trainer": "brax-ppo"}, "--sharing: found --trainer brax-ppo, expected testudo"),
        ({"joint_ratio": True, "algorithm": "hasac"}, "--joint-ratio: found --algorithm hasac, expected mappo or ippo"),
        (
            {"shared_experience": True, "algorithm": "ippo"},
            "--shared-experience: found --sharing shared, expected none",
        ),
        ({"shared_experience": True}, "--shared-experience: found --algorithm mappo, expected ippo"),
        ({"sharing": "none", "worlds": 3, "minibatches": 2}, "--minibatches: 2 does not divide 3 worlds"),
    ],
)
def test_options_that_do_not_go_together_are_refused(changes, text):
    with pytest.raises(TestudoError, match=text):
        build(replace(TINY, **changes))


SLOW = [
    ("mappo", 60, {}),
    ("hasac", 60, {}),
    ("ippo", 40, {"shared_experience": True}),
    ("mappo", 60, {"sharing": "shared", "joint_ratio": True}),
    ("pqn-vdn", 60, {"command": "waypoints", "trace": 0.3, "epochs": 2}),
]


@pytest.mark.parametrize(
    ("algorithm", "updates", "more"),
    [("ippo", 60, {}), *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW)],
)
def test_robots_with_own_parameters_learn_their_parts(algorithm, updates, more):
    """Two places, one reward for the team; with shared experience, and with the joint ratio of robots that share."""
    options = {"memory": 0, "sharing": "none", "epochs": 4, **more}
    assert success(components_of(algorithm, **options), updates) > 0.9
