"""The loader takes a sound file and refuses every other; a step returns only finite numbers."""

import hashlib

import numpy as np
import onnx
import pytest
from onnx import helper
from tests.deploy.tiny_policy import (
    draft_contract,
    make_tiny_policy,
    random_inputs,
    tiny_model,
    with_test_vector,
)

from testudo_deploy.contract.contract import METADATA_KEY, PolicyContractError
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.contract.policy_header import ArtefactError
from testudo_deploy.shield.projection_margins import SHIELD_VERSION
from testudo_hardware.spec import load_robot

ROBOTS = ("gritsbot_x", "crazyflie_2x", "robomaster_s1")


@pytest.fixture
def spec():
    return load_robot("gritsbot_x")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "policy.onnx"


@pytest.fixture
def artefact(path, spec):
    make_tiny_policy(path, spec)
    return PolicyArtefact.load(path, robot=spec)


def one_robot(contract, slots, seed=0):
    """Return signals of one robot by name, and its hidden state."""
    inputs = random_inputs(contract, 1, max(slots, 1), seed)
    signals = {name: value[0, :slots] if name.startswith("neighbour") else value[0] for name, value in inputs.items()}
    return signals, signals.pop("hidden", np.zeros(0, np.float32))


@pytest.mark.parametrize("name", ROBOTS)
@pytest.mark.parametrize("hidden_size", [0, 4])
def test_a_step_computes_the_graph_for_any_number_of_neighbours(path, name, hidden_size):
    spec = load_robot(name)
    contract = make_tiny_policy(path, spec, hidden_size)
    artefact = PolicyArtefact.load(path, robot=spec)
    for slots in (0, 1, 2, 8, 3):
        signals, hidden = one_robot(contract, slots)
        command, hidden_next = artefact.step(signals, hidden)
        limit = contract.command.limit / np.sqrt(spec.dimension)
        wanted = np.clip(signals["goal_world"] - signals["control_point_world"], -limit, limit)
        np.testing.assert_allclose(command, wanted, atol=1e-6, err_msg=f"{slots} neighbours")
        ages = signals["neighbour_valid"] * signals["neighbour_age"]
        next_by_hand = np.tanh(0.5 * hidden + max(ages, default=0))
        np.testing.assert_allclose(hidden_next, next_by_hand, atol=1e-6, err_msg=f"{slots} neighbours")


def test_results_are_the_callers_own(artefact):
    signals, hidden = one_robot(artefact.contract, 2)
    command, hidden_next = artefact.step(signals, hidden)
    before = command.copy(), hidden_next.copy()
    artefact.step(*one_robot(artefact.contract, 2, seed=1))
    np.testing.assert_array_equal(command, before[0])
    np.testing.assert_array_equal(hidden_next, before[1])


def test_numbers_of_neighbours_may_alternate(artefact):
    cases = [one_robot(artefact.contract, slots, seed=slots) for slots in (3, 0, 5, 3, 0)]
    first = [artefact.step(*case) for case in cases]
    second = [artefact.step(*case) for case in cases]
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one[1], other[1])


def test_double_precision_and_booleans_are_taken(artefact):
    signals, hidden = one_robot(artefact.contract, 2)
    wide = {name: value.astype(float) for name, value in signals.items()}
    wide["neighbour_valid"] = wide["neighbour_valid"] > 0
    for one, other in zip(artefact.step(wide, hidden), artefact.step(signals, hidden), strict=True):
        np.testing.assert_array_equal(one, other)


def test_facts_of_the_file_are_kept(artefact, path):
    assert artefact.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert artefact.header.opsets == {"": 21}
    assert artefact.replay_error <= 1e-5
    assert artefact.initial_hidden().shape == (4,)


def test_the_pinned_hash_is_accepted_and_another_refused(path, spec):
    make_tiny_policy(path, spec)
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    PolicyArtefact.load(path, sha256=found.upper())
    with pytest.raises(ArtefactError, match=f"sha256: found {found}, expected {'0' * 64}"):
        PolicyArtefact.load(path, sha256="0" * 64)


def test_one_flipped_bit_changes_the_hash(path, spec):
    make_tiny_policy(path, spec)
    data = bytearray(path.read_bytes())
    pinned = hashlib.sha256(data).hexdigest()
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(ArtefactError, match="sha256"):
        PolicyArtefact.load(path, sha256=pinned)


def test_missing_file_folder_and_empty_file_are_refused(path, tmp_path):
    with pytest.raises(ArtefactError, match="no such file"):
        PolicyArtefact.load(path)
    with pytest.raises(ArtefactError, match="is a folder"):
        PolicyArtefact.load(tmp_path)
    path.write_bytes(b"")
    with pytest.raises(ArtefactError, match="is empty"):
        PolicyArtefact.load(path)


def test_a_truncated_file_is_refused(path, spec):
    make_tiny_policy(path, spec)
    data = path.read_bytes()
    for length in (1, 50, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:length])
        with pytest.raises(ArtefactError, match="truncated or not an ONNX file"):
            PolicyArtefact.load(path)


def refused(path, spec, error, expected, **changes):
    make_tiny_policy(path, spec, **changes)
    with pytest.raises(error, match=expected):
        PolicyArtefact.load(path, robot=spec)


def test_an_onnx_file_without_a_contract_is_refused(path, spec):
    refused(path, spec, ArtefactError, "metadata key 'testudo': missing",
            edit_model=lambda model: model.ClearField("metadata_props"))  # fmt: skip


def test_another_robot_is_refused(path):
    make_tiny_policy(path, load_robot("gritsbot_x"))
    with pytest.raises(PolicyContractError, match="robot: found 'gritsbot_x', this robot has 'crazy"):
        PolicyArtefact.load(path, robot=load_robot("crazyflie_2x"))


def test_a_newer_contract_is_refused(path, spec):
    refused(path, spec, PolicyContractError, "found 'testudo/contract/2'.*update this software",
            edit=lambda values: values.update(version="testudo/contract/2"))  # fmt: skip


@pytest.mark.parametrize("version", [SHIELD_VERSION - 1, SHIELD_VERSION + 1])
def test_an_older_or_a_newer_shield_is_refused(path, spec, version):
    refused(path, spec, PolicyContractError, rf"shield\.version: found {version}, expected {SHIELD_VERSION}",
            edit=lambda values: values["shield"].update(version=version))  # fmt: skip


def test_a_newer_opset_is_refused_with_both_versions(path, spec):
    def renew(model):
        model.opset_import[0].version = 99

    refused(path, spec, ArtefactError, r"opset: found 99, onnxruntime [\d.]+ supports at most \d+",
            edit_model=renew)  # fmt: skip


def test_a_newer_ir_version_is_refused_with_both_versions(path, spec):
    def renew(model):
        model.ir_version = 99

    refused(path, spec, ArtefactError, r"IR version: found 99, onnxruntime [\d.]+ supports at most",
            edit_model=renew)  # fmt: skip


def test_a_graph_that_the_runtime_refuses_is_refused(path, spec):
    def spoil(model):
        model.graph.node[0].op_type = "NoSuchOperator"

    refused(path, spec, ArtefactError, r"refuses the file \(opset 21, IR version 10\)",
            edit_model=spoil)  # fmt: skip


def test_a_signal_that_the_graph_lacks_is_refused(path, spec):
    def drop(model):
        kept = [item for item in model.graph.input if item.name != "yaw"]
        model.graph.ClearField("input")
        model.graph.input.extend(kept)

    refused(path, spec, ArtefactError, "graph input yaw is missing", edit_model=drop)


def test_a_signal_that_the_contract_lacks_is_refused(path, spec):
    def drop(values):
        values["signals"] = [item for item in values["signals"] if item["name"] != "yaw"]
        del values["test_vector"]["inputs"]["yaw"]

    refused(path, spec, ArtefactError, "graph input yaw is not in the contract", edit=drop)


def test_a_signal_that_this_robot_lacks_is_refused(path, spec):
    def rename(values):
        values["signals"][1]["name"] = "wind"
        inputs = values["test_vector"]["inputs"]
        inputs["wind"] = inputs.pop("yaw")

    refused(path, spec, PolicyContractError, "found 'wind', which is not available on this robot",
            edit=rename)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "axis", "length"),
    [("goal_world", 1, 3), ("goal_world", 0, 1), ("neighbour_age", 1, 5), ("hidden", 1, 8)],
)
def test_a_graph_input_of_another_shape_is_refused(path, spec, name, axis, length):
    def reshape(model):
        for item in model.graph.input:
            if item.name == name:
                item.type.tensor_type.shape.dim[axis].dim_value = length

    refused(path, spec, ArtefactError, f"{name}: found shape|refuses the file", edit_model=reshape)


def test_a_graph_output_of_another_shape_is_refused(path, spec):
    def widen(model):
        model.graph.node[1].output[0] = "narrow"
        model.graph.node.append(helper.make_node("Concat", ["narrow", "narrow"], ["command"], axis=1))
        model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 4

    refused(path, spec, ArtefactError, "output command: found shape", edit_model=widen)


def test_an_altered_test_vector_is_refused(path, spec):
    def alter(values):
        values["test_vector"]["outputs"]["command"][1][0] += 1e-4

    refused(path, spec, ArtefactError, "test vector: output command deviates by 0.0001",
            edit=alter)  # fmt: skip


def test_altered_weights_are_refused(path, spec):
    def alter(model):
        half = next(item for item in model.graph.initializer if item.name == "half")
        half.CopyFrom(helper.make_tensor("half", onnx.TensorProto.FLOAT, [], [0.51]))

    refused(path, spec, ArtefactError, "output hidden_next deviates", edit_model=alter)


def test_output_that_is_not_finite_is_refused_at_load(path, spec):
    def poison(model):
        model.graph.node[1].output[0] = "clean"
        zero = helper.make_tensor("zero", onnx.TensorProto.FLOAT, [], [0.0])
        model.graph.initializer.append(zero)
        model.graph.node.append(helper.make_node("Div", ["clean", "zero"], ["command"]))

    refused(path, spec, ArtefactError, "output command deviates by", edit_model=poison)


def test_output_that_is_not_finite_is_refused_in_a_step(path, spec):
    contract = draft_contract(spec)
    model = tiny_model(contract)
    model.graph.node[2].op_type = "Div"  # valid / age: finite in the test vector, not at age zero
    contract = with_test_vector(contract, model)
    helper.set_model_props(model, {METADATA_KEY: contract.to_json()})
    onnx.save(model, path)
    artefact = PolicyArtefact.load(path, robot=spec)
    signals, hidden = one_robot(artefact.contract, 2)
    signals["neighbour_age"][:] = 0
    signals["neighbour_valid"][:] = 0
    with pytest.raises(ArtefactError, match="output is not finite"):
        artefact.step(signals, hidden)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("yaw", None, "signal yaw: missing; the contract needs position_world, yaw"),
        ("neighbour_age", None, "signal neighbour_age: missing"),
        ("neighbour_position_world", None, "signal neighbour_position_world: missing"),
        ("goal_world", np.zeros(3), r"signal goal_world: found shape \(3,\), expected \(2,\)"),
        ("goal_world", np.zeros(1), r"signal goal_world: found shape \(1,\), expected \(2,\)"),
        (
            "neighbour_age",
            np.zeros(3),
            r"neighbour_age: found shape \(3,\), expected \(2,\)",
        ),
        ("goal_world", [0.0, 0.0], "expected arrays of numbers"),
        ("goal_world", np.array(["a", "b"]), "expected arrays of numbers"),
        ("goal_world", np.array([0.0, np.nan]), "signal goal_world: not finite"),
        ("neighbour_age", np.array([np.inf, 0.0]), "signal neighbour_age: not finite"),
        ("hidden", np.zeros(5), r"hidden: found shape \(5,\), expected \(4,\)"),
        ("hidden", np.full(4, np.nan), "hidden: not finite"),
        ("hidden", [0.0] * 4, "expected arrays of numbers"),
    ],
)
def test_a_step_refuses_bad_input(artefact, name, value, expected):
    signals, hidden = one_robot(artefact.contract, 2)
    everything = signals | {"hidden": hidden, name: value}
    if value is None:
        del everything[name]
    hidden = everything.pop("hidden", hidden)
    with pytest.raises(ArtefactError, match=expected):
        artefact.step(everything, hidden)


def test_a_refused_step_leaves_no_trace(artefact):
    signals, hidden = one_robot(artefact.contract, 2)
    expected = artefact.step(signals, hidden)
    with pytest.raises(ArtefactError):
        artefact.step(signals | {"goal_world": np.full(2, np.nan)}, hidden)
    for one, other in zip(artefact.step(signals, hidden), expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_test_vector_output_of_nan_is_refused(path, spec):
    """The graph divides zero by zero; infinity would exceed every tolerance anyway."""

    def spoil(model):
        model.graph.node[1].output[0] = "clean"
        model.graph.initializer.append(helper.make_tensor("zero", onnx.TensorProto.FLOAT, [], [0.0]))
        model.graph.node.append(helper.make_node("Mul", ["clean", "zero"], ["nothing"]))
        model.graph.node.append(helper.make_node("Div", ["nothing", "zero"], ["command"]))

    make_tiny_policy(path, spec, edit_model=spoil)
    with pytest.raises(ArtefactError, match="output command deviates by nan"):
        PolicyArtefact.load(path, robot=spec)
