"""Drones that are told to turn over ROS 2, through policy, guard and the MuJoCo plant, and what is recorded of it."""

from importlib.util import find_spec

import numpy as np
import pytest

pytestmark = [
    pytest.mark.ros,
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("rclpy") is None, reason="ROS 2 (rclpy) is not installed"),
    pytest.mark.timeout(240),
]

from testudo_analysis.replay import TOLERANCE, reinfer  # noqa: E402
from testudo_deploy.contract.policy_artefact import PolicyArtefact  # noqa: E402
from testudo_deploy.fleet.fleet import load_fleet  # noqa: E402
from testudo_deploy.launch.fleet_run import run_fleet  # noqa: E402
from testudo_hardware.spec import load_robot  # noqa: E402
from testudo_runs.recording.load import recording_of_run  # noqa: E402
from testudo_runs.run_reader import read_run  # noqa: E402
from testudo_sim.go_to_goal import write_go_to_goal_policy  # noqa: E402

RATE = 0.8
"""[rad/s], near the limit: in a tenth of a second more than the errors of a pose allow for."""


def write_drones(folder):
    """Write a fleet of two drones in the air that fly side by side and turn all the while, and return it."""
    policy = folder / "policy.onnx"
    write_go_to_goal_policy(policy, load_robot("crazyflie_2x"), team_size=2, yaw_rate=RATE)
    robots = [
        f"  r{k}: {{type: crazyflie_2x, initial_position: [0.0, {2.0 * k}, 1.0], initial_yaw: 0.0, "
        f"goal: [2.0, {2.0 * k}, 1.0]}}"
        for k in range(2)
    ]
    head = ["fileversion: 1", "policy: policy.onnx", f"policy_sha256: {PolicyArtefact.load(policy).sha256}", "robots:"]
    (folder / "fleet.yaml").write_text("\n".join([*head, *robots]) + "\n", encoding="utf-8")
    return load_fleet(folder / "fleet.yaml")


def test_drones_turn_at_the_rate_that_their_policy_commands_and_arrive(tmp_path):
    state = run_fleet(write_drones(tmp_path), run_folder=tmp_path / "run", duration_s=12.0, lock_step=True)
    assert state.outcome == "arrived", (state.outcome, state.braked, state.lines)
    assert state.contacts == 0
    run = read_run(tmp_path / "run")
    for name in ("r0", "r1"):
        told = [tick for tick in run.ticks[name] if not tick.reason]
        np.testing.assert_allclose([tick.sent_yaw_rate for tick in told], RATE, atol=1e-6)
        for track in (run.sent[name], run.applied[name]):
            turning = track.stamp_s[track.yaw_rate > 0]
            assert np.ptp(turning) > 2.0
            np.testing.assert_allclose(track.yaw_rate[track.yaw_rate > 0], RATE, atol=1e-6)
        truth = run.truth[name]
        begin_s, end_s = told[0].stamp_s + 1.0, told[-1].stamp_s
        inside = (truth.stamp_s >= begin_s) & (truth.stamp_s <= end_s)
        stamps, yaw = truth.stamp_s[inside], truth.yaw[inside]
        assert np.ptp(stamps) > 1.5
        assert np.polyfit(stamps, yaw, 1)[0] == pytest.approx(RATE, abs=0.02)
        assert np.abs(truth.position_world[:, 1] - 2.0 * int(name[1])).max() < 0.1  # the way does not turn with it
        series = recording_of_run(run).robots[name].series["command"].values
        assert series[:, 5].max() == pytest.approx(RATE)
    result = reinfer(run, PolicyArtefact.load(run.policy_path))
    assert result.passed
    assert result.error <= TOLERANCE
