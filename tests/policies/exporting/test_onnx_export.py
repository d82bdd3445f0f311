"""An exported file computes what JAX computes, for any batch and any number of neighbours."""

import hashlib

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from tests.deploy.tiny_policy import draft_contract
from tests.policies.tiny_network import tiny_step

from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.contract.rules import read_contract
from testudo_hardware.spec import load_robot
from testudo_policies.exporting.graph_reduction import simplify
from testudo_policies.exporting.onnx_export import ExportError, convert, export_policy
from testudo_policies.exporting.parity import call_step, random_inputs

CASES = (
    ("gritsbot_x", 8),
    *(pytest.param(case, marks=pytest.mark.slow) for case in (("gritsbot_x", 0), ("crazyflie_2x", 8))),
)


def example(contract, batch=8, slots=3, seed=0):
    return random_inputs(contract, batch, slots, np.random.default_rng(seed))


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def exported(request, quick, tmp_path_factory):
    """Return the step function, the spec and the report of its export."""
    name, hidden_size = request.param
    spec = load_robot(name)
    contract = draft_contract(spec, hidden_size)
    step = tiny_step(contract, example(contract))
    signals = {key: value for key, value in example(contract).items() if key != "hidden"}
    loops = {key: np.stack([value] * 6) for key, value in signals.items()}
    path = tmp_path_factory.mktemp("export") / "runs" / "policy.onnx"
    # one program for each shape, in place of one for each operation
    return jax.jit(step), spec, export_policy(step, contract, signals, path, loops=loops)


def test_parity_covers_ten_thousand_inputs_and_every_number_of_slots(exported):
    _, _, report = exported
    assert report.parity.inputs >= 10_000
    assert report.parity.slots == tuple(range(1, 9))
    assert report.parity.max_error <= 1e-5
    assert (report.parity.loop_steps, report.parity.loops) == (6, 8)
    assert report.parity.free_running_drift < 1e-4


@pytest.mark.parametrize("slots", [0, 1, 4, 12])
def test_the_robot_computes_what_jax_computes(exported, slots):
    step, spec, report = exported
    artefact = PolicyArtefact.load(report.path, robot=spec, sha256=report.sha256)
    inputs = example(report.contract, batch=1, slots=max(slots, 1), seed=slots)
    if slots == 0:
        inputs["neighbour_valid"][:] = 0  # a robot alone is one with a slot that is not valid
    expected = call_step(step, inputs)
    row = {name: value[0, :slots] if name.startswith("neighbour") else value[0] for name, value in inputs.items()}
    hidden = row.pop("hidden", artefact.initial_hidden())
    command, hidden_next = artefact.step(row, hidden)
    np.testing.assert_allclose(command, expected["command"][0], atol=1e-5)
    if report.contract.hidden_size:
        np.testing.assert_allclose(hidden_next, expected["hidden_next"][0], atol=1e-5)


def test_a_slot_that_is_not_valid_changes_nothing(exported):
    _, spec, report = exported
    artefact = PolicyArtefact.load(report.path, robot=spec)
    inputs = example(report.contract, batch=1, slots=4)
    inputs["neighbour_valid"][:] = [[1, 1, 0, 0]]
    row = {name: value[0] for name, value in inputs.items()}
    hidden = row.pop("hidden", artefact.initial_hidden())
    fewer = {name: value[:2] if name.startswith("neighbour") else value for name, value in row.items()}
    np.testing.assert_allclose(artefact.step(row, hidden)[0], artefact.step(fewer, hidden)[0], atol=1e-6)


def test_the_order_of_neighbours_changes_nothing(exported):
    _, spec, report = exported
    artefact = PolicyArtefact.load(report.path, robot=spec)
    row = {name: value[0] for name, value in example(report.contract, 1, 5).items()}
    hidden = row.pop("hidden", artefact.initial_hidden())
    turned = {name: value[::-1] if name.startswith("neighbour") else value for name, value in row.items()}
    np.testing.assert_allclose(artefact.step(row, hidden)[0], artefact.step(turned, hidden)[0], atol=1e-6)


def test_file_is_a_valid_model_that_carries_the_contract(exported):
    _, _, report = exported
    model = onnx.load(report.path)
    onnx.checker.check_model(model, full_check=True)
    metadata = {item.key: item.value for item in model.metadata_props}
    assert read_contract(metadata["testudo"]) == report.contract
    assert report.contract.parity["max_error"] == report.parity.max_error
    assert report.sha256 == hashlib.sha256(report.path.read_bytes()).hexdigest()
    assert model.graph.output[0].name == "command"
    assert not list(report.path.parent.glob("*partial*"))


def test_the_test_vector_is_what_jax_computed(exported):
    step, _, report = exported
    vector = report.contract.test_vector
    inputs = {name: np.array(value, np.float32) for name, value in vector.inputs.items()}
    for name, value in call_step(step, inputs).items():
        np.testing.assert_allclose(vector.outputs[name], value, atol=1e-6)


def test_no_file_tells_where_it_was_made(exported):
    _, _, report = exported
    assert b".py" not in report.path.read_bytes()


def test_the_export_is_reproducible(exported, tmp_path):
    step, _, report = exported
    again = convert(step, report.contract)
    assert again.graph == onnx.load(report.path).graph


def test_simplified_graph_is_smaller_and_the_same(exported):
    _, _, report = exported
    model = onnx.load(report.path)
    assert simplify(model).graph.node == model.graph.node  # nothing is left to take out
    assert not [node for node in model.graph.node if node.op_type == "Expand"]


def ground_contract():
    return draft_contract(load_robot("gritsbot_x"), 0)


def to_goal(signals, hidden):
    return 0.1 * jnp.tanh(signals["goal_world"] - signals["control_point_world"]), hidden


def test_a_policy_that_ignores_most_signals_is_exported(tmp_path):
    contract = ground_contract()
    report = export_policy(to_goal, contract, example(contract), tmp_path / "policy.onnx")
    assert PolicyArtefact.load(report.path, robot=load_robot("gritsbot_x")).contract == report.contract


def test_output_that_is_not_finite_is_refused(tmp_path):
    contract = ground_contract()

    def step(signals, hidden):
        offset = signals["goal_world"] - signals["control_point_world"]
        return offset / jnp.sqrt(jnp.sum(offset**2, -1, keepdims=True)), hidden

    with pytest.raises(ExportError, match="deviates from the policy by nan"):
        export_policy(step, contract, example(contract), tmp_path / "policy.onnx")
    assert not list(tmp_path.iterdir())


def test_a_graph_that_deviates_is_refused(tmp_path, monkeypatch):
    contract = ground_contract()
    wrong = convert(lambda signals, hidden: (to_goal(signals, hidden)[0] + 2e-5, hidden), contract)
    monkeypatch.setattr("testudo_policies.exporting.onnx_export.convert", lambda *_: wrong)
    with pytest.raises(ExportError, match="deviates from the policy by 2"):
        export_policy(to_goal, contract, example(contract), tmp_path / "policy.onnx")
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_converted_is_refused_in_one_line(tmp_path):
    contract = ground_contract()

    def step(signals, hidden):
        nearest = jnp.sort(signals["neighbour_age"], axis=1)[:, :1]
        return nearest * signals["goal_world"], hidden

    with pytest.raises(ExportError, match="cannot be converted to ONNX") as caught:
        export_policy(step, contract, example(contract), tmp_path / "policy.onnx")
    assert "\n" not in str(caught.value)


def test_examples_that_lack_a_signal_are_refused(tmp_path):
    contract = ground_contract()
    signals = example(contract)
    del signals["yaw"]
    with pytest.raises(ExportError, match=r"example_signals: found .*expected .*yaw"):
        export_policy(to_goal, contract, signals, tmp_path / "policy.onnx")


def test_a_contract_that_does_not_hold_is_not_written(tmp_path):
    contract = ground_contract().replace(hold_rule="first_order")
    with pytest.raises(Exception, match="hold_rule"):
        export_policy(to_goal, contract, example(contract), tmp_path / "policy.onnx")
    assert not list(tmp_path.iterdir())
