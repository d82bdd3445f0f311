"""An intruder without the fleet key, on every topic of two robots: it moves no robot and displaces no peer.

Without a key the same intruder does both, which the control shows; in `make test` the rows 23 of the fault matrix do.
"""

import dataclasses
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
from tests.deploy.tiny_fleet import make_tiny_fleet

from testudo_deploy.commands.security import add_key
from testudo_deploy.fleet.fleet import load_fleet
from testudo_deploy.launch.child_processes import FleetProcesses
from testudo_deploy.launch.launch_plan import plan

pytestmark = pytest.mark.ros
pytest.importorskip("rclpy")
REVERSE_M_S = -0.123
PATIENCE_S = 40.0


class Intruder:
    """A node in the domain of the fleet that knows every message and has no key."""

    def __init__(self, domain_id):
        import rclpy
        from geometry_msgs.msg import TwistStamped
        from nav_msgs.msg import Odometry
        from rclpy.executors import SingleThreadedExecutor
        from std_msgs.msg import UInt8MultiArray

        from testudo_nodes.common.qos import OFFERED, recorded

        self.domain_id, self.context = domain_id, rclpy.Context()
        rclpy.init(context=self.context, domain_id=domain_id)
        self.node = rclpy.create_node("intruder", context=self.context)
        self._executor = SingleThreadedExecutor(context=self.context)
        self._executor.add_node(self.node)
        self._offered = OFFERED
        self.kinds = {
            "peer_state": UInt8MultiArray,
            "tick": UInt8MultiArray,
            "odom": Odometry,
            "cmd_vel_policy": TwistStamped,
            "cmd_vel": TwistStamped,
        }
        self.newest, self.applied, self.truth = {}, [], []
        for topic, kind in self.kinds.items():
            self._listen(kind, f"/r0/{topic}", recorded(topic), lambda m, t=topic: self.newest.update({t: m}))
        self._listen(TwistStamped, "/r0/applied_cmd_vel", recorded("cmd_vel"), self._on_applied)
        self._listen(Odometry, "/r1/truth", recorded("truth"), self._on_truth)

    def _listen(self, kind, topic, profile, callback):
        self.node.create_subscription(kind, topic, callback, profile)

    def _on_applied(self, message):
        self.applied.append(round(message.twist.linear.x, 6))

    def _on_truth(self, message):
        self.truth.append(message.pose.pose.position.x)

    def listen(self, seconds, act=lambda: None):
        """Receive for a time, and act 100 times a second."""
        end_s, next_s = time.monotonic() + seconds, 0.0
        while time.monotonic() < end_s:
            if time.monotonic() >= next_s:
                next_s = time.monotonic() + 0.01
                act()
            self._executor.spin_once(timeout_sec=0.002)

    def wait_until_driving(self, act=lambda: None, *, way_m=0.01):
        """Wait until robot r1 moves that far in half a second, and act meanwhile."""
        end_s = time.monotonic() + PATIENCE_S
        while self.way_of_r1(0.5, act) < way_m:
            assert time.monotonic() < end_s, "the robots did not drive"

    def wait_until_standing(self):
        """Wait until robot r1 stands, and stays there."""
        end_s = time.monotonic() + PATIENCE_S
        while self.way_of_r1(2.0) > 0.01:
            assert time.monotonic() < end_s, "robot r1 drove on"

    def way_of_r1(self, seconds, act=lambda: None):
        """Return how far robot r1 moves along x in a time [m]."""
        self.listen(0.1)
        before = self.truth[-1] if self.truth else 0.0
        self.listen(seconds, act)
        return self.truth[-1] - before if self.truth else 0.0

    def publisher(self, topic):
        return self.node.create_publisher(self.kinds[topic], f"/r0/{topic}", self._offered[topic])

    def declares_lost(self, robot):
        """Return whether r1 confirms that a robot is lost after a declaration without the key."""
        from diagnostic_msgs.msg import DiagnosticStatus
        from std_msgs.msg import String

        from testudo_deploy.contract.lost_robot import LostRobot
        from testudo_nodes.common.messages import status_values
        from testudo_nodes.common.qos import SHOWN

        confirmed = []
        self._listen(
            DiagnosticStatus, "/r1/mode", SHOWN["mode"], lambda m: confirmed.append(status_values(m)["lost"] == robot)
        )
        publisher = self.node.create_publisher(String, "/fleet/lost", self._offered["lost"])
        self.listen(2.0, lambda: publisher.publish(String(data=LostRobot(robot, None).encode().decode())))
        return any(confirmed)

    def drive_r0(self, seconds):
        """Command r0 backwards, with honest stamps; return whether one of the commands was applied."""
        from testudo_hardware.links.wire import fill_stamp

        publisher, message = self.publisher("cmd_vel"), self.kinds["cmd_vel"]()
        self.listen(0.5)
        self.applied.clear()

        def act():
            fill_stamp(message.header.stamp, time.monotonic())
            message.header.frame_id = self.newest["cmd_vel"].header.frame_id
            message.twist.linear.x = REVERSE_M_S
            publisher.publish(message)

        self.listen(seconds, act)
        self.node.destroy_publisher(publisher)
        return REVERSE_M_S in self.applied

    def forge_peer_and_pose(self):
        """Return a function that sends changed copies of r0's newest messages, once each."""
        from testudo_deploy.contract.messages import PeerMessage
        from testudo_nodes.common.messages import envelope_bytes, envelope_message

        publishers = {topic: self.publisher(topic) for topic in ("peer_state", "odom", "tick")}
        self.listen(0.5)

        def act():
            told = PeerMessage.decode(envelope_bytes(self.newest["peer_state"]))
            forged = dataclasses.replace(told, sequence=told.sequence + 1_000_000)
            publishers["peer_state"].publish(envelope_message(forged.encode()))
            odometry = self.newest["odom"]
            odometry.pose.pose.position.x += 3.0
            publishers["odom"].publish(odometry)
            publishers["tick"].publish(self.newest["tick"])

        return act


@contextmanager
def driving(folder, *, keyed):
    """Start two robots that drive, with an intruder."""
    fleet = make_tiny_fleet(folder, 2, start_x=0.0, goal_x=50.0, walls=False)
    if keyed:
        add_key(fleet)
        fleet = load_fleet(fleet.file)
    processes = FleetProcesses(plan(fleet, run_folder=None, duration_s=600.0))
    with pytest.MonkeyPatch.context() as patch:
        for key, value in processes.environment().items():
            if key.startswith(("ROS_A", "ROS_D", "FAST")):
                patch.setenv(key, value)
        intruder = Intruder(processes.domain_id)
        with processes:
            intruder.wait_until_driving()
            yield intruder
        intruder.context.try_shutdown()


def test_with_a_key_no_forged_message_acts(tmp_path):
    """Nor does a forged declaration that a robot is lost; that of an operator with the key does."""
    with driving(tmp_path, keyed=True) as intruder:
        assert intruder.declares_lost("r0") is False
        words = ["lost", str(tmp_path / "fleet.yaml"), "r0", "--where-last-seen", "--local", "--wait", "2"]
        command = [sys.executable, "-m", "testudo_deploy.cli", *words, "--domain", str(intruder.domain_id)]
        # r0 speaks, so that it is lost for a moment only
        said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert "r0 is lost" in said.stdout, said.stdout + said.stderr
        forge = intruder.forge_peer_and_pose()
        intruder.listen(2.0, forge)
        intruder.wait_until_driving(forge, way_m=0.03)  # r1 trusts r0, and drives on while the intruder sends
        assert not intruder.drive_r0(2.0)
        assert 0.0 in intruder.applied  # the guard brakes for a second publisher


@pytest.mark.slow
def test_without_a_key_they_act(tmp_path):
    with driving(tmp_path, keyed=False) as intruder:
        assert intruder.drive_r0(2.0)
        intruder.wait_until_driving()
        intruder.way_of_r1(1.0, intruder.forge_peer_and_pose())
        intruder.wait_until_standing()  # r1 refuses the messages of the true r0
