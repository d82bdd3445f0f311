"""The robots of a fleet as a MuJoCo world in real time: commands in, late and noisy odometry out.

The plant stands in place of the drivers: it brakes a robot whose commands stop or make no sense,
and says on `applied_cmd_vel` what it lets act. All robots rest until they are commanded.
"""

from __future__ import annotations

import sys
import time

from geometry_msgs.msg import TwistStamped
from nav_msgs.msg import Odometry
from rclpy.clock import Clock, ClockType
from rclpy.node import Node
from rclpy.task import Future
from std_msgs.msg import String

from testudo_deploy.artefact import Artefact
from testudo_deploy.fleet import FleetRobot, load_fleet
from testudo_deploy.plan import DEFAULT_DURATION_S, EVENTS_TOPIC
from testudo_deploy.wire import CommandReading, OdometryReading, WireError, read_command
from testudo_nodes.conversions import command_message, event_message, odometry_message
from testudo_nodes.node_runner import (
    CpuMeter,
    guarded,
    integer_parameter,
    number_parameter,
    run,
    tell,
    text_parameter,
)
from testudo_nodes.qos import OFFERED, REQUESTED
from testudo_sim.plant import Plant, PlantRobot
from testudo_sim.referee import Referee, Rules

_STEP_S = 0.005
_WARN_EVERY_S = 5.0


class PlantNode(Node):
    """The node of the plant."""

    def __init__(self, _stop: Future) -> None:
        """Build the world.

        Raises:
            TestudoError: fleet or policy are refused, or the robots have no room.
        """
        super().__init__("plant")
        self.failed = False
        fleet = load_fleet(text_parameter(self, "fleet", "the fleet file"))
        policy = text_parameter(self, "policy", "the policy file, which holds the arena")
        seed = integer_parameter(self, "seed", 0, (0, 2**31 - 1), "seed of dynamics and noise")
        duration_s = number_parameter(
            self,
            "duration_s",
            DEFAULT_DURATION_S,
            (0.1, 86400.0),
            "time [s] after which the run is declared over",
        )
        arena = Artefact.load(policy, sha256=fleet.policy_sha256).contract.arena
        robots = [
            PlantRobot(robot.name, robot.spec, robot.initial_position_world, robot.initial_yaw)
            for robot in fleet.robots
        ]
        self._events = self.create_publisher(String, EVENTS_TOPIC, OFFERED["events"])
        start_s = time.monotonic()
        self._plant = Plant(robots, arena, seed, start_s=start_s)
        goals = {robot.name: robot.goal_world for robot in fleet.robots}
        self._referee = Referee(Rules(goals, duration_s), start_s)
        self._ports = [_Port(self, self._plant, robot) for robot in fleet.robots]
        self._worst_late_s, self._last_s = 0.0, time.monotonic()
        self._cpu = CpuMeter()
        self._timer = self.create_timer(
            _STEP_S, guarded(self, self._step), clock=Clock(clock_type=ClockType.STEADY_TIME)
        )

    def close(self) -> None:
        """Tell how real time was kept."""
        tell("plant", {"worst_late_s": self._worst_late_s, "cpu_share": self._cpu.share()})

    def _step(self) -> None:
        now_s = time.monotonic()
        self._worst_late_s = max(self._worst_late_s, now_s - self._last_s - _STEP_S)
        self._last_s = now_s
        self._plant.step_to(now_s)
        for port in self._ports:
            port.publish(now_s)
        for event in self._referee.watch(self._plant, now_s):
            self._events.publish(event_message(event))
            kind = event.pop("event")
            tell(kind, event)
            if kind != "state":
                self.get_logger().info(f"{kind}: {event}")


class _Port:
    """The topics of one robot."""

    def __init__(self, node: Node, plant: Plant, robot: FleetRobot) -> None:
        self._node, self._plant = node, plant
        self._name, self._spec = robot.name, robot.spec
        self._odom, self._truth = (
            node.create_publisher(Odometry, f"/{robot.name}/{topic}", OFFERED[topic])
            for topic in ("odom", "truth")
        )
        self._applied = node.create_publisher(
            TwistStamped, f"/{robot.name}/applied_cmd_vel", OFFERED["applied_cmd_vel"]
        )
        node.create_subscription(
            TwistStamped,
            f"/{robot.name}/cmd_vel",
            guarded(node, self._on_command),
            REQUESTED["cmd_vel"],
        )
        self._next_truth_s = self._next_applied_s = 0.0
        self._applied_since_s = float("nan")

    def publish(self, now_s: float) -> None:
        """Send what is due."""
        for sample in self._plant.odometry(self._name):
            reading = OdometryReading(
                sample.stamp_s, sample.position_world, sample.yaw, sample.velocity
            )
            self._odom.publish(odometry_message(self._name, self._spec, reading))
        applied = self._plant.applied(self._name)
        changed = applied.since_s != self._applied_since_s
        if changed or now_s >= self._next_applied_s:
            stamp_s = applied.since_s if changed else now_s
            self._applied_since_s = applied.since_s
            self._next_applied_s = now_s + self._spec.control_period_s
            self._applied.publish(
                command_message(self._name, self._spec, CommandReading(stamp_s, applied.values))
            )
        if now_s >= self._next_truth_s:
            self._next_truth_s = now_s + self._spec.control_period_s
            pose = self._plant.truth(self._name)
            reading = OdometryReading(
                self._plant.time_s, pose.position_world, pose.yaw, pose.velocity
            )
            self._truth.publish(odometry_message(self._name, self._spec, reading))

    def _on_command(self, message: TwistStamped) -> None:
        received_s = time.monotonic()
        try:
            reading = read_command(message, self._name, self._spec)
        except WireError as error:
            self._node.get_logger().warning(str(error), throttle_duration_sec=_WARN_EVERY_S)
            return
        self._plant.command(self._name, reading.command, reading.stamp_s, received_s)


def main() -> None:
    """Run the node until a signal comes."""
    sys.exit(run(PlantNode))


if __name__ == "__main__":
    main()
