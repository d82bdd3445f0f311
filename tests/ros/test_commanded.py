"""A program like nav2 commands a robot over real DDS: it drives as told, and its silence brakes it."""

import time
from importlib.util import find_spec

import pytest
import yaml
from tests.deploy.tiny_fleet import make_tiny_fleet

from testudo_analysis.replay.reinference import reinfer
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.fleet.fleet import load_fleet
from testudo_deploy.launch.child_processes import FleetProcesses
from testudo_deploy.launch.launch_plan import plan
from testudo_deploy.station.fleet_status import FleetStatus
from testudo_hardware.spec import load_robot
from testudo_policies.wrapping.commanded_policy import write_commanded_policy
from testudo_runs.run_reader import read_run

pytestmark = [
    pytest.mark.ros,
    pytest.mark.skipif(find_spec("rclpy") is None, reason="ROS 2 (rclpy) is not installed"),
    pytest.mark.xdist_group("ros-nodes"),
    pytest.mark.timeout(180),
]
PATIENCE_S, DRIVEN_S, FORWARD_M_S = 60.0, 3.0, 0.05


def commanded_robot(folder):
    fleet = make_tiny_fleet(folder, 1, start_x=0.0, goal_x=50.0, walls=False)
    report = write_commanded_policy(folder / "policy.onnx", load_robot("gritsbot_x"))
    tables = yaml.safe_load(fleet.file.read_text()) | {"policy_sha256": report.sha256}
    tables["robots"]["r0"]["link"] = {"profile": "testudo", "commands": {"topic": "cmd_vel_nav"}}
    fleet.file.write_text(yaml.safe_dump(tables))
    return load_fleet(fleet.file)


def test_commands_drive_a_robot_and_their_end_brakes_it(tmp_path, quick):
    from geometry_msgs.msg import Twist

    from testudo_nodes.station.status_listener import StatusListener

    fleet, run, reasons = commanded_robot(tmp_path), tmp_path / "run", []
    driving_until_s, end_s = None, time.monotonic() + PATIENCE_S
    command = Twist()
    command.linear.x = FORWARD_M_S
    with (
        FleetProcesses(plan(fleet, run_folder=run, duration_s=600.0)) as processes,
        StatusListener(FleetStatus(["r0"]), processes.domain_id, local=True) as listener,
    ):
        publisher = listener.node.create_publisher(Twist, "/r0/cmd_vel_nav", 1)
        while time.monotonic() < end_s:
            if driving_until_s is None or time.monotonic() < driving_until_s:
                publisher.publish(command)
            listener.listen(0.05)
            while (event := processes.next_event(0.0)) is not None:
                if event.kind == "brake":
                    reasons.append(event.values["reason"])
            if driving_until_s is None and reasons and not reasons[-1]:
                driving_until_s = time.monotonic() + DRIVEN_S
            elif driving_until_s is not None and reasons[-1].startswith("task_stale"):
                break
    assert reasons[-1].startswith("task_stale: commanded_velocity: the value of its sensor is 0.4")
    recorded = read_run(run)
    driven = [record for record in recorded.ticks["r0"] if record.decided and not record.reason]
    assert len(driven) > 10
    assert driven[-1].sent_command == pytest.approx((FORWARD_M_S, 0.0), abs=2e-3)
    assert reinfer(recorded, PolicyArtefact.load(recorded.policy_path)).error <= 1e-12
