"""Drones with flight phases on the plant, through all nodes: up from the floor, and flown by their policies."""

import time
from importlib.util import find_spec

import pytest

pytestmark = [
    pytest.mark.ros,
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("rclpy") is None, reason="ROS 2 (rclpy) is not installed"),
    pytest.mark.timeout(240),
]

from testudo_deploy.contract.policy_artefact import PolicyArtefact  # noqa: E402
from testudo_deploy.fleet.fleet import load_fleet  # noqa: E402
from testudo_deploy.launch.child_processes import FleetProcesses  # noqa: E402
from testudo_deploy.launch.launch_plan import plan  # noqa: E402
from testudo_hardware.spec import load_robot  # noqa: E402
from testudo_sim.go_to_goal import write_go_to_goal_policy  # noqa: E402

PATIENCE_S = 200.0


def write_drones(folder):
    """Write a fleet of two drones that stand on the floor 2 m apart, and return it."""
    policy = folder / "policy.onnx"
    write_go_to_goal_policy(policy, load_robot("crazyflie_2x"), team_size=2)
    robots = [
        f"  r{k}: {{type: crazyflie_2x, initial_position: [0.0, {2.0 * k}, 1.0], initial_yaw: 0.0, "
        f"goal: [0.6, {2.0 * k}, 1.0], "
        f"link: {{profile: crazyflie_radio, uri: 'radio://{k}/80/2M/E7E7E7E70{k}', onboard_brake: true}}}}"
        for k in range(2)
    ]
    head = ["fileversion: 1", "policy: policy.onnx", f"policy_sha256: {PolicyArtefact.load(policy).sha256}", "robots:"]
    (folder / "fleet.yaml").write_text("\n".join([*head, *robots]) + "\n", encoding="utf-8")
    return load_fleet(folder / "fleet.yaml")


def test_two_drones_take_off_and_are_flown_by_their_policies(tmp_path):
    fleet = write_drones(tmp_path)
    assert all(robot.has_flight_phases for robot in fleet.robots)
    modes = {name: [] for name in fleet.names}
    began_m, least_m, contacts, lines = None, {}, 0, []
    end_s = time.monotonic() + PATIENCE_S
    with FleetProcesses(plan(fleet, run_folder=None, duration_s=5.0, lock_step=True)) as processes:
        while time.monotonic() < end_s:
            event = processes.next_event(1.0)
            if event is None:
                continue
            if event.kind == "error_line" and "Error" in event.values["text"]:
                lines.append(event.values["text"])
            elif event.kind == "mode":
                modes[event.values["robot"]].append(event.values["mode"])
            elif event.kind in ("state", "finished"):
                began_m = began_m or dict(event.values["distance_m"])
                contacts = event.values["contacts"]
                for name, distance_m in event.values["distance_m"].items():
                    least_m[name] = min(least_m.get(name, 10.0), distance_m)
                if event.kind == "finished":
                    break
    assert not lines
    for name, seen in modes.items():
        assert [mode for mode in ("disarmed", "take_off", "hold", "active") if mode in seen] == [
            "disarmed",
            "take_off",
            "hold",
            "active",
        ]
        assert began_m[name] > 1.0  # from the floor
        assert least_m[name] < 0.65  # at its height
    assert contacts == 0
