"""Writes a policy file without training that drives straight to the goal, to try out robots, links and faults."""

import math
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

from testudo_deploy.contract.command_types import turns, velocity_command
from testudo_deploy.contract.contract import (
    COMMAND_TYPE,
    HOLD_RULE,
    METADATA_KEY,
    VELOCITY_YAW_RATE,
    VERSION,
    WAYPOINT,
    Contract,
    Signal,
    TestVector,
    robot_signals,
)
from testudo_deploy.contract.rules import graph_inputs, graph_outputs
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_deploy.shield.velocity_projection import Arena
from testudo_hardware.spec import RobotSpec

OPSET, IR_VERSION = 21, 10
_DECISION_TICKS = 10


def write_go_to_goal_policy(
    path: Path,
    spec: RobotSpec,
    *,
    arena: Arena | None = None,
    team_size: int = 4,
    yaw_rate: float | None = None,
    waypoint: bool = False,
) -> Contract:
    """Write the policy of a robot and return its contract; with ``yaw_rate`` [rad/s] a drone turns permanently.

    With ``waypoint`` it commands the goal as its way-point.

    Raises:
        ContractError: a yaw rate for a robot without yaw rates.
    """
    kind = WAYPOINT if waypoint else COMMAND_TYPE if yaw_rate is None else VELOCITY_YAW_RATE
    contract = go_to_goal_contract(spec, arena=arena, team_size=team_size, command_type=kind)
    model = go_to_goal_model(contract, yaw_rate=yaw_rate or 0.0)
    contract = with_test_vector(contract, model)
    helper.set_model_props(model, {METADATA_KEY: contract.to_json()})
    onnx.save(model, path)
    return contract


def go_to_goal_contract(
    spec: RobotSpec, *, arena: Arena | None, team_size: int = 4, hidden_size: int = 0, command_type: str = COMMAND_TYPE
) -> Contract:
    """Return the contract without test vector."""
    size = spec.dimension
    return Contract(
        version=VERSION,
        scenario="navigation",
        robot=spec.name,
        robot_spec=spec.to_dict(),
        robot_sha256=spec.sha256,
        dimension=size,
        signals=(*robot_signals(spec), Signal("goal_world", (size,), "m", "world", None)),
        command=velocity_command(command_type, spec),
        hidden_size=hidden_size,
        control_period_s=spec.control_period_s,
        decision_ticks=_DECISION_TICKS,
        hold_rule=HOLD_RULE,
        dead_man_s=spec.dead_man_s,
        arena=arena,
        team_size=team_size,
        shield=projection_parameters(spec),
        provenance={"policy": "straight to the goal, not trained"},
        evaluation={},
        parity={},
        test_vector=TestVector({}, {}),
    )


def go_to_goal_model(
    contract: Contract, *, opset: int = OPSET, ir_version: int = IR_VERSION, yaw_rate: float = 0.0
) -> onnx.ModelProto:
    """Return the graph: command = clip(goal - control point), with ``yaw_rate`` [rad/s] for commands that have one.

    A way-point is the goal.

    A memory follows the ages of the neighbours.
    """
    limit = contract.command.limit / math.sqrt(contract.dimension)
    turning = turns(contract.command)
    nodes = [
        helper.make_node("Sub", ["goal_world", "control_point_world"], ["offset"]),
        helper.make_node("Clip", ["offset", "low", "high"], ["wish" if turning else "command"]),
    ]
    if contract.command.type == WAYPOINT:
        nodes = [helper.make_node("Identity", ["goal_world"], ["command"])]
    constants = [
        helper.make_tensor("low", TensorProto.FLOAT, [], [-limit]),
        helper.make_tensor("high", TensorProto.FLOAT, [], [limit]),
    ]
    if turning:  # zero times the yaw has the size of the batch
        nodes += [
            helper.make_node("Mul", ["yaw", "zero"], ["still"]),
            helper.make_node("Add", ["still", "yaw_rate"], ["turn"]),
            helper.make_node("Concat", ["wish", "turn"], ["command"], axis=1),
        ]
        constants += [
            helper.make_tensor("zero", TensorProto.FLOAT, [], [0.0]),
            helper.make_tensor("yaw_rate", TensorProto.FLOAT, [], [yaw_rate]),
        ]
    if contract.hidden_size:
        nodes += [
            helper.make_node("Mul", ["neighbour_valid", "neighbour_age"], ["heard"]),
            helper.make_node("ReduceMax", ["heard", "slot_axis"], ["oldest"], keepdims=1),
            helper.make_node("Mul", ["hidden", "half"], ["faded"]),
            helper.make_node("Add", ["faded", "oldest"], ["mixed"]),
            helper.make_node("Tanh", ["mixed"], ["hidden_next"]),
        ]
        constants += [
            helper.make_tensor("half", TensorProto.FLOAT, [], [0.5]),
            helper.make_tensor("slot_axis", TensorProto.INT64, [1], [1]),
        ]

    def ports(shapes: dict) -> list[onnx.ValueInfoProto]:
        return [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["B", *shape]) for name, shape in shapes.items()]

    graph = helper.make_graph(nodes, "plain", ports(graph_inputs(contract)), ports(graph_outputs(contract)), constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)


def random_inputs(contract: Contract, batch: int, slots: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Return inputs (B, ...) by name, float32."""
    rng = np.random.default_rng(seed)
    inputs = {}
    for name, shape in graph_inputs(contract).items():
        values = rng.uniform(-1, 1, (batch, *(slots if isinstance(axis, str) else axis for axis in shape)))
        if name == "neighbour_age":
            values = np.abs(values)
        elif name == "neighbour_valid":
            values = values > -0.5
        inputs[name] = values.astype(np.float32)
    return inputs


def with_test_vector(contract: Contract, model: onnx.ModelProto) -> Contract:
    """Return the contract with a test vector computed by the model."""
    session = onnxruntime.InferenceSession(model.SerializeToString())
    inputs = random_inputs(contract, batch=3, slots=2)
    names = list(graph_outputs(contract))
    outputs = {name: np.asarray(value) for name, value in zip(names, session.run(names, inputs), strict=True)}
    return contract.replace(test_vector=TestVector.from_arrays(inputs, outputs))
