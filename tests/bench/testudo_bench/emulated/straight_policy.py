"""The policy of the emulated fleets: at full speed straight to the goal, as the hand-written one of `navigation`."""

from pathlib import Path

import onnx
from onnx import TensorProto, helper

from testudo_deploy.contract.contract import METADATA_KEY
from testudo_deploy.contract.rules import graph_inputs, graph_outputs
from testudo_hardware.spec import RobotSpec
from testudo_sim.go_to_goal import IR_VERSION, OPSET, go_to_goal_contract, with_test_vector
from testudo_sim.scenarios.navigation import Navigation

_SLOWS_S = 0.7  # it slows down where its full speed would take it to the goal in this time: two decisions


def write_straight_policy(path: Path, spec: RobotSpec, scenario: Navigation, team_size: int) -> None:
    """Write the policy file of a robot on the ground for an arena."""
    contract = go_to_goal_contract(spec, arena=scenario.arena, team_size=team_size)
    contract = contract.replace(decision_ticks=scenario.decision_ticks)
    speed = contract.command.limit
    nodes = [
        helper.make_node("Sub", ["goal_world", "position_world"], ["way"]),
        helper.make_node("ReduceL2", ["way", "last"], ["length"], keepdims=1),
        helper.make_node("Max", ["length", "least"], ["positive"]),
        helper.make_node("Div", ["way", "positive"], ["direction"]),
        helper.make_node("Mul", ["length", "gain"], ["slowing"]),
        helper.make_node("Min", ["slowing", "full"], ["speed"]),
        helper.make_node("Mul", ["direction", "speed"], ["command"]),
    ]
    constants = [
        helper.make_tensor("last", TensorProto.INT64, [1], [-1]),
        helper.make_tensor("least", TensorProto.FLOAT, [], [1e-6]),
        helper.make_tensor("gain", TensorProto.FLOAT, [], [1 / _SLOWS_S]),
        helper.make_tensor("full", TensorProto.FLOAT, [], [speed]),
    ]
    inputs, outputs = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["B", *shape]) for name, shape in shapes.items()]
        for shapes in (graph_inputs(contract), graph_outputs(contract))
    )
    graph = helper.make_graph(nodes, "straight", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    contract = with_test_vector(contract, model)
    helper.set_model_props(model, {METADATA_KEY: contract.to_json()})
    onnx.save(model, path)
