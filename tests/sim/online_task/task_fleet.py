"""Fleets whose task is more than goals, with hand-written policies, and their drive in lock-step in one process."""

from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import onnx
from onnx import TensorProto, helper

from testudo_deploy.contract.contract import METADATA_KEY, robot_signals
from testudo_deploy.contract.messages import PeerMessage, TaskMessage, TickRecord
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.contract.rules import graph_inputs, graph_outputs
from testudo_deploy.control.control_loop import ControlLoop
from testudo_deploy.control.task_receiver import TaskReceiver
from testudo_deploy.fleet.fleet import Fleet, FleetRobot, load_fleet
from testudo_deploy.fleet.fleet_writer import save_fleet
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_hardware.motion import LagResponse, MotionState, motion_model
from testudo_hardware.motion.motion_model import effective_command
from testudo_hardware.spec import load_robot
from testudo_sim.go_to_goal import IR_VERSION, OPSET, go_to_goal_contract, with_test_vector
from testudo_sim.online_task.goal_orders import GoalOrders
from testudo_sim.online_task.online_task import OnlineTask
from testudo_sim.online_task.task_sender import TaskSender
from testudo_sim.online_task.task_state import Pose, bodies_of, scoring_of, task_of, values_of
from testudo_sim.scenarios.scenario import make_scenario

TARGETS = {
    # the first resource that is left, then the other one
    "foraging": [
        helper.make_node("Gather", ["resource_position_world", "zero"], ["first"], axis=1),
        helper.make_node("Gather", ["resource_position_world", "one"], ["second"], axis=1),
        helper.make_node("Gather", ["resource_valid", "zero"], ["left"], axis=1),
        helper.make_node("Sub", ["first", "second"], ["apart"]),
        helper.make_node("Mul", ["left", "apart"], ["share"]),
        helper.make_node("Add", ["second", "share"], ["target"]),
    ],
    "predator_prey": [helper.make_node("Identity", ["prey_position_world"], ["target"])],
    "navigation": [helper.make_node("Identity", ["goal_world"], ["target"])],
    "swap": [helper.make_node("Identity", ["goal_world"], ["target"])],
    # robots that stand behind the box push it there
    "push_box": [helper.make_node("Identity", ["goal_world"], ["target"])],
}
"""Nodes that compute the place `target` (B, 2) [m] to which a robot drives straight."""


def write_policy(path, scenario_name, spec, *, arena=None, speed_share=0.999):
    """Write a policy that drives straight to what the task signals say, and return its contract and scenario."""
    scenario = make_scenario(scenario_name, spec, projection_parameters(spec))
    contract = go_to_goal_contract(spec, arena=arena or scenario.arena).replace(
        scenario=scenario_name,
        signals=(*robot_signals(spec), *scenario.task_signals),
        decision_ticks=scenario.decision_ticks,
    )
    nodes = [
        *TARGETS[scenario_name],
        helper.make_node("Sub", ["target", "control_point_world"], ["offset"]),
        helper.make_node("ReduceL2", ["offset", "axis"], ["left_m"], keepdims=1),
        helper.make_node("Max", ["left_m", "limit"], ["far_m"]),
        helper.make_node("Div", ["limit", "far_m"], ["gain"]),
        helper.make_node("Mul", ["offset", "gain"], ["command"]),
    ]
    constants = [
        helper.make_tensor("limit", TensorProto.FLOAT, [], [speed_share * contract.command.limit]),
        helper.make_tensor("axis", TensorProto.INT64, [1], [1]),
        helper.make_tensor("zero", TensorProto.INT64, [], [0]),
        helper.make_tensor("one", TensorProto.INT64, [], [1]),
    ]

    def ports(shapes):
        return [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["B", *shape]) for name, shape in shapes.items()]

    graph = helper.make_graph(nodes, "task", ports(graph_inputs(contract)), ports(graph_outputs(contract)), constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    contract = with_test_vector(contract, model)
    helper.set_model_props(model, {METADATA_KEY: contract.to_json()})
    onnx.save(model, path)
    return contract, scenario


def make_task_fleet(folder, scenario_name="foraging", count=3, seed=0, robot="gritsbot_x"):
    """Write policy.onnx and fleet.yaml with the start of the task, and return the fleet."""
    folder, spec = Path(folder), load_robot(robot)
    _, scenario = write_policy(folder / "policy.onnx", scenario_name, spec)
    begin = jax.jit(lambda key: scenario.start(key, count))(jax.random.key(seed))
    places, yaws = np.asarray(begin.position_world, float).round(4).T.tolist(), np.asarray(begin.yaw, float).round(4)
    robots = tuple(
        FleetRobot(f"r{i}", robot, tuple(place), float(yaw), tuple(place), spec)
        for i, (place, yaw) in enumerate(zip(places, yaws, strict=True))
    )
    file, policy = folder / "fleet.yaml", folder / "policy.onnx"
    sha256, bodies = PolicyArtefact.load(policy).sha256, bodies_of(scenario.boxes, begin.bodies)
    save_fleet(Fleet(file, policy, sha256, robots, task=values_of(begin.task), bodies=bodies), file)
    return load_fleet(file)


def make_pushing_fleet(folder):
    """Write the same of `push_box`, with two robots side by side behind the box, 0.4 m from its goal."""
    fleet = make_task_fleet(folder, "push_box", 2)
    spec, box = fleet.robots[0].spec, replace(fleet.bodies[0], initial_position_world=(-0.2, 0.0), initial_yaw=0.0)
    behind, beside = -0.25 - box.size_m[0] / 2 - spec.body_radius_m, box.size_m[0] / 4
    places = [(behind, -beside), (behind, beside)]
    robots = tuple(
        replace(robot, initial_position_world=place, initial_yaw=0.0, goal_world=place)
        for robot, place in zip(fleet.robots, places, strict=True)
    )
    save_fleet(replace(fleet, robots=robots, bodies=(box,), task={"goal_world": [0.2, 0.0]}), fleet.file)
    return load_fleet(fleet.file)


class Drive:
    """Robots with perfect poses and the task node in one process; messages arrive one tick later."""

    def __init__(self, fleet):
        artefact = PolicyArtefact.load(fleet.policy, sha256=fleet.policy_sha256)
        spec, self.contract = fleet.robots[0].spec, artefact.contract
        self.fleet, self.artefact, self.spec, self.model = fleet, artefact, spec, motion_model(spec)
        self.loops = {
            robot.name: ControlLoop(
                artefact,
                spec,
                robot=robot.name,
                peers=fleet.peers(robot.name),
                goal_world=robot.goal_world,
                epoch="one",
            )
            for robot in fleet.robots
        }
        for name, loop in self.loops.items():
            loop.task = TaskReceiver.of(self.contract, robot=name, epoch="one", peers=fleet.peers(name))
        self.states = {
            robot.name: MotionState(
                np.array(robot.initial_position_world), np.array(robot.initial_yaw), np.zeros(spec.dimension)
            )
            for robot in fleet.robots
        }
        scoring = scoring_of(self.contract, spec)
        self.live = OnlineTask(scoring, fleet.names, task_of(scoring.scenario, fleet), open_end=fleet.orders)
        starts = {robot.name: robot.initial_position_world for robot in fleet.robots}
        self.orders = None
        if fleet.orders:
            self.orders = GoalOrders(self.live, self.contract, starts)
        self.sender = TaskSender(self.contract, scoring.scenario, fleet.names, "task")
        self._lag = LagResponse.create(np.array(spec.control_period_s), spec.velocity_lag_s)
        self.tick_count, self.task_runs = 0, True
        self._peers, self._task = [], []
        self.records, self.messages, self.scores = {name: [] for name in fleet.names}, [], []

    @property
    def now_s(self):
        return 1.0 + self.tick_count * self.spec.control_period_s

    def tick(self):
        """Run one control tick of all robots, and the task node, and return the records."""
        now_s = self.now_s
        peers, self._peers = self._peers, []
        task, self._task = self._task, []
        for message in task:
            self.loops[message.robot].task.hear(message, now_s)
        for name, loop in self.loops.items():
            state = self.states[name]
            place, velocity = tuple(map(float, state.position_world)), tuple(map(float, state.velocity))
            loop.on_odometry(now_s - 0.005, now_s, place, float(state.yaw), velocity)
            self.live.on_pose(name, now_s - 0.005, now_s, Pose(place, float(state.yaw), velocity))
            for message in peers:
                if message.robot != name:
                    loop.on_peer(message, now_s)
            self.records[name].append(TickRecord.decode(loop.tick(now_s).encode()))
            self._peers.append(PeerMessage.decode(loop.announcement(now_s).encode()))
        self._run_task(now_s)
        for name, state in self.states.items():
            command = effective_command(self.model, np.array(self.records[name][-1].sent_command))
            self.states[name] = self.model.step(state, command, self._lag)
        self.tick_count += 1
        return {name: records[-1] for name, records in self.records.items()}

    def _run_task(self, now_s):
        if not self.task_runs:
            return
        for message in self._peers:
            self.sender.hear(message)
        if not self.live.running and not self.scores and all(not r[-1].reason for r in self.records.values()):
            self.live.begin(now_s)
        self.scores += self.live.advance(now_s)
        if self.orders is not None:
            self.orders.step(now_s)
        sample = self.live.sample(now_s)
        if sample is not None:
            found = self.sender.messages(sample, now_s)
            self._task = [TaskMessage.decode(message.encode()) for message in found]
            self.messages += self._task
