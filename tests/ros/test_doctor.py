"""The doctor listens to a fleet over real DDS: nothing of a sound one, and each fault that another program plants."""

import subprocess
import sys
import time
from importlib.util import find_spec

import pytest
from tests.deploy.tiny_fleet import make_tiny_fleet

from testudo_deploy.doctor.finding import Level
from testudo_deploy.doctor.live_checks import check_live
from testudo_deploy.launch.child_processes import FleetProcesses
from testudo_deploy.launch.launch_plan import plan

pytestmark = [
    pytest.mark.ros,
    pytest.mark.skipif(find_spec("rclpy") is None, reason="ROS 2 (rclpy) is not installed"),
    pytest.mark.xdist_group("ros-nodes"),
    pytest.mark.timeout(120),
]
PATIENCE_S = 60.0
INTRUDER = """
import time, rclpy
from geometry_msgs.msg import Twist, TwistStamped
from rclpy.qos import qos_profile_sensor_data
from std_msgs.msg import UInt8MultiArray
rclpy.init()
node = rclpy.create_node("controller_server")
publishers = [
    node.create_publisher(TwistStamped, "/r0/cmd_vel", qos_profile_sensor_data),
    node.create_publisher(Twist, "/r1/cmd_vel", 1),
    node.create_publisher(UInt8MultiArray, "/tb9/peer_state", 1),
]
time.sleep(600)
"""
"""A controller past the guards: best effort, of another type, and a robot of another fleet."""


def test_faults_of_a_running_fleet_are_named(tmp_path):
    from testudo_nodes.station.fleet_probe import hear_fleet

    fleet = make_tiny_fleet(tmp_path, 2, goal_x=50.0, walls=False)
    with FleetProcesses(plan(fleet, run_folder=None, duration_s=600.0)) as processes:

        def worse(seconds=1.0):
            facts = hear_fleet(fleet, seconds, processes.domain_id, local=True)
            # a loaded machine is late; that is no fault of this fleet
            return [one for one in check_live(fleet, facts) if one.level != Level.OK and "ticks" not in one.check]

        end_s = time.monotonic() + PATIENCE_S
        while (found := worse()) and time.monotonic() < end_s:
            pass
        assert not [one for one in found if one.level == Level.FAILED and "rates" not in one.check]
        program = subprocess.Popen([sys.executable, "-c", INTRUDER], env=processes.environment())
        try:
            expected = {"r0 commands", "r1 commands", "QoS", "r1 types", "unknown robots"}
            while not expected <= {one.check for one in found} and time.monotonic() < end_s:
                found = worse()
        finally:
            program.kill()
            program.wait()
    named = {one.check: one for one in found}
    assert expected <= set(named)
    assert "/controller_server also publishes /r0/cmd_vel" in named["r0 commands"].found
    assert "/controller_server offers best_effort" in named["QoS"].found
    assert "publishes geometry_msgs/msg/Twist on /r1/cmd_vel" in named["r1 types"].found
    assert "tb9" in named["unknown robots"].found
