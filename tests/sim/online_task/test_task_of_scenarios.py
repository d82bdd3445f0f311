"""Every scenario can run on a fleet: its start goes through a fleet file, its signals through messages to robots."""

from importlib.metadata import entry_points
from pathlib import Path

import jax
import numpy as np
import pytest
import yaml
from tests.sim.online_task.test_task_sender import announcement

from testudo_deploy.contract.contract import robot_signals
from testudo_deploy.contract.messages import TaskMessage
from testudo_deploy.control.task_receiver import TaskReceiver
from testudo_deploy.fleet.fleet import Fleet, FleetRobot
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_hardware.motion import MotionState
from testudo_hardware.spec import load_robot
from testudo_sim.go_to_goal import go_to_goal_contract
from testudo_sim.online_task.task_sender import TaskSample, TaskSender
from testudo_sim.online_task.task_state import task_of, values_of
from testudo_sim.physics.scene import Scene
from testudo_sim.scenarios.scenario import make_scenario

TEAM = 4
DRONES = ("escort",)
MEASURED = ("push_box",)  # its box is no point of the task
FOUND = [point for point in entry_points(group="testudo.scenarios") if point.value.startswith("testudo_sim.")]
NAMES = sorted({point.name for point in FOUND} - set(MEASURED))


@pytest.mark.parametrize("name", NAMES)
def test_a_start_and_the_signals_reach_the_robots(name):
    spec = load_robot("crazyflie_2x" if name in DRONES else "gritsbot_x")
    scenario = make_scenario(name, spec, projection_parameters(spec))
    begin = jax.tree.map(np.asarray, jax.jit(lambda key: scenario.start(key, TEAM))(jax.random.key(3)))
    places = np.asarray(begin.position_world, float).T
    robots = tuple(FleetRobot(f"r{i}", spec.name, tuple(row), 0.0, tuple(row), spec) for i, row in enumerate(places))
    written = yaml.safe_load(yaml.safe_dump(values_of(begin.task)))
    task = task_of(scenario, Fleet(Path("fleet.yaml"), Path("policy.onnx"), "", robots, task=written))
    for first, second in zip(jax.tree.leaves(begin.task), jax.tree.leaves(task), strict=True):
        assert first.dtype == second.dtype
        np.testing.assert_allclose(np.asarray(first, float), np.asarray(second, float)[..., 0], atol=1e-6)
    contract = go_to_goal_contract(spec, arena=scenario.arena).replace(
        scenario=name, signals=(*robot_signals(spec), *scenario.task_signals)
    )
    names = tuple(robot.name for robot in robots)
    scene = Scene(MotionState(begin.position_world[..., None], begin.yaw[:, None], 0 * begin.position_world[..., None]))
    signals = jax.tree.map(np.asarray, jax.jit(scenario.signals)(task, scene))
    sender = TaskSender(contract, scenario, names, "task")
    values = {one: {key: value[..., i, 0] for key, value in signals.items()} for i, one in enumerate(names)}
    sample = TaskSample(values, 0.0)
    for one in names:
        sender.hear(announcement(one))
    for message in sender.messages(sample, 9.0):
        peers = tuple(one for one in names if one != message.robot)
        task_of_robot = TaskReceiver(
            contract.task_signals, contract.task_hash, robot=message.robot, epoch="a", peers=peers
        )
        assert task_of_robot.hear(TaskMessage.decode(message.encode()), 5.1), task_of_robot.fault(5.1)
        assert task_of_robot.fault(5.1) == ""
