"""Policies that choose way-points: they learn, and the file does what was trained."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.policies.proven_file import trained_and_proven
from tests.policies.quick import TINY

from testudo_deploy.contract.waypoint_tracking import WaypointTracking
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_policies.evaluation.evaluation import evaluate_policy
from testudo_policies.evaluation.policy_under_test import load_policy_under_test
from testudo_policies.exporting.packaging import make_contract
from testudo_policies.learning.builder import build

pytestmark = pytest.mark.usefixtures("quick")

ROBOT = load_robot("gritsbot_x")
CHOOSING = replace(TINY, command="waypoints")


def test_what_cannot_be_trained_is_refused_in_one_sentence():
    with pytest.raises(TestudoError, match="--command waypoints: found --trainer brax-ppo, expected testudo"):
        build(replace(CHOOSING, trainer="brax-ppo"))


def test_contract_and_team_have_the_same_law():
    components = build(CHOOSING)
    law = WaypointTracking(0.8, ROBOT.control_point_speed_m_s)
    assert components.environment.team.tracking == law
    command = make_contract(components, []).command
    assert (command.type, command.gain_per_s, command.limit) == ("waypoint_world", law.gain_per_s, law.speed_limit_m_s)
    assert build(TINY).environment.team.tracking is None


def test_a_robot_in_simulation_drives_to_its_waypoint_as_the_law_says():
    environment = build(replace(CHOOSING, worlds=2)).environment
    world = jax.jit(environment.reset)(jax.random.split(jax.random.key(3), 2))
    model = environment.team.model
    begin = model.stopping_point(environment.scene(world).robots).position_world
    inward = -jnp.sign(begin) * jnp.array([0.08, 0.06])[:, None, None]
    run = jax.jit(environment.run_ticks)
    team, rests = world.team, [jnp.sqrt(jnp.sum(inward**2, axis=0))]
    for key in range(6):
        team, _ = run(replace(world, team=team), begin + inward, jax.random.key(key))
        point = model.stopping_point(environment.team.physics.scene(team.physics).robots).position_world
        rests.append(jnp.sqrt(jnp.sum((begin + inward - point) ** 2, axis=0)))
    ticks_s = environment.scenario.decision_ticks * ROBOT.control_period_s
    expected = rests[0] * np.exp(-0.8 * 6 * ticks_s)
    np.testing.assert_allclose(rests[-1], expected, atol=0.02)
    assert np.all(np.diff(np.array(rests), axis=0) < 0.003)


@pytest.mark.slow
def test_learning_raises_the_return():
    # the untrained policy mostly steps towards its goal; with a bias it stays where it is
    config = replace(
        CHOOSING, team_size=3, worlds=64, rollout=16, width=32, epochs=2, minibatches=4, learning_rate=3e-3,
        decisions=64 * 16 * 30, entropy=0.01,
    )  # fmt: skip
    learner = build(config).learner
    state = learner.start(jax.random.key(0))
    parameters = state.parameters.actor["params"]
    bias = {**parameters["mean"], "bias": jnp.array([4.0, 0.0, 0.0, 0.0, 0.0])}
    actor = {"params": {**parameters, "mean": bias}}
    state = replace(state, parameters=replace(state.parameters, actor=actor))
    update, rewards = jax.jit(learner.update), []
    for _ in range(24):
        state, metrics = update(state)
        rewards.append(float(metrics["train/reward"]))
    assert np.mean(rewards[:4]) < 0.5 * np.mean(rewards[-4:])


@pytest.mark.slow
def test_what_was_trained_is_what_the_file_commands(tmp_path):
    """Parity over random inputs and loops, the test vector, the robot's own loader, and the same team in simulation."""
    components = build(CHOOSING)
    _, paths = trained_and_proven(components, ROBOT, tmp_path)
    found = []
    for path in paths:
        tested = load_policy_under_test(path)
        environment = tested.environment(2)
        assert environment.team.tracking == components.environment.team.tracking
        found.append(evaluate_policy(environment, tested.policy, tested.memory, 4))
    assert found[0].mean_return == pytest.approx(found[1].mean_return, abs=1e-3)
    assert found[0].contacts == 0
    assert evaluate_policy(environment, None, 0, 4).success == 1.0  # the hand-written velocities, as way-points
