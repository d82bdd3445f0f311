"""A foreign policy behind the contract computes what its own file does on observations composed by hand."""

import math
import re

import numpy as np
import onnx
import pytest
from tests.policies.wrapping import foreign_graphs

from testudo_deploy.contract.onnx_policy import open_session
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.contract.policy_header import read_header
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_policies.wrapping.wrap_file import WrapError, load_wrap_file
from testudo_policies.wrapping.wrapping import wrap_policy

pytestmark = pytest.mark.usefixtures("quick")

DESCRIPTION = """schema: testudo/wrap/1
robot: gritsbot_x
team_size: 3
observation:
  - velocity
  - {signal: goal_world, relative: true, frame: body, scale: 0.5, clip: 1.0}
  - {signal: yaw, form: cos_sin}
  - nearest: 2
    fill: -1.0
    parts:
      - {signal: neighbour_position_world, relative: true, frame: body}
      - {signal: neighbour_velocity_world, frame: body}
      - neighbour_valid
action: {kind: forward_turn, scale: [0.2, 2.0], clip: 1.0}
"""
SIZE = 16
DRONE = """schema: testudo/wrap/1
robot: crazyflie_2x
team_size: 2
memory: {input: h_in, output: h_out}
observation:
  - {signal: velocity, frame: body}
  - {signal: goal_world, relative: true, frame: body}
normalisation: {mean: [0, 0, 0, 1, 1, 1], variance: [1, 1, 1, 4, 4, 4], clip: 5}
action: {kind: velocity, frame: body, scale: 0.5}
"""


def wrapped(folder, make=foreign_graphs.rsl_rl, text=DESCRIPTION, sizes=(SIZE, 2)):
    """Write a foreign policy with its description, wrap it without driving it, and return the artefact."""
    make(folder / "my.onnx", *sizes)
    (folder / "c.yaml").write_text(text)
    report, _ = wrap_policy(folder / "my.onnx", load_wrap_file(folder / "c.yaml"), folder / "policy.onnx", loop_steps=0)
    assert report.parity.inputs >= 10_000
    return PolicyArtefact.load(folder / "policy.onnx", sha256=report.sha256)


def original(folder, observation):
    data = (folder / "my.onnx").read_bytes()
    session = open_session(data, read_header(data, "my.onnx"), "my.onnx")
    return session.run(None, {session.get_inputs()[0].name: np.float32([observation])})[0][0]


def test_a_wheeled_robot_drives_as_the_foreign_policy_says(tmp_path):
    artefact = wrapped(tmp_path)
    # it looks along y; the goal is 1 m ahead and 3 m to its right; of three neighbours one is not valid
    signals = {
        "position_world": [1.0, 1.0],
        "yaw": [math.pi / 2],
        "velocity": [0.1, -0.2],
        "control_point_world": [1.0, 1.1],
        "neighbour_position_world": [[1.0, 1.4], [1.0, 1.1], [0.7, 1.0]],
        "neighbour_velocity_world": [[0.1, 0.0], [9.0, 9.0], [0.0, 0.2]],
        "neighbour_age": [0.1, 0.1, 0.1],
        "neighbour_valid": [1.0, 0.0, 1.0],
        "goal_world": [4.0, 2.0],
    }
    near, far = [0.0, 0.3, 0.2, 0.0, 1.0], [0.4, 0.0, 0.0, -0.1, 1.0]  # 0.3 m to its left, 0.4 m ahead
    action = original(tmp_path, [0.1, -0.2, 0.5, -1.0, 0.0, 1.0, *near, *far])
    command, _ = artefact.step({name: np.float32(value) for name, value in signals.items()}, np.zeros(0, np.float32))
    speed, turn = np.clip(action, -1, 1) * [0.2, 2.0]
    expected = np.array([-turn * load_robot("gritsbot_x").look_ahead_m, speed])  # its y axis is the world's x, turned
    limit = artefact.contract.command.limit
    expected *= min(1.0, limit / np.linalg.norm(expected))
    assert command == pytest.approx(expected, abs=1e-5)


def test_missing_neighbours_are_filled(tmp_path):
    artefact = wrapped(tmp_path)
    alone = {
        "position_world": [0.0, 0.0],
        "yaw": [0.0],
        "velocity": [0.0, 0.0],
        "control_point_world": [0.0, 0.0],
        "neighbour_position_world": np.zeros((0, 2)),
        "neighbour_velocity_world": np.zeros((0, 2)),
        "neighbour_age": np.zeros(0),
        "neighbour_valid": np.zeros(0),
        "goal_world": [1.0, 0.0],
    }
    command, _ = artefact.step({name: np.float32(value) for name, value in alone.items()}, np.zeros(0, np.float32))
    action = original(tmp_path, [0, 0, 0.5, 0, 1, 0, *[-1.0] * 10])
    speed, turn = np.clip(action, -1, 1) * [0.2, 2.0]
    expected = np.array([speed, turn * load_robot("gritsbot_x").look_ahead_m])
    assert command == pytest.approx(
        expected * min(1, artefact.contract.command.limit / np.linalg.norm(expected)), abs=1e-5
    )


def test_a_drone_with_memory_and_normalisation_is_proven_and_keeps_its_memory(tmp_path):
    artefact = wrapped(tmp_path, foreign_graphs.recurrent, DRONE, (6, 3, 5))
    assert artefact.contract.hidden_size == 5
    assert artefact.contract.parity["hidden_error"] <= 1e-5


def test_what_the_action_does_not_need_is_left_out(tmp_path):
    wrapped(tmp_path, foreign_graphs.stable_baselines3)
    names = {weight.name for weight in onnx.load(tmp_path / "policy.onnx").graph.initializer}
    assert any("mlp.0.weight" in name for name in names)
    assert not any("value" in name for name in names)


REFUSED = {
    "size of the observation": ({}, (15, 2), r"input obs: found 15 numbers, expected 16: .*c.yaml: observation"),
    "size of the action": ({}, (16, 3), r"output actions: found 3 numbers, expected 2: .*action \(forward_turn\)"),
    "unknown signal": (
        {"- velocity": "- speed"},
        (SIZE, 2),
        r"observation\[0\].signal: found 'speed', expected one of",
    ),
    "unknown key": ({"scale: 0.5": "scales: 0.5"}, (SIZE, 2), r"observation\[1\].scales: unknown key"),
    "no place": ({"- velocity": "- {signal: velocity, relative: true}"}, (SIZE, 2), "velocity is no place"),
    "frame": ({"- velocity": "- {signal: velocity, frame: world}"}, (SIZE, 2), "velocity is in the frame body"),
    "place in the body": ({"relative: true, frame: body, scale": "frame: body, scale"}, (SIZE, 2), "relative: true"),
    "neighbour alone": ({"- velocity": "- neighbour_valid"}, (SIZE, 2), "expected it in a group"),
    "own in a group": ({"- neighbour_valid": "- yaw"}, (SIZE, 2), "expected a name that begins with neighbour_"),
    "schema": ({"wrap/1": "wrap/2"}, (SIZE, 2), "schema: found 'testudo/wrap/2'"),
    "scale": ({"scale: [0.2, 2.0]": "scale: 0.2"}, (SIZE, 2), "scale: found 1 numbers, expected two"),
    "input": ({"team_size": "input: x\nteam_size"}, (SIZE, 2), r"found the inputs obs, expected one .*\(input: x\)"),
    "output": ({"team_size": "output: x\nteam_size"}, (SIZE, 2), "found the outputs actions, expected x among them"),
    "scenario": ({"team_size": "scenario: chess\nteam_size"}, (SIZE, 2), "c.yaml: .*chess"),
    "normalisation": (
        {"action:": "normalisation: {mean: [0], variance: [1]}\naction:"},
        (SIZE, 2),
        "normalisation: found 1 means and 1 variances, expected 16 each",
    ),
    "robot": ({"gritsbot_x": "r2d2"}, (SIZE, 2), "c.yaml: robot 'r2d2' is not known"),
}


@pytest.mark.parametrize(("changes", "sizes", "message"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_is_one_sentence(changes, sizes, message, tmp_path):
    text = DESCRIPTION
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new, 1)
    with pytest.raises(TestudoError) as refusal:
        wrapped(tmp_path, text=text, sizes=sizes)
    assert re.search(message, str(refusal.value)), refusal.value
    assert not (tmp_path / "policy.onnx").exists()


def test_a_file_that_is_no_graph_is_refused(tmp_path):
    (tmp_path / "my.onnx").write_text("no graph")
    (tmp_path / "c.yaml").write_text(DESCRIPTION)
    with pytest.raises(WrapError, match=r"my\.onnx: not an ONNX file"):
        wrap_policy(tmp_path / "my.onnx", load_wrap_file(tmp_path / "c.yaml"), tmp_path / "policy.onnx", loop_steps=0)


def test_a_graph_with_a_batch_of_one_inside_says_how_to_export_it(tmp_path):
    def fixed(path, observation, action):
        nodes, weights = foreign_graphs.layers((observation, action), "Elu", 1)
        weights.append(onnx.numpy_helper.from_array(np.array([1, action]), "shape"))
        nodes.insert(0, onnx.helper.make_node("Identity", ["obs"], ["mlp.0"]))
        nodes.append(onnx.helper.make_node("Reshape", ["mlp.end", "shape"], ["actions"]))
        onnx.save(foreign_graphs.graph(nodes, weights, {"obs": [1, observation]}, {"actions": [1, action]}), path)

    with pytest.raises(WrapError, match=r"does not run for 3 rows at once .*dynamic_axes=\{'obs'"):
        wrapped(tmp_path, fixed)


def test_a_hidden_state_with_a_layer_axis_is_refused(tmp_path):
    def layered(path, observation, action):
        foreign_graphs.recurrent(path, observation, action, 4)
        model = onnx.load(path)
        model.graph.input[1].name = "h_in"
        onnx.save(model, path)

    with pytest.raises(WrapError, match="found the inputs obs, h_in, expected one observation and no other"):
        wrapped(tmp_path, layered)
