"""A robot takes a signal of its policy from a sensor topic of its link, over real DDS and without a task node."""

import time
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
from tests.sim.online_task.task_fleet import write_policy

from testudo_analysis.replay import mutations_detected, reinfer
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.fleet.fleet import Fleet, FleetRobot, load_fleet
from testudo_deploy.fleet.fleet_writer import save_fleet
from testudo_deploy.fleet.robot_links import LinkChoice
from testudo_deploy.launch.child_processes import FleetProcesses
from testudo_deploy.launch.launch_plan import plan
from testudo_deploy.station.fleet_status import FleetStatus
from testudo_hardware.links.link_profile import link_files, load_link
from testudo_hardware.spec import load_robot
from testudo_runs.run_reader import read_run

pytestmark = [
    pytest.mark.ros,
    pytest.mark.skipif(find_spec("rclpy") is None, reason="ROS 2 (rclpy) is not installed"),
    pytest.mark.xdist_group("ros-nodes"),
    pytest.mark.timeout(240),
]
PATIENCE_S, PREY = 60.0, (0.8, 0.0)
SENSOR = """
[signals.prey_position_world]
topic = { value = "camera/prey", source = "test" }
type = { value = "std_msgs/msg/Float32MultiArray", source = "test" }
reliability = { value = "reliable", source = "test" }
delay = { value = 0.05, source = "test" }
"""


@pytest.fixture
def fleet(tmp_path):
    """Return one robot whose camera sees the prey to which its policy drives."""
    spec, profile = load_robot("gritsbot_x"), tmp_path / "camera.toml"
    profile.write_text(link_files()["testudo"].read_text() + SENSOR)
    write_policy(tmp_path / "policy.onnx", "predator_prey", spec)
    link = LinkChoice("camera.toml", load_link(profile))
    robot = FleetRobot("r0", "gritsbot_x", (-0.8, 0.0), 0.0, (0.0, 0.0), spec, link=link)
    policy = tmp_path / "policy.onnx"
    save_fleet(
        Fleet(tmp_path / "fleet.yaml", policy, PolicyArtefact.load(policy).sha256, (robot,)), tmp_path / "fleet.yaml"
    )
    return load_fleet(tmp_path / "fleet.yaml")


def drive(fleet, run):
    """Send what the camera sees for three seconds of driving, then nothing; return the reasons of all brakes."""
    from std_msgs.msg import Float32MultiArray

    from testudo_nodes.station.status_listener import StatusListener

    reasons, sees_until_s, end_s = [], None, time.monotonic() + PATIENCE_S
    with pytest.MonkeyPatch.context() as patch, FleetProcesses(plan(fleet, run_folder=run)) as processes:
        for key, value in processes.environment().items():
            if key.startswith(("ROS_A", "FAST")):
                patch.setenv(key, value)
        with StatusListener(FleetStatus(["r0"]), processes.domain_id, local=True) as listener:
            publisher = listener.node.create_publisher(Float32MultiArray, "/r0/camera/prey", 1)
            while time.monotonic() < end_s:
                if sees_until_s is None or time.monotonic() < sees_until_s:
                    publisher.publish(Float32MultiArray(data=PREY))
                listener.listen(0.05)
                while (event := processes.next_event(0.0)) is not None:
                    if event.kind == "brake":
                        reasons.append(event.values["reason"])
                if sees_until_s is None and reasons and not reasons[-1]:  # it drives
                    sees_until_s = time.monotonic() + 3.0
                elif sees_until_s is not None and reasons[-1].startswith("task_stale"):
                    break
    return reasons


def test_a_sensor_drives_a_robot_and_its_silence_brakes_it(fleet, tmp_path):
    reasons = drive(fleet, tmp_path / "run")
    assert "" in reasons
    assert reasons[-1].startswith("task_stale: prey_position_world: the value of its sensor is 0.4")
    run = read_run(tmp_path / "run")
    assert len(run.sensed["r0"]["prey_position_world"]) > 20
    driven = [record for record in run.ticks["r0"] if record.decided and not record.reason]
    assert {record.task_values["prey_position_world"] for record in driven} == {tuple(np.float32(PREY).tolist())}
    assert max(record.sensed_age_s["prey_position_world"] for record in driven) < 0.4
    policy = PolicyArtefact.load(run.policy_path)
    result = reinfer(run, policy)
    assert result.error <= 1e-12
    # the recorder stamps arrivals too: one held up by the machine leaves a value unverified, and never a wrong one
    compared = {check.name: check.compared for check in result.robots[0].fields}["sensor"]
    assert compared + result.robots[0].unverified == len(driven)
    assert compared > len(driven) / 2
    # a value that no sensor sent is found
    assert {one.field: one.caught for one in mutations_detected(run, policy)}["task_values"]
    forgotten = replace(run, sensed={"r0": {}})
    assert reinfer(forgotten, policy).robots[0].unverified == len(driven)
