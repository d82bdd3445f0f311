"""`testudo inspect` shows every part of the contract, and its margins add up."""

import json

import pytest
from tests.deploy.tiny_policy import make_tiny_policy

from testudo_deploy.commands.inspect import inspect
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot


@pytest.mark.parametrize("name", ["gritsbot_x", "crazyflie_2x", "robomaster_s1"])
@pytest.mark.parametrize("hidden_size", [0, 4])
def test_tables_and_json_say_what_the_contract_says(tmp_path, capsys, name, hidden_size):
    contract = make_tiny_policy(tmp_path / "policy.onnx", load_robot(name), hidden_size)
    inspect(tmp_path / "policy.onnx", tmp_path / "policy.json")
    shown = capsys.readouterr().out
    for signal in contract.signals:
        assert signal.name in shown
    for term in contract.shield.terms:
        assert term.name in shown
        assert f"{term.value_m:.6g}" in shown
    for text in (name, "zero_order_hold_world", f"{contract.shield.separation_m:.6g}", "success"):
        assert text in shown
    values = json.loads((tmp_path / "policy.json").read_text())
    assert values["contract"]["contract_hash"] == contract.contract_hash
    assert values["contract"]["shield"]["separation_m"] == pytest.approx(
        sum(term["value_m"] for term in values["contract"]["shield"]["terms"])
    )
    space = values["space"]
    assert space["tube_error_m"] == pytest.approx(sum(term["value_m"] for term in space["terms"]))
    assert f"{space['clearance_m']:.6g}" in shown
    for term in space["terms"]:
        assert term["name"] in shown
    assert values["contract"]["decision_period_s"] == contract.decision_period_s
    assert values["file"]["opset"] == 21
    assert values["file"]["test_vector_error"] <= 1e-5


def test_a_folder_without_a_recording_is_refused(tmp_path):
    with pytest.raises(TestudoError, match=r"holds no file|which is not installed here"):  # a robot reads no recordings
        inspect(tmp_path)


def test_options_of_recordings_are_refused_for_a_policy(tmp_path):
    with pytest.raises(TestudoError, match="--map, --pick and --msg-path are for recordings"):
        inspect(tmp_path / "policy.onnx", pick="a")


def test_json_to_nowhere_is_refused(tmp_path):
    make_tiny_policy(tmp_path / "policy.onnx", load_robot("gritsbot_x"))
    with pytest.raises(TestudoError, match=r"--json .*cannot be written"):
        inspect(tmp_path / "policy.onnx", tmp_path / "missing" / "policy.json")
