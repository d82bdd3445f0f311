"""The robots and bodies of a fleet as a MuJoCo world: commands in, delayed and noisy odometry out.

The plant replaces the drivers: it brakes a robot whose commands end or are invalid, and publishes on `applied_cmd_vel`
the command that acts. All robots rest until they receive commands, and are not measured before the recorder is ready,
so that they do not drive before. Tests inject faults: from the start by the parameter `faults`, or on a robot's topic
`plant_fault`, see `testudo_plant.plant.injected_faults`.
"""

import json
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rclpy.node import Node
from rclpy.task import Future
from std_msgs.msg import String

from testudo_deploy.admission.fleet_admission import world_arena
from testudo_deploy.fleet.fleet import Fleet, load_fleet
from testudo_deploy.launch.launch_plan import DEFAULT_DURATION_S, LEAST_DURATION_S, MOST_DURATION_S, MOST_SEED
from testudo_deploy.launch.lock_step import OPTIONAL_NODES
from testudo_deploy.launch.topic_names import (
    ARRIVED,
    EVENTS_TOPIC,
    NOT_AT_START,
    RUNNING,
    SCORE_TOPIC,
    SUCCESS,
    TIMEOUT,
)
from testudo_nodes.common.clock import RealTimeClock, is_lock_step, secure
from testudo_nodes.common.messages import event_message
from testudo_nodes.common.node_runner import CpuMeter, parameter, report_status, run, text_parameter
from testudo_nodes.common.qos import OFFERED, REQUESTED
from testudo_nodes.plant.crazyflie_server_topics import PlantClock, SharedPoses, serve_all
from testudo_nodes.plant.lock_step_server import LockStepServer
from testudo_nodes.plant.robot_topics import BodyTopic, RobotTopics
from testudo_plant.plant.drone_fleet import DroneOptions
from testudo_plant.plant.injected_faults import read_radio, read_start_faults
from testudo_plant.plant.link_emulation import LinkEmulation
from testudo_plant.plant.odometry_sensor import OdometryModel
from testudo_plant.plant.plant import Plant
from testudo_plant.plant.pushed_bodies import PlantBody
from testudo_plant.run_monitor import RunLimits, RunMonitor
from testudo_plant.worlds.robot_bodies import box_of

_STEP_S = 0.005
_RECORDER_TIMEOUT_S = 20.0


class PlantNode(Node):
    """The node of the plant."""

    def __init__(self, _stop: Future) -> None:
        """Build the world.

        Raises:
            TestudoError: fleet, policy or a parameter is refused, or the robots have no room.
        """
        super().__init__("plant")
        self.failed = False
        fleet = load_fleet(text_parameter(self, "fleet", "the fleet file"))
        policy = Path(text_parameter(self, "policy", "the policy file, which holds the arena"))
        duration_s = parameter(
            self, "duration_s", DEFAULT_DURATION_S, "time-out of the run [s]", (LEAST_DURATION_S, MOST_DURATION_S)
        )
        recorded = parameter(self, "recorded", False, "wait for a recorder before the start")
        self._node_clock = self._make_clock(fleet)
        secure(self, self._node_clock, fleet, "sim")
        self.priority = self._node_clock.priority
        self._events = self._node_clock.publisher(String, EVENTS_TOPIC, OFFERED["events"])
        start_s = self._node_clock.now_s()
        emulate = parameter(self, "emulate", False, "noise, ages and quirks of the link profiles")
        links = [LinkEmulation(robot, emulates=emulate) for robot in fleet.robots]
        self._plant = self._make_plant(replace(fleet, policy=policy), links, start_s)
        goals = {robot.name: robot.goal_world for robot in fleet.robots}
        follows = {robot.name: robot.follows for robot in fleet.robots if robot.follows is not None}
        commanded = any(robot.link.commands is not None for robot in fleet.robots)  # by another program, for no goal
        self._limits = RunLimits(
            goals,
            duration_s,
            follows=follows,
            arrive=fleet.task is None and not commanded,
            open_end=fleet.orders or commanded,
        )
        self._monitor: RunMonitor | None = None
        self._waits_for_recorder = (
            recorded and not self._node_clock.in_lock_step
        )  # which begins when all nodes are ready
        self._waits_until_s = start_s + _RECORDER_TIMEOUT_S
        self._shared = SharedPoses(self._node_clock)
        self._robots = [
            RobotTopics(self, self._node_clock, self._plant, robot, link, self._shared)
            for robot, link in zip(fleet.robots, links, strict=True)
        ]
        serve_all(self, [robot.server for robot in self._robots if robot.server is not None])
        self._bodies = [BodyTopic(self._node_clock, self._plant, body.name, fleet.frame) for body in fleet.bodies]
        self._task_outcome = ""
        if fleet.task is not None:
            self._node_clock.subscribe(String, SCORE_TOPIC, self._on_score, REQUESTED["score"])
        self._worst_late_s, self._last_s = 0.0, start_s
        self._cpu = CpuMeter()
        self._begun_s: float | None = None
        """Real time at the first step; simulated time was ``start_s``."""
        self._start_s = start_s
        self._timer = self._node_clock.every(_STEP_S, self._step)

    def _make_clock(self, fleet: Fleet) -> PlantClock:
        """Return real time, or the lock-step server, by the parameters."""
        lock_step = is_lock_step(self)
        nodes = parameter(self, "lock_step_nodes", "", "labels of the nodes in lock-step, separated by spaces")
        if not lock_step:
            return RealTimeClock(self)
        periods_s = {robot.spec.control_period_s for robot in fleet.robots}
        # robots need the task node where it sends their signals
        optional = [label for label in OPTIONAL_NODES if label != "task" or fleet.task is None]
        return LockStepServer(self, nodes.split(), periods_s, self._on_stalled, optional=optional)

    def _make_plant(self, fleet: Fleet, links: list[LinkEmulation], start_s: float) -> Plant:
        """Return the world by the parameters, with the faults of the start."""
        seed = parameter(self, "seed", 0, "seed of dynamics and noise", (0, MOST_SEED))
        odometry = OdometryModel(
            latency_low_s=parameter(self, "latency_low_s", 0.02, "least age of odometry [s]", (0.0, 1.0)),
            latency_high_s=parameter(self, "latency_high_s", 0.06, "greatest age of odometry [s]", (0.0, 1.0)),
        )
        radio = 'losses of the radio to drones, JSON such as {"loss": 0.05, "burst_s": 0.1, "every_s": 1.0}'
        drones = DroneOptions(
            read_radio(parameter(self, "radio", "", radio), "plant: parameter radio"),
            downwash=parameter(self, "downwash", True, "whether the downwash of a drone acts on drones below"),
        )
        faults = 'for tests only: faults from the start, JSON such as {"r0": {"braking_share": 0.7}}'
        text = parameter(self, "faults", "", faults)
        robots = [link.plant_robot(odometry) for link in links]
        bodies = [PlantBody(box_of(body), body.initial_position_world, body.initial_yaw) for body in fleet.bodies]
        plant = Plant(
            robots, world_arena(fleet), seed, start_s=start_s, odometry=odometry, drones=drones, bodies=bodies
        )
        specs = {robot.name: robot.spec for robot in fleet.robots}
        for name, fault in read_start_faults(text, specs, "plant: parameter faults").items():
            plant.break_robot(name, fault)
        return plant

    def close(self) -> None:
        """Report timing, latency and radio losses."""
        factor = None
        if self._begun_s is not None:
            factor = (self._node_clock.now_s() - self._start_s) / max(time.monotonic() - self._begun_s, 1e-9)
        radio = self._plant.radio
        values = {
            "worst_late_s": self._worst_late_s,
            "latency": {robot.name: robot.latency.summary() for robot in self._robots},
            "real_time_factor": factor,
            "radio": {"sent": radio.sent, "lost": radio.lost, "bursts": radio.bursts},
        }
        report_status("plant", {**values, "cpu_share": self._cpu.share()})

    def _step(self) -> None:
        now_s = self._node_clock.now_s()
        if self._begun_s is None:
            self._begun_s = time.monotonic()
        if not self._node_clock.in_lock_step:
            self._worst_late_s = max(self._worst_late_s, now_s - self._last_s - _STEP_S)
        self._last_s = now_s
        self._plant.step_to(now_s)
        if self._monitor is None:
            if not self._may_begin(now_s):
                return
            self._monitor = RunMonitor(self._limits, now_s)
        for robot in self._robots:
            robot.publish(now_s)
        self._shared.publish()
        for body in self._bodies:
            body.publish()
        events = self._monitor.watch(self._plant, now_s)
        if self._task_outcome and not self._monitor.outcome:
            events.append(self._monitor.end(self._plant, now_s, self._task_outcome))
        for event in events:
            self._publish_event(event)

    def _on_score(self, message: String) -> None:
        """Note the begin of the station's task, and its end, which ends the run."""
        state = json.loads(message.data)["state"]
        self._task_outcome = state if state in (SUCCESS, TIMEOUT, NOT_AT_START, ARRIVED) else ""
        if state == RUNNING and self._monitor is not None:
            self._monitor.begin_task(self._node_clock.now_s())

    def _publish_event(self, event: dict[str, Any]) -> None:
        """Publish and report an event; in lock-step report the end of a run only after the end of the round."""
        self._events.publish(event_message(event))
        if event["event"] == "finished" and isinstance(self._node_clock, LockStepServer):
            self._node_clock.end_after_this_round(partial(self._report_event, event))
        else:
            self._report_event(event)

    def _report_event(self, event: dict[str, Any]) -> None:
        kind = event.pop("event")
        report_status(kind, event)
        if kind != "state":
            self.get_logger().info(f"{kind}: {event}")

    def _on_stalled(self, sentence: str) -> None:
        """End a run in lock-step in which a node does not answer."""
        self.get_logger().error(sentence)
        self._monitor = self._monitor or RunMonitor(self._limits, self._node_clock.now_s())
        self._report_event(self._monitor.end(self._plant, self._node_clock.now_s(), "stalled"))

    def _may_begin(self, now_s: float) -> bool:
        """Return whether the recorder is ready or its time-out is over; until then discard measurements."""
        if not self._waits_for_recorder or all(robot.has_recorder() for robot in self._robots):
            return True
        for measured in (*self._robots, *self._bodies):
            measured.drop_measurements()
        if now_s < self._waits_until_s:
            return False
        self.get_logger().warning(f"no recorder within {_RECORDER_TIMEOUT_S:g} s: the run begins without it")
        return True


def main() -> None:
    """Run the node until a signal comes."""
    sys.exit(run(PlantNode))


if __name__ == "__main__":
    main()
