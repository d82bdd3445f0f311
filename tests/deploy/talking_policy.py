"""A policy file that says two numbers to its peers: half the way to its goal, and half of what it hears."""

import json

import onnx
from onnx import TensorProto, helper
from tests.deploy.tiny_policy import draft_contract, tiny_model, with_test_vector

from testudo_deploy.contract.command_types import velocity_command
from testudo_deploy.contract.contract import COMMAND_TYPE, METADATA_KEY, robot_signals


def talking_contract(spec, hidden_size=0):
    """Return the contract, without test vector."""
    plain = draft_contract(spec, hidden_size)
    task = plain.signals[len(robot_signals(spec)) :]
    return plain.replace(
        command=velocity_command(COMMAND_TYPE, spec, 2),
        signals=(*robot_signals(spec, 2), *task),
        hidden_size=hidden_size,
    )


def make_talking_policy(path, spec, *, edit=None):
    """Write the file; ``edit(values)`` may spoil the contract's JSON value, in place."""
    contract = talking_contract(spec)
    model = tiny_model(contract)
    model.graph.node.extend(
        [
            helper.make_node("Clip", ["offset", "least", "most"], ["way"]),
            helper.make_node("ReduceMax", ["neighbour_message", "slots"], ["loudest"], keepdims=0),
            helper.make_node("Add", ["way", "loudest"], ["both"]),
            helper.make_node("Mul", ["both", "half"], ["message"]),
        ]
    )
    numbers = {"least": -1.0, "most": 1.0, "half": 0.5}
    model.graph.initializer.extend(helper.make_tensor(k, TensorProto.FLOAT, [], [v]) for k, v in numbers.items())
    model.graph.initializer.append(helper.make_tensor("slots", TensorProto.INT64, [1], [1]))
    contract = with_test_vector(contract, model)
    values = json.loads(contract.to_json())
    if edit is not None:
        edit(values)
    helper.set_model_props(model, {METADATA_KEY: json.dumps(values)})
    onnx.save(model, path)
    return path
