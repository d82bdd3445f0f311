"""A policy file made in milliseconds, without training: it drives straight to the goal.

from tests.deploy.tiny_policy import make_tiny_policy
make_tiny_policy(tmp_path / "policy.onnx", load_robot("gritsbot_x"))
"""

import json
import math

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

from testudo_deploy.contract import (
    HOLD_RULE,
    METADATA_KEY,
    VERSION,
    Command,
    Contract,
    Signal,
    TestVector,
    robot_signals,
)
from testudo_deploy.contract_parts import COMMAND_TYPE
from testudo_deploy.contract_rules import graph_inputs, graph_outputs
from testudo_deploy.shield.layer1 import Arena
from testudo_deploy.shield.margins import shield_parameters

OPSET, IR_VERSION = 21, 10


def draft_contract(spec, hidden_size=4, arena=None):
    """Return a contract for a robot that lacks only its test vector."""
    low, high = (-1.6, -1.0, 0.0), (1.6, 1.0, 2.0)
    size = spec.dimension
    return Contract(
        version=VERSION,
        scenario="navigation",
        robot=spec.name,
        robot_spec=spec.to_dict(),
        robot_sha256=spec.sha256,
        dimension=size,
        signals=(*robot_signals(spec), Signal("goal_world", (size,), "m", "world", None)),
        command=Command(COMMAND_TYPE, "m/s", spec.control_point_speed_m_s),
        hidden_size=hidden_size,
        control_period_s=spec.control_period_s,
        decision_ticks=10,
        hold_rule=HOLD_RULE,
        dead_man_s=spec.dead_man_s,
        arena=arena or Arena(low[:size], high[:size]),
        team_size=4,
        shield=shield_parameters(spec),
        provenance={"seed": 0},
        evaluation={"success": 1.0},
        parity={},
        test_vector=TestVector({}, {}),
    )


def tiny_model(contract, *, opset=OPSET, ir_version=IR_VERSION):
    """Return the model: command = clip(goal - control point); hidden follows neighbour ages."""
    limit = contract.command.limit / math.sqrt(contract.dimension)
    nodes = [
        helper.make_node("Sub", ["goal_world", "control_point_world"], ["offset"]),
        helper.make_node("Clip", ["offset", "low", "high"], ["command"]),
    ]
    if contract.hidden_size:
        nodes += [
            helper.make_node("Mul", ["neighbour_valid", "neighbour_age"], ["heard"]),
            helper.make_node("ReduceMax", ["heard", "slot_axis"], ["oldest"], keepdims=1),
            helper.make_node("Mul", ["hidden", "half"], ["faded"]),
            helper.make_node("Add", ["faded", "oldest"], ["mixed"]),
            helper.make_node("Tanh", ["mixed"], ["hidden_next"]),
        ]
    constants = [
        helper.make_tensor("low", TensorProto.FLOAT, [], [-limit]),
        helper.make_tensor("high", TensorProto.FLOAT, [], [limit]),
        helper.make_tensor("half", TensorProto.FLOAT, [], [0.5]),
        helper.make_tensor("slot_axis", TensorProto.INT64, [1], [1]),
    ]

    def ports(shapes):
        return [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, ["B", *shape])
            for name, shape in shapes.items()
        ]

    graph = helper.make_graph(
        nodes, "tiny", ports(graph_inputs(contract)), ports(graph_outputs(contract)), constants
    )
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir_version)


def random_inputs(contract, batch, slots, seed=0):
    """Return inputs (B, ...) by name, float32."""
    rng = np.random.default_rng(seed)
    inputs = {}
    for name, shape in graph_inputs(contract).items():
        full = (batch, *(slots if isinstance(axis, str) else axis for axis in shape))
        values = rng.uniform(-1, 1, full)
        if name == "neighbour_age":
            values = np.abs(values)
        elif name == "neighbour_valid":
            values = values > -0.5
        inputs[name] = values.astype(np.float32)
    return inputs


def with_test_vector(contract, model):
    """Return the contract with a test vector that the model computed itself."""
    session = onnxruntime.InferenceSession(model.SerializeToString())
    inputs = random_inputs(contract, batch=3, slots=2)
    names = list(graph_outputs(contract))
    outputs = dict(zip(names, session.run(names, inputs), strict=True))
    return contract.replace(test_vector=TestVector.from_arrays(inputs, outputs))


def make_tiny_policy(path, spec, hidden_size=4, *, edit=None, edit_model=None):
    """Write a valid policy file and return its contract.

    ``edit(values)`` may spoil the contract's JSON value, ``edit_model(model)`` the model, in place.
    """
    contract = draft_contract(spec, hidden_size)
    model = tiny_model(contract)
    contract = with_test_vector(contract, model)
    text = contract.to_json()
    if edit is not None:
        values = json.loads(text)
        edit(values)
        text = json.dumps(values)
    helper.set_model_props(model, {METADATA_KEY: text})
    if edit_model is not None:
        edit_model(model)
    onnx.save(model, path)
    return contract
