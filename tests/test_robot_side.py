"""The robot side by itself: an artefact drives robots with nothing of the training side there.

`TESTUDO_ROBOT_PYTHON=/path/to/python` also drives them with that interpreter, such as the one of a robot's ROS 2.
"""

import json
import os
import subprocess
import sys

import pytest
from tests.deploy.tiny_policy import make_tiny_policy
from tests.test_layout import BLOCKED_IMPORT, ROOT, TRAINING_SIDE, run_python

from testudo_hardware.spec import load_robot

ABSENT = (*TRAINING_SIDE, "onnx", "jax2onnx", "scipy", "matplotlib", "rosbags", "rclpy", "tests")
DRIVE = """
import json
import numpy as np
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.control.control_loop import ControlLoop
from testudo_deploy.contract.messages import PeerMessage, TickRecord
from testudo_hardware.motion import LagResponse, MotionState, motion_model
from testudo_hardware.motion.motion_model import effective_command
from testudo_hardware.spec import load_robot

spec = load_robot(robot)
model, size = motion_model(spec), spec.dimension
artefact = PolicyArtefact.load(path, robot=spec)
goals = {"r0": np.array([0.6, 0.0, 1.0])[:size], "r1": np.array([-0.6, 0.5, 1.0])[:size]}
states = {
    name: MotionState(np.array([x, y, 1.0])[:size], np.array(0.0), np.zeros(size))
    for name, x, y in (("r0", -0.6, 0.0), ("r1", 0.6, 0.5))
}
loops = {
    name: ControlLoop(
        artefact, spec, robot=name, peers=tuple(set(goals) - {name}),
        goal_world=tuple(goals[name]), epoch="one",
    )
    for name in goals
}
lag = LagResponse.create(np.array(spec.control_period_s), spec.velocity_lag_s)
records = {name: [] for name in goals}
begin = {name: float(np.linalg.norm(goals[name] - states[name].position_world)) for name in goals}
for tick in range(100):
    now_s = 1.0 + tick * spec.control_period_s
    for name, loop in loops.items():
        state = states[name]
        place = tuple(map(float, state.position_world)), float(state.yaw)
        loop.on_odometry(now_s - 0.005, now_s, *place, tuple(map(float, state.velocity)))
        record = TickRecord.decode(loop.tick(now_s).encode())
        records[name].append(record)
        message = loop.announcement(now_s)
        for other in loops.values():
            if other is not loop:
                other.on_peer(PeerMessage.decode(message.encode()), now_s)
        effective = effective_command(model, np.array(record.sent_command))
        states[name] = model.step(state, effective, lag)
end = {name: float(np.linalg.norm(goals[name] - states[name].position_world)) for name in goals}
print(json.dumps({
    "loaded": sorted(blocked & {name.partition(".")[0] for name in sys.modules}),
    "status": {name: [record.status for record in items] for name, items in records.items()},
    "decided": {name: sum(record.decided for record in items) for name, items in records.items()},
    "reasons": sorted({record.reason for items in records.values() for record in items}),
    "hidden": {name: items[-1].hidden_after for name, items in records.items()},
    "nearer_m": {name: begin[name] - end[name] for name in goals},
}))
"""


@pytest.mark.parametrize(("robot", "hidden_size"), [("gritsbot_x", 4), ("crazyflie_2x", 0)])
def test_an_artefact_drives_robots_for_a_hundred_ticks(robot, hidden_size, tmp_path):
    policy = tmp_path / "policy.onnx"
    make_tiny_policy(policy, load_robot(robot), hidden_size)
    code = f"path, robot = {str(policy)!r}, {robot!r}\n{BLOCKED_IMPORT}\n{DRIVE}"
    result = run_python(code, ",".join(ABSENT), "testudo_hardware", "testudo_deploy")
    assert result.returncode == 0, result.stderr
    check_drive(json.loads(result.stdout.splitlines()[-1]), hidden_size)


@pytest.mark.skipif("TESTUDO_ROBOT_PYTHON" not in os.environ, reason="TESTUDO_ROBOT_PYTHON names no interpreter")
def test_another_interpreter_drives_them_in_the_same_way(tmp_path):
    """Its results are those of the NumPy here, to rounding: one body for NumPy 1.26 and 2."""
    policy = tmp_path / "policy.onnx"
    make_tiny_policy(policy, load_robot("gritsbot_x"), 4)
    code = f"import sys; blocked = set(); path, robot = {str(policy)!r}, 'gritsbot_x'\n{DRIVE}"
    path = os.pathsep.join(str(ROOT / folder) for folder in ("hardware", "deploy"))
    found = []
    for python in (sys.executable, os.environ["TESTUDO_ROBOT_PYTHON"]):
        words = [python, "-c", code]
        environment = os.environ | {"PYTHONPATH": path}
        result = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120, check=False)
        assert result.returncode == 0, result.stderr
        found.append(json.loads(result.stdout.splitlines()[-1]))
    for drive in found:
        check_drive(drive, 4)
    assert found[1]["nearer_m"] == pytest.approx(found[0]["nearer_m"], abs=1e-9)


def check_drive(found, hidden_size):
    assert found["loaded"] == []
    for name in ("r0", "r1"):
        # the first ticks brake, until the peer has answered; then the policy runs at every tenth
        statuses = found["status"][name]
        assert statuses[0] == "braked"
        assert set(statuses[5:]) <= {"passed", "projected"}
        assert 9 <= found["decided"][name] <= 11
        assert found["nearer_m"][name] > 0.3
        assert len(found["hidden"][name]) == hidden_size
    assert all(reason == "" or reason.startswith("peer_unheard") for reason in found["reasons"])


@pytest.mark.parametrize("name", ["jax", "flax", "brax", "optax", "mujoco", "onnx"])
def test_the_blocked_packages_are_really_out_of_reach(name):
    result = run_python(BLOCKED_IMPORT + f"\nimport {name}", ",".join(ABSENT), "testudo_hardware")
    assert result.returncode != 0
    assert f"{name} is not there on a robot" in result.stderr
