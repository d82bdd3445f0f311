"""Drives one robot through its calibration: sends twists on the topic whose commands the robot follows, shielded.

Policy and guard of the robot treat them as those of any other program; `testudo_deploy.calibration` chooses them. The
free area is the arena of the policy file.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from diagnostic_msgs.msg import DiagnosticStatus
from geometry_msgs.msg import Twist
from rclpy.node import Node
from rclpy.task import Future

from testudo_deploy.calibration.area import Area, drive_room
from testudo_deploy.calibration.calibration_drive import CalibrationDrive, Outcome
from testudo_deploy.calibration.excitation import LONGEST_S, excitation_plan
from testudo_deploy.contract.policy_archive import read_policy_contract
from testudo_deploy.fleet.fleet import load_fleet
from testudo_deploy.fleet.link_topics import absolute
from testudo_hardware.errors import TestudoError
from testudo_hardware.links.wire import Measurement
from testudo_nodes.common.clock import backend_of, clock_of, secure
from testudo_nodes.common.messages import status_values
from testudo_nodes.common.node_runner import (
    WARN_EVERY_S,
    CpuMeter,
    parameter,
    report_status,
    run,
    text_parameter,
)
from testudo_nodes.common.qos import OFFERED, REQUESTED
from testudo_nodes.robot.subscriptions import PoseSubscription


class CalibrationNode(Node):
    """The node, in the namespace of its robot."""

    def __init__(self, _stop: Future) -> None:
        """Plan the drive.

        Raises:
            TestudoError: fleet, policy or robot is refused, or the area is too small.
        """
        super().__init__("calibration")
        self.failed = False
        fleet = load_fleet(text_parameter(self, "fleet", "the fleet file"))
        robot = fleet.robot(text_parameter(self, "robot", "the name of this robot in the fleet file"))
        policy = Path(text_parameter(self, "policy", "the policy file, whose arena is the free area"))
        driven = parameter(self, "driven", 0, "segments of the plan that are driven already", (0, 1000))
        longest_s = parameter(self, "longest_s", LONGEST_S, "longest time of the drive [s]", (0.0, LONGEST_S))
        arena = read_policy_contract(policy, fleet.team_of(robot.name).policy_sha256).arena
        if arena is None or robot.link.commands is None:
            raise TestudoError(
                f"{robot.name}: found no arena in {policy}, or no link.commands, expected both: testudo calibrate "
                "writes them"
            )
        area = Area.of(arena)
        room = drive_room(robot.spec, area)
        plan = excitation_plan(robot.spec, room)
        self._node_clock = clock = clock_of(self)
        secure(self, clock, fleet, backend_of(self))
        self.priority = clock.priority
        self._drive = CalibrationDrive(robot.spec, area, room, plan[driven:], longest_s or LONGEST_S)
        self._reported: tuple[str, int] = ("", 0)
        self._twists = clock.publisher(Twist, absolute(robot.link.commands.topic, robot.name), OFFERED["cmd_vel"])
        clock.subscribe(DiagnosticStatus, "mode", self._on_mode, REQUESTED["mode"])

        def subscribe(kind: type, topic: str, callback: Callable[[Any], None], quality: str) -> None:
            clock.subscribe(kind, topic, callback, REQUESTED[quality])

        PoseSubscription(clock.clocks, robot).begin(subscribe, self._on_pose, self._warn)
        self._timer = clock.every(robot.spec.control_period_s, self._step)
        self._cpu = CpuMeter()

    def close(self) -> None:
        """Send a brake as the last command."""
        self._twists.publish(Twist())
        report_status("calibration_node", {"cpu_share": self._cpu.share()})

    def _on_pose(self, reading: Measurement, received_s: float) -> None:
        self._drive.hear_pose(reading.stamp_s, reading.position_world, reading.yaw, received_s)

    def _on_mode(self, message: DiagnosticStatus) -> None:
        self._drive.hear_mode(status_values(message).get("mode", ""), message.message)

    def _step(self) -> None:
        drive, twist = self._drive, Twist()
        command = drive.command(self._node_clock.now_s())
        if command is not None:  # else silence, on which the robot brakes
            twist.linear.x, twist.angular.z = command
            self._twists.publish(twist)
        state = (str(drive.outcome), len(drive.done))
        if state != self._reported:
            self._reported = state
            ended = drive.outcome is not Outcome.RUNNING
            report_status(
                "calibration",
                {
                    "outcome": str(drive.outcome),
                    "reason": drive.reason,
                    "done": drive.done,
                    "used_s": drive.used_s,
                    "ended": ended,
                },
            )
            if ended:
                self.get_logger().info(f"{drive.outcome}: {drive.reason}")

    def _warn(self, error: Exception) -> None:
        self.get_logger().warning(str(error), throttle_duration_sec=WARN_EVERY_S)


def main() -> None:
    """Run the node until a signal comes."""
    sys.exit(run(CalibrationNode))


if __name__ == "__main__":
    main()
