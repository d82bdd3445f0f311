"""A policy file made in milliseconds, without training: it drives straight to the goal.

from tests.deploy.tiny_policy import make_tiny_policy
make_tiny_policy(tmp_path / "policy.onnx", load_robot("gritsbot_x"))
"""

import json

import onnx
from onnx import helper

from testudo_deploy.contract.contract import METADATA_KEY
from testudo_deploy.shield.velocity_projection import Arena
from testudo_sim.go_to_goal import go_to_goal_contract, random_inputs, with_test_vector
from testudo_sim.go_to_goal import go_to_goal_model as tiny_model

__all__ = ["draft_contract", "make_tiny_policy", "random_inputs", "tiny_model", "with_test_vector"]


def draft_contract(spec, hidden_size=4, arena=None):
    """Return a contract for a robot that lacks only its test vector."""
    low, high = (-1.6, -1.0, 0.0), (1.6, 1.0, 2.0)
    size = spec.dimension
    contract = go_to_goal_contract(spec, arena=arena or Arena(low[:size], high[:size]), hidden_size=hidden_size)
    return contract.replace(provenance={"seed": 0}, evaluation={"success": 1.0})


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
