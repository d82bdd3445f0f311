"""`push_box` is learned: the return rises within a short training, with contact and on a stand-in without it."""

import math
from dataclasses import replace

import jax
import numpy as np
import pytest
from tests.sim.sliding_box import sliding_environment

from testudo_deploy.admission.fleet_admission import checked_safety_contracts
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.fleet.fleet import load_fleet
from testudo_policies.commands.export import export
from testudo_policies.learning.builder import build
from testudo_policies.learning.ppo import PPO
from testudo_policies.learning.training_run import train_run
from testudo_policies.networks.agent import Agent
from testudo_policies.train_config import TrainConfig

SHORT = TrainConfig(
    scenario="push_box", physics="mjx", form="planar", team_size=2, memory=0, worlds=32, rollout=16, epochs=4,
    minibatches=4, learning_rate=2e-3, discount=0.97, change_price=0.05, decisions=120_000,
)  # fmt: skip
"""Small worlds and many updates, for a return that rises early."""


def rewards_of(ppo, updates):
    """Return the mean reward of a decision and the successes in each update."""
    state = jax.jit(ppo.init)(jax.random.key(0))
    update = jax.jit(ppo.update)
    found = []
    for _ in range(updates):
        state, metrics = update(state)
        found.append((float(metrics["train/reward"]), float(metrics["train/successes"])))
    return np.array(found).T


def assert_rising(rewards, successes):
    """Fail unless the last quarter is clearly better than the first."""
    quarter = len(rewards) // 4
    first, last = rewards[:quarter], rewards[-quarter:]
    deviation = np.hypot(first.std(), last.std()) / np.sqrt(quarter)
    assert last.mean() - first.mean() > max(0.03, 4 * deviation)
    assert successes[-quarter:].sum() > 1.5 * successes[:quarter].sum()


@pytest.mark.slow
def test_the_return_rises_on_a_box_that_slides_without_inertia():
    """The scenario can be learned from its signals and rewards alone, whatever moves the box."""
    config = replace(SHORT, discount=0.95)
    environment = sliding_environment(2)
    environment = replace(environment, scenario=environment.scenario.for_training(), change_price=config.change_price)
    agent = Agent(
        config.networks, 2, environment.team.model.spec.control_point_speed_m_s, environment.scenario.observation
    )
    assert_rising(*rewards_of(PPO(config, agent, environment), config.updates))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_return_rises_on_mjx():
    """With contact and friction, on two cores, in minutes: from behind the box, to goals that are near."""
    components = build(replace(SHORT, epochs=8))
    environment, scenario = components.environment, components.environment.scenario
    easy = replace(scenario, behind=1.0, way_m=(scenario.way_m[0], 0.4))
    ppo = replace(components.learner, environment=replace(environment, scenario=easy))
    assert_rising(*rewards_of(ppo, components.config.updates))


@pytest.mark.slow
def test_an_export_is_equal_and_its_fleet_has_the_box(tmp_path):
    """The file is proven like any other; the fleet file holds goal and box of one start, and admission takes both."""
    config = replace(SHORT, worlds=4, rollout=4, epochs=1, minibatches=2, width=8, decisions=16)
    components, run = build(config), tmp_path / "run"
    assert train_run(components, run).finished
    export(run)
    artefact, fleet = PolicyArtefact.load(run / "policy.onnx"), load_fleet(run / "fleet.yaml")
    assert artefact.contract.parity["max_error"] <= 1e-5
    names = [signal.name for signal in artefact.contract.signals]
    assert names[-3:] == ["goal_world", "box_position_world", "box_quarter_yaw"]
    (body,), (box,) = fleet.bodies, components.environment.scenario.boxes
    assert (body.name, body.mass_kg) == ("box", pytest.approx(box.mass_kg, abs=1e-5))
    assert body.size_m == pytest.approx(box.size_m, abs=1e-5)
    way_m = math.dist(fleet.task["goal_world"], body.initial_position_world)
    assert components.environment.scenario.way_m[0] - 1e-3 < way_m < components.environment.scenario.way_m[1] + 1e-3
    assert checked_safety_contracts(fleet)
