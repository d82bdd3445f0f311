"""The driver of a drone by radio over real DDS: between the guard's topics and a simulated Crazyflie, by `cflib`."""

import json
import subprocess
import sys
from importlib.util import find_spec

import pytest
import yaml
from tests.deploy.tiny_fleet import make_tiny_fleet

from testudo_crazyflie.firmware.firmware_supervisor import State
from testudo_crazyflie.simulated_crazyflie import SimulatedCrazyflieSettings
from testudo_crazyflie.udp_server import CrazyflieServer
from testudo_deploy.fleet.fleet import load_fleet
from testudo_deploy.launch.child_processes import FleetProcesses
from testudo_deploy.launch.launch_plan import plan, ros_arguments

pytestmark = [
    pytest.mark.ros,
    pytest.mark.skipif(find_spec("rclpy") is None, reason="ROS 2 (rclpy) is not installed"),
    pytest.mark.skipif(find_spec("cflib") is None, reason="the extra crazyflie is not installed"),
    pytest.mark.xdist_group("ros-nodes"),
    pytest.mark.timeout(240),
]

GUARD = """
import json, time, rclpy
from geometry_msgs.msg import TwistStamped
from nav_msgs.msg import Odometry
from std_msgs.msg import UInt8MultiArray
from testudo_deploy.guard.flight_messages import FlightRequestMessage, VehicleMessage
from testudo_hardware.links.flight_link import FlightAct, FlightRequest
from testudo_hardware.links.wire import CommandReading, fill_command
from testudo_hardware.spec import load_robot
from testudo_nodes.common.messages import envelope_bytes, envelope_message
from testudo_nodes.common.qos import OFFERED, REQUESTED

rclpy.init()
node = rclpy.create_node("guard", namespace="r0")
spec = load_robot("crazyflie_2x")
places, states, sequence = [], [], 0
command = node.create_publisher(TwistStamped, "cmd_vel", OFFERED["cmd_vel"])
asked = node.create_publisher(UInt8MultiArray, "flight_request", OFFERED["flight_request"])

def on_odometry(message):
    stamp = message.header.stamp.sec + message.header.stamp.nanosec / 1e9
    where = message.pose.pose.position
    places.append((stamp, time.monotonic(), where.x, where.y, where.z, message.header.frame_id))

node.create_subscription(Odometry, "odom", on_odometry, REQUESTED["odom"])
node.create_subscription(UInt8MultiArray, "vehicle_state",
                         lambda message: states.append(VehicleMessage.decode(envelope_bytes(message))), 10)

def ask(act, height_m=0.0, duration_s=0.0):
    global sequence
    sequence += 1
    request = FlightRequest(FlightAct(act), height_m, duration_s)
    message = FlightRequestMessage.of("r0", sequence, time.monotonic(), request)
    for _ in range(2):  # what comes again is the same request
        asked.publish(envelope_message(message.encode()))

def spin(duration_s, until=lambda: False, velocity=None):
    end_s = time.monotonic() + duration_s
    while time.monotonic() < end_s and not until():
        rclpy.spin_once(node, timeout_sec=0.01)
        if velocity is not None:
            reading = CommandReading(time.monotonic(), velocity)
            command.publish(fill_command(TwistStamped(), "r0", spec, reading))
    return until()

assert spin(60.0, lambda: states and places), "the driver speaks"
ask("arm")
ask("take_off", 0.8, 1.5)
assert spin(20.0, lambda: places[-1][4] > 0.75), "it takes off"
assert states[-1].armed
spin(1.5, velocity=(0.0, 0.0, 0.0))
before = len(places)
begin_s = time.monotonic()
spin(3.0, velocity=(0.4, 0.0, 0.0))
rate_hz = (len(places) - before) / (time.monotonic() - begin_s)
ask("notify_setpoints_stop")
ask("land", 0.0, 2.0)
landed = spin(20.0, lambda: places[-1][4] < 0.06, (0.0, 0.0, 0.0))
print(json.dumps({"rate_hz": rate_hz, "x": places[-1][2], "frame": places[-1][5], "landed": landed,
                  "youngest_s": min(heard - stamp for stamp, heard, *_ in places), "battery_v": states[-1].battery_v,
                  "controller": states[-1].controller, "latency_s": states[-1].latency_s}))
"""


def driver_of(folder, uri):
    fleet = make_tiny_fleet(folder, 1, "crazyflie_2x", walls=False)
    tables = yaml.safe_load(fleet.file.read_text())
    tables["robots"]["r0"]["link"] = {"profile": "crazyflie_radio", "uri": uri}
    fleet.file.write_text(yaml.safe_dump(tables))
    processes = plan(load_fleet(fleet.file), run_folder=None, backend="hw")
    return next(process for process in processes if process.name == "driver")


def test_a_drone_is_armed_flown_and_landed_over_topics_and_radio(tmp_path):
    settings = SimulatedCrazyflieSettings.create(auto_arm=False)
    with CrazyflieServer(settings) as server, FleetProcesses([driver_of(tmp_path, server.uri)]) as processes:
        found = subprocess.run(
            [sys.executable, "-c", GUARD],
            env=processes.environment(),
            timeout=150,
            capture_output=True,
            text=True,
            check=False,
        )
        assert found.returncode == 0, found.stderr
        with server.craft() as craft:
            fell = craft.supervisor.state in (State.LOCKED, State.CRASHED)
    said = json.loads(found.stdout)
    assert said["landed"]
    assert not fell
    assert said["x"] > 0.6
    assert said["frame"] == "world"
    assert said["rate_hz"] > 0
    assert said["youngest_s"] > 0
    assert (said["controller"], 3.5 < said["battery_v"] < 4.2) == ("pid", True)
    assert 0 <= said["latency_s"] < 0.1


def test_a_drone_that_does_not_answer_ends_the_driver_with_one_line(tmp_path):
    driver = driver_of(tmp_path, "udp://127.0.0.1:1")
    result = subprocess.run(
        [sys.executable, "-m", driver.module, *ros_arguments(driver)],
        capture_output=True,
        text=True,
        env=FleetProcesses([driver]).environment(),
        timeout=90,
        check=False,
    )
    assert result.returncode == 2
    assert result.stderr.startswith("refused: r0: udp://127.0.0.1:1: ConnectionRefusedError")
    assert len(result.stderr.splitlines()) == 1
