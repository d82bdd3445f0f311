"""A robot with a laser scanner over real DDS: silence and somebody near stop it, an empty room lets it drive."""

import math
import time

import pytest
from tests.deploy.tiny_fleet import make_tiny_fleet

from testudo_deploy.fleet.fleet import load_fleet
from testudo_deploy.launch.child_processes import FleetProcesses
from testudo_deploy.launch.launch_plan import plan
from testudo_deploy.station.fleet_status import FleetStatus

pytestmark = [pytest.mark.ros, pytest.mark.slow]
pytest.importorskip("rclpy")
PATIENCE_S, BEAMS = 60.0, 180
SCAN = "    scan: {topic: scan, period: 0.1, error: 0.03, height: 0.2}\n"


def test_a_robot_stands_without_scans_drives_in_an_empty_room_and_stops_for_somebody(tmp_path):
    from sensor_msgs.msg import LaserScan

    from testudo_nodes.station.status_listener import StatusListener

    fleet = make_tiny_fleet(tmp_path, 1, start_x=0.0, goal_x=50.0, walls=False)
    text = fleet.file.read_text().replace("    type: gritsbot_x\n", "    type: gritsbot_x\n" + SCAN)
    fleet.file.write_text(text)
    heard = FleetStatus(["r0"])
    with pytest.MonkeyPatch.context() as patch, FleetProcesses(plan(load_fleet(fleet.file), run_folder=None)) as all_:
        for key, value in all_.environment().items():
            if key.startswith(("ROS_A", "FAST")):
                patch.setenv(key, value)
        with StatusListener(heard, all_.domain_id, local=True) as listener:
            publisher = listener.node.create_publisher(LaserScan, "/r0/scan", 1)

            def guard():
                return heard.robots(time.monotonic())[0].guard

            def wait_for(code, nearest_m):
                """Wait for a code of the guard while scans are sent; None sends none."""
                end_s = time.monotonic() + PATIENCE_S
                while guard() != code and time.monotonic() < end_s:
                    if nearest_m is not None:
                        publisher.publish(scan(nearest_m))
                    listener.listen(0.05)
                assert guard() == code

            def scan(nearest_m):
                message = LaserScan(angle_min=-math.pi, angle_increment=2 * math.pi / BEAMS, range_min=0.1)
                message.range_max, message.ranges = 12.0, [math.inf] * (BEAMS - 1) + [nearest_m]
                message.header.stamp = listener.node.get_clock().now().to_msg()
                return message

            wait_for("scan_silent", None)
            wait_for("", math.inf)
            wait_for("scan_near", 0.5)
            wait_for("", math.inf)
            wait_for("scan_silent", None)
