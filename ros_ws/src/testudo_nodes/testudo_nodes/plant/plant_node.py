"""The robots of a fleet as a MuJoCo world in real time: commands in, late and noisy odometry out.

The plant stands in place of the drivers: it brakes a robot whose commands stop or make no sense,
and says on `applied_cmd_vel` what it lets act. All robots rest until they are commanded, and they
sense nothing, and so do not drive, before the recorder listens. Tests may break a robot: from the start by
the parameter `faults`, or on its topic `plant_fault`, as `testudo_plant.plant.injected_faults` says.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from geometry_msgs.msg import TwistStamped
from nav_msgs.msg import Odometry
from rclpy.node import Node
from rclpy.task import Future
from std_msgs.msg import String

from testudo_deploy.admission.shared_arena import world_arena
from testudo_deploy.fleet.fleet import Fleet, FleetRobot, load_fleet
from testudo_deploy.fleet.pose_source import absolute
from testudo_deploy.launch.launch_plan import (
    DEFAULT_DURATION_S,
    EVENTS_TOPIC,
    LEAST_DURATION_S,
    MOST_DURATION_S,
    MOST_SEED,
)
from testudo_hardware.errors import TestudoError
from testudo_hardware.links.wire import CommandReading, OdometryReading, WireError
from testudo_nodes.common.clock import RealTime, is_lock_step
from testudo_nodes.common.message_conversions import command_message, event_message, odometry_message
from testudo_nodes.common.message_definitions import message_class
from testudo_nodes.common.node_runner import (
    WARN_EVERY_S,
    CpuMeter,
    flag_parameter,
    integer_parameter,
    number_parameter,
    optional_text,
    report_status,
    run,
    text_parameter,
)
from testudo_nodes.common.qos import OFFERED, REQUESTED, measured
from testudo_nodes.plant.lock_step_server import LockStepServer
from testudo_nodes.plant.simulated_vehicle import VehicleInterface
from testudo_plant.plant import (
    DroneOptions,
    LatencyMeter,
    LinkEmulation,
    OdometryModel,
    Plant,
    PlantRobot,
    RadioModel,
    RobotFaults,
    read_faults,
    read_radio,
    read_start_faults,
)
from testudo_plant.run_monitor import RunLimits, RunMonitor
from testudo_plant.worlds.drone_dynamics import flies

_STEP_S = 0.005
_WARM_UP_S = 10.0
"""Commands of the first seconds do not count for the latency."""
_RECORDER_PATIENCE_S = 20.0


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
        seed = integer_parameter(self, "seed", 0, (0, MOST_SEED), "seed of dynamics and noise")
        duration_s = number_parameter(
            self,
            "duration_s",
            DEFAULT_DURATION_S,
            (LEAST_DURATION_S, MOST_DURATION_S),
            "time [s] after which the run is declared over",
        )
        recorded = flag_parameter(self, "recorded", default=False, description="wait for a recorder before the start")
        odometry = _odometry_model(self)
        arena = world_arena(replace(fleet, policy=Path(policy)))
        stand_ins = [LinkEmulation(robot) for robot in fleet.robots]
        robots = [
            PlantRobot(
                robot.name,
                robot.spec,
                robot.initial_position_world,
                robot.initial_yaw,
                stand_in.rate_hz,
                grounded=robot.has_flight_phases,
            )
            for robot, stand_in in zip(fleet.robots, stand_ins, strict=True)
        ]
        self._tempo = self._make_tempo(fleet)
        self.priority = self._tempo.priority
        self._events = self._tempo.publisher(String, EVENTS_TOPIC, OFFERED["events"])
        start_s = self._tempo.now_s()
        drones = DroneOptions(
            _radio_model(self),
            downwash=flag_parameter(
                self, "downwash", default=True, description="whether drones push down those below them"
            ),
        )
        self._plant = Plant(robots, arena, seed, start_s=start_s, odometry=odometry, drones=drones)
        for name, faults in _start_faults(self, fleet).items():
            self._plant.break_robot(name, faults)
        goals = {robot.name: robot.goal_world for robot in fleet.robots}
        follows = {robot.name: robot.follows for robot in fleet.robots if robot.follows is not None}
        self._rules = RunLimits(goals, duration_s, follows=follows)
        self._referee: RunMonitor | None = None
        self._waits_for_recorder = recorded and not self._tempo.in_rounds  # which begin when everybody is there
        self._waits_until_s = start_s + _RECORDER_PATIENCE_S
        self._ports = [
            _Port(self, self._tempo, self._plant, robot, stand_in)
            for robot, stand_in in zip(fleet.robots, stand_ins, strict=True)
        ]
        self._worst_late_s, self._last_s = 0.0, start_s
        self._cpu = CpuMeter()
        self._begun_s: float | None = None
        """Real time at the first step; simulated time was ``start_s``."""
        self._start_s = start_s
        self._timer = self._tempo.every(_STEP_S, self._step)

    def close(self) -> None:
        """Tell how real time was kept."""
        latency = {port.name: port.latency.summary() for port in self._ports}
        factor = None
        if self._begun_s is not None:
            factor = (self._tempo.now_s() - self._start_s) / max(time.monotonic() - self._begun_s, 1e-9)
        radio = self._plant.radio
        values = {
            "worst_late_s": self._worst_late_s,
            "latency": latency,
            "real_time_factor": factor,
            "radio": {"sent": radio.sent, "lost": radio.lost, "bursts": radio.bursts},
        }
        report_status("plant", {**values, "cpu_share": self._cpu.share()})

    def _step(self) -> None:
        now_s = self._tempo.now_s()
        if self._begun_s is None:
            self._begun_s = time.monotonic()
        if not self._tempo.in_rounds:
            self._worst_late_s = max(self._worst_late_s, now_s - self._last_s - _STEP_S)
        self._last_s = now_s
        self._plant.step_to(now_s)
        if self._referee is None:
            if not self._may_begin(now_s):
                return
            self._referee = RunMonitor(self._rules, now_s)
        for port in self._ports:
            port.publish(now_s)
        for event in self._referee.watch(self._plant, now_s):
            self._say(event)

    def _say(self, event: dict[str, Any]) -> None:
        """Publish an event and tell it; the end of a run in rounds only when everybody has ended the round."""
        self._events.publish(event_message(event))
        if event["event"] == "finished" and self._tempo.in_rounds:
            self._tempo.end_after_this_round(partial(self._tell, event))
        else:
            self._tell(event)

    def _tell(self, event: dict[str, Any]) -> None:
        kind = event.pop("event")
        report_status(kind, event)
        if kind != "state":
            self.get_logger().info(f"{kind}: {event}")

    def _on_stuck(self, sentence: str) -> None:
        """End a run in rounds in which somebody does not answer."""
        self.get_logger().error(sentence)
        self._referee = self._referee or RunMonitor(self._rules, self._tempo.now_s())
        self._tell(self._referee.end(self._plant, self._tempo.now_s(), "stalled"))

    def _make_tempo(self, fleet: Fleet) -> RealTime | LockStepServer:
        """Return real time, or rounds, as the parameters say."""
        conducts = is_lock_step(self)
        nodes = optional_text(self, "lock_step_nodes", "labels of the nodes that take part in rounds, by spaces")
        if not conducts:
            return RealTime(self)
        periods_s = {robot.spec.control_period_s for robot in fleet.robots}
        return LockStepServer(self, nodes.split(), periods_s, self._on_stuck)

    def _may_begin(self, now_s: float) -> bool:
        """Return whether the recorder listens, or was waited for in vain; drops what is sensed."""
        if not self._waits_for_recorder or all(port.has_recorder() for port in self._ports):
            return True
        for port in self._ports:
            port.drop()
        if now_s < self._waits_until_s:
            return False
        self.get_logger().warning("no recorder came: the run begins without it")
        return True


class _Port:
    """The topics of one robot."""

    def __init__(
        self, node: Node, tempo: RealTime | LockStepServer, plant: Plant, robot: FleetRobot, stand_in: LinkEmulation
    ) -> None:
        self._node, self._tempo, self._plant, self._stand_in = node, tempo, plant, stand_in
        self.name = self._name = robot.name
        self._spec, self.latency = robot.spec, LatencyMeter(_WARM_UP_S)
        self._sensed = {
            topic.kind: (
                message_class(topic.type),
                tempo.publisher(message_class(topic.type), topic.absolute, measured(reliable=topic.wire.reliable)),
            )
            for topic in stand_in.topics
        }
        self._truth = tempo.publisher(Odometry, f"/{robot.name}/truth", OFFERED["truth"])
        self._applied = tempo.publisher(TwistStamped, f"/{robot.name}/applied_cmd_vel", OFFERED["applied_cmd_vel"])
        tempo.listen(
            message_class(stand_in.commands.type),
            absolute(robot.link.topics["cmd_vel"], robot.name),
            self._on_command,
            REQUESTED["cmd_vel"],
        )
        tempo.listen_outside(String, f"/{robot.name}/plant_fault", self._on_fault, REQUESTED["plant_fault"])
        self._vehicle = VehicleInterface(node, tempo, plant, robot) if flies(robot.spec) else None
        self._next_truth_s = self._next_applied_s = 0.0
        self._applied_since_s = float("nan")

    def has_recorder(self) -> bool:
        """Return whether somebody listens to the truth."""
        return self._truth.get_subscription_count() > 0

    def drop(self) -> None:
        """Forget what was sensed."""
        self._plant.odometry(self._name)

    def publish(self, now_s: float) -> None:
        """Send what is due."""
        for sample in self._plant.odometry(self._name):
            reading = OdometryReading(sample.stamp_s, sample.position_world, sample.yaw, sample.velocity)
            self.latency.odometry(self._tempo.now_s())
            for topic, measurement in self._stand_in.say(reading, *self._tempo.clocks()):
                kind, publisher = self._sensed[topic.kind]
                publisher.publish(topic.wire.encode(kind(), measurement))
        if self._vehicle is not None:
            self._vehicle.publish(now_s)
        applied = self._plant.applied(self._name)
        changed = applied.since_s != self._applied_since_s
        if changed or now_s >= self._next_applied_s:
            stamp_s = applied.since_s if changed else now_s
            self._applied_since_s = applied.since_s
            self._next_applied_s = now_s + self._spec.control_period_s
            self._applied.publish(
                command_message(self._name, self._spec, CommandReading(stamp_s, applied.values, applied.yaw_rate))
            )
        if now_s >= self._next_truth_s:
            self._next_truth_s = now_s + self._spec.control_period_s
            pose = self._plant.truth(self._name)
            reading = OdometryReading(
                self._plant.time_s,
                pose.position_world,
                pose.yaw,
                pose.velocity,
                quaternion_xyzw=pose.quaternion_xyzw,
            )
            self._truth.publish(odometry_message(self._name, self._spec, reading))

    def _on_command(self, message: Any) -> None:
        ros_now_s, received_s = self._tempo.clocks()
        try:
            reading = self._stand_in.command(message, ros_now_s, received_s)
        except WireError as error:
            self._node.get_logger().warning(str(error), throttle_duration_sec=WARN_EVERY_S)
            return
        self.latency.command(reading.stamp_s, received_s)
        self._plant.command(self._name, reading.command, reading.stamp_s, received_s, reading.yaw_rate)

    def _on_fault(self, message: String) -> None:
        where = f"/{self._name}/plant_fault"
        try:
            faults = read_faults(message.data, self._plant.faults(self._name), self._spec, where)
        except TestudoError as error:
            self._node.get_logger().warning(str(error))
            return
        self._plant.break_robot(self._name, faults)
        self._node.get_logger().warning(f"{where}: {faults}")


def _odometry_model(node: Node) -> OdometryModel:
    """Declare how old odometry is and return the model."""
    low_s, high_s = (
        number_parameter(node, f"latency_{end}_s", default, (0.0, 1.0), f"{what} age [s] of odometry")
        for end, default, what in (("low", 0.02, "least"), ("high", 0.06, "greatest"))
    )
    return OdometryModel(latency_low_s=low_s, latency_high_s=high_s)


def _radio_model(node: Node) -> RadioModel:
    """Declare what the radio to drones does and return it."""
    description = 'what the radio to drones loses, JSON such as {"loss": 0.05, "burst_s": 0.1, "every_s": 1.0}'
    return read_radio(optional_text(node, "radio", description), "plant: parameter radio")


def _start_faults(node: Node, fleet: Fleet) -> dict[str, RobotFaults]:
    """Declare what is broken from the start and return it by robot."""
    description = 'for tests only: what is broken in robots, JSON such as {"r0": {"braking_share": 0.7}}'
    text = optional_text(node, "faults", description)
    return read_start_faults(text, {robot.name: robot.spec for robot in fleet.robots}, "plant: parameter faults")


def main() -> None:
    """Run the node until a signal comes."""
    sys.exit(run(PlantNode))


if __name__ == "__main__":
    main()
