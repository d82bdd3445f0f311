"""The first step of improving: the run's own dynamics end up in the robot file that worlds are drawn from."""

import json

import pytest
from rich.console import Console
from tests.deploy.tiny_policy import make_tiny_policy
from tests.sim.recorded_run import record_run

from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_policies.improve import identification
from testudo_policies.improve.identification import identify_step
from testudo_policies.improve.steps import Improvement, ImproveSettings
from testudo_runs.recording.load import recording_of_run

LAG, SCALE = 2.0, 0.8
"""Of the robots that drove, relative to their file."""


@pytest.fixture
def state(tmp_path):
    spec = load_robot("gritsbot_x")
    make_tiny_policy(tmp_path / "policy.onnx", spec)
    artefact = PolicyArtefact.load(tmp_path / "policy.onnx")
    settings = ImproveSettings(tmp_path / "run", tmp_path / "policy.onnx", tmp_path, "finetune", 1.0, 10, None)
    return Improvement(settings, Console(), artefact, None)


@pytest.mark.slow
def test_the_robot_that_drove_is_what_worlds_are_drawn_from(state, monkeypatch):
    spec = load_robot("gritsbot_x")
    run = record_run(state.old, spec, seconds=20.0, count=3, lag=LAG, scale=SCALE)
    run.info["start_steady_s"], run.info["start_wall_ns"] = 100.0, 0
    monkeypatch.setattr(identification, "load_recording", lambda _, share: recording_of_run(run))
    identify_step(state, None)
    found = load_robot(state.robot_file)
    assert found.name == spec.name
    for key, truth in (
        ("dynamics.speed_scale", SCALE),
        ("dynamics.turn_scale", SCALE),
        ("dynamics.velocity_lag", LAG * spec.velocity_lag_s),
    ):
        quantity = found.quantities[key]
        assert quantity.value == pytest.approx(truth, rel=0.05), key
        assert quantity.high - quantity.low < spec.quantities[key].high - spec.quantities[key].low
    assert json.loads((state.settings.folder / "identification.json").read_text())["robot_type"] == spec.name
    before = state.robot_file.read_bytes()
    monkeypatch.setattr(identification, "load_recording", None)
    identify_step(state, None)  # it is there already
    assert state.robot_file.read_bytes() == before


def test_a_run_of_other_robots_is_refused(state, monkeypatch):
    spec = load_robot("turtlebot4")
    folder = state.settings.folder / "other"
    folder.mkdir()
    make_tiny_policy(folder / "policy.onnx", spec)
    run = record_run(PolicyArtefact.load(folder / "policy.onnx"), spec, seconds=1.0, count=2)
    run.info["start_steady_s"], run.info["start_wall_ns"] = 100.0, 0
    monkeypatch.setattr(identification, "load_recording", lambda _, share: recording_of_run(run))
    with pytest.raises(TestudoError, match="r0 is a turtlebot4, expected gritsbot_x"):
        identify_step(state, None)
