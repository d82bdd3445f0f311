"""Runs the task of a fleet on measured poses, scores the run as training does, and sends the robots their signals.

The logic is in `testudo_sim.online_task`; this node connects it to ROS.
"""

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
from diagnostic_msgs.msg import DiagnosticStatus
from geometry_msgs.msg import PoseStamped
from nav_msgs.msg import Odometry
from rclpy.node import Node
from rclpy.task import Future
from std_msgs.msg import String, UInt8MultiArray
from std_srvs.srv import Trigger
from visualization_msgs.msg import MarkerArray

from testudo_deploy.admission.fleet_admission import load_policy
from testudo_deploy.admission.policy_exchange import exchanged
from testudo_deploy.contract.contract import Contract
from testudo_deploy.contract.messages import TickRecord
from testudo_deploy.contract.policy_change import BEGIN, CHECK, PolicyChange, PolicyChangeError
from testudo_deploy.fleet.fleet import Fleet, FleetRobot, load_fleet
from testudo_deploy.fleet.pose_source import record_topic, recorded_pose, shared_odometry
from testudo_deploy.launch.fleet_topics import body_topic
from testudo_deploy.launch.launch_plan import SUPERVISOR_VARIABLE
from testudo_deploy.launch.topic_names import ARRIVED, GOALS_TOPIC, SCORE_TOPIC
from testudo_deploy.station.markers import goal_markers
from testudo_hardware.errors import TestudoError
from testudo_hardware.links.wire import OdometryReading, WireError, read_odometry, read_pose, read_stamp
from testudo_nodes.common.clock import backend_of, clock_of, secure
from testudo_nodes.common.messages import envelope_bytes, status_values
from testudo_nodes.common.node_runner import WARN_EVERY_S, CpuMeter, parameter, report_status, run, text_parameter
from testudo_nodes.common.policy_topics import PolicyTopics
from testudo_nodes.common.process_priority import FAVOURED, change_niceness
from testudo_nodes.common.qos import OFFERED, REQUESTED, SHOWN
from testudo_nodes.station.markers_node import marker_array
from testudo_nodes.station.order_topics import OrderTopics
from testudo_nodes.station.task_topics import TaskTopics
from testudo_sim.online_task.goal_orders import GoalOrders
from testudo_sim.online_task.online_task import (
    ACTIVE,
    START_ON,
    OnlineTask,
    body_markers,
    figure_values,
    finish_values,
    goal_views,
    score_values,
    waiting_values,
    waits_for,
)
from testudo_sim.online_task.task_sender import TaskSender
from testudo_sim.online_task.task_state import Pose, scoring_of, task_of
from testudo_sim.online_task.trial_start import TrialStart
from testudo_sim.scenarios.scenario import GOAL

_STEP_S = 0.05
_GOALS_PERIOD_S = 1.0


class TaskNode(Node):
    """The node of the task."""

    def __init__(self, stop: Future) -> None:
        """Build the scenario of the policy, and subscribe to every robot, never to the truth.

        Raises:
            TestudoError: fleet, policy, task or a parameter is refused.
        """
        super().__init__("task")
        self.failed = False
        self._node_clock = clock_of(self)
        self._now_s = self._node_clock.now_s
        # of several policy groups the first is scored: a scenario has one kind of robot
        fleet = load_fleet(text_parameter(self, "fleet", "the fleet file")).teams[0]
        policy = text_parameter(self, "policy", "the policy file, which names scenario and arena")
        values = _values(
            parameter(self, "task", "", "values of the task by name, as a JSON object; empty: from the fleet")
        )
        self._start_on = parameter(self, "start_on", ACTIVE, f"when an episode begins: {' or '.join(START_ON)}")
        if self._start_on not in START_ON:
            found = f"found {self._start_on!r}, expected {' or '.join(START_ON)}"
            raise TestudoError(f"parameter start_on: {found}")
        backend = backend_of(self)
        secure(self, self._node_clock, fleet, backend)
        self._fleet = replace(fleet, policy=Path(policy))
        jax.config.update("jax_platforms", "cpu")  # too little computation for an accelerator
        contract, self._live = _task(self._fleet, values)
        self._contract, self._frame = contract, fleet.frame
        text = parameter(self, "trial", "", "starts by robot and patience_s of a trial, as a JSON object; empty: none")
        self._trial = TrialStart(self._live, _values(text, "trial"), self._now_s()) if text else None
        until = parameter(self, "until", "", f"{ARRIVED}: end when all robots are at the last of their goals")
        if until not in ("", ARRIVED) or (until and not fleet.orders):
            raise TestudoError(f"parameter until: found {until!r}, expected {ARRIVED} with a fleet that takes orders")
        self._ends, self._stop = until == ARRIVED, stop
        self._modes: dict[str, str] = {}
        self._ticks_of = set[str]()
        self._waits, self._goals_due_s = True, 0.0
        self._connect(fleet, simulated=backend == "sim")
        self._sends = None if fleet.task is None else TaskTopics(self, self._node_clock, self._live, contract)
        if self._sends is not None:
            change_niceness(FAVOURED)
        self._taken = OrderTopics(self, self._node_clock, self._live, contract, fleet) if fleet.orders else None
        self._next: tuple[Fleet, Contract, OnlineTask] | None = None
        """What a change of the policy begins with."""
        if fleet.orders and not self._node_clock.in_lock_step:
            steps = {CHECK: self._check_policy, BEGIN: self._begin_policy}
            self._policy = PolicyTopics(self, self._node_clock, "task", self._in_use, steps)
        self._cpu = CpuMeter()

    @property
    def _orders(self) -> GoalOrders | None:
        return None if self._taken is None else self._taken.orders

    def _in_use(self) -> tuple[str, str]:
        return self._fleet.policy_sha256, self._contract.contract_hash

    def _check_policy(self, change: PolicyChange) -> str:
        """Prepare the task of another policy file, with the present goals."""
        if self._trial is not None:
            raise PolicyChangeError("found a trial, expected none: its episodes are those of one policy")
        fleet, _ = exchanged(self._fleet, self._contract, change)
        goals = self._live.goals_world
        contract, live = _task(fleet, {GOAL: [list(axis) for axis in zip(*goals.values(), strict=True)]})
        if live.bodies != self._live.bodies:
            raise PolicyChangeError(f"found the bodies {live.bodies}, expected {self._live.bodies}")
        GoalOrders(live, contract, {})  # both refuse what they cannot use
        TaskSender(contract, live.scoring.scenario, live.robots, "check")
        self._next = (fleet, contract, live)
        return f"can score {live.scoring.scenario.name}"

    def _begin_policy(self, change: PolicyChange) -> str:
        """Run the task of another policy file from now on; robots keep their goals, and paused ones stay paused."""
        if self._next is None or self._next[0].policy_sha256 != change.policy_sha256:
            raise PolicyChangeError("has not prepared this policy; give the command again")
        paused = self._live.paused
        (self._fleet, contract, self._live), self._next = self._next, None
        self._contract, self._live.paused = contract, paused
        if self._live.scoring.change_price:
            self._hear_changes(self._fleet)
        for topics in (self._sends, self._taken):
            if topics is not None:
                topics.exchange(self._live, contract)
        self._waits, self._goals_due_s = True, 0.0
        return f"uses {self._fleet.policy.name} in {self._live.scoring.scenario.name}; the robots keep their goals"

    def close(self) -> None:
        """Report the processor time."""
        report_status("task", {"cpu_share": self._cpu.share()})

    def _connect(self, fleet: Fleet, *, simulated: bool) -> None:
        self._score = self._node_clock.publisher(String, SCORE_TOPIC, OFFERED["score"])
        self._goals = self._node_clock.publisher(MarkerArray, GOALS_TOPIC, OFFERED["goals"])
        self._topics = {body: body_topic(body) for body in self._live.bodies}
        in_plant = {body.name for body in fleet.bodies} if simulated else set[str]()
        unknown = [body for body in self._topics if body not in in_plant]
        if simulated and fleet.task is not None and unknown:
            raise TestudoError(f"{fleet.file}: bodies: found no {unknown[0]!r}, which its task measures")
        for body, topic in self._topics.items():
            subscribe = self._node_clock.subscribe if body in in_plant else self._node_clock.subscribe_outside
            subscribe(PoseStamped, topic, self._body_callback(body), SHOWN["pose"])
        for robot in fleet.robots:
            name, shared = robot.name, shared_odometry(robot)
            self._node_clock.subscribe(DiagnosticStatus, f"/{name}/mode", self._mode_callback(name), SHOWN["mode"])
            self._topics[name] = record_topic(robot) if shared is None else shared[0]
            if shared is not None:
                callback = self._odometry_callback(robot, shared[1])
                self._node_clock.subscribe(Odometry, shared[0], callback, REQUESTED["odom"])
            if shared is None:
                self._hear_ticks(robot, takes_pose=True)
        if self._live.scoring.change_price:
            self._hear_changes(fleet)
        self.create_service(Trigger, "~/restart", self._on_restart)
        self._timer = self._node_clock.every(_STEP_S, self._step)

    def _hear_changes(self, fleet: Fleet) -> None:
        """Subscribe to the changes of commands by the shield, of robots whose records are not heard yet."""
        for robot in fleet.robots:
            if robot.name not in self._ticks_of:
                self._hear_ticks(robot, takes_pose=False)

    def _hear_ticks(self, robot: FleetRobot, *, takes_pose: bool) -> None:
        self._ticks_of.add(robot.name)
        callback = self._tick_callback(robot.name, takes_pose=takes_pose)
        self._node_clock.subscribe(UInt8MultiArray, record_topic(robot), callback, SHOWN["tick"])

    def _odometry_callback(self, robot: FleetRobot, frames: tuple[str, str]) -> Callable[[Odometry], None]:
        def on_odometry(message: Odometry) -> None:
            reading = read_odometry(message, robot.name, robot.spec, frames)
            self._take_pose(robot.name, reading, self._now_s())

        return on_odometry

    def _take_pose(self, robot: str, reading: OdometryReading, received_s: float) -> None:
        pose = Pose(reading.position_world, reading.yaw, reading.velocity)
        self._live.on_pose(robot, reading.stamp_s, received_s, pose)

    def _body_callback(self, body: str) -> Callable[[PoseStamped], None]:
        def on_body(message: PoseStamped) -> None:
            if message.header.frame_id != self._frame:
                found = f"found frame {message.header.frame_id!r}, expected {self._frame!r}"
                raise WireError(f"{body}: pose: {found}")
            position, yaw = read_pose(message.pose, 2, body)
            stamp_s = read_stamp(message.header.stamp)
            self._live.on_pose(body, stamp_s, self._now_s(), Pose(position, yaw))

        return on_body

    def _mode_callback(self, name: str) -> Callable[[DiagnosticStatus], None]:
        def on_mode(message: DiagnosticStatus) -> None:
            self._modes[name] = status_values(message).get("mode", "")

        return on_mode

    def _tick_callback(self, name: str, *, takes_pose: bool) -> Callable[[UInt8MultiArray], None]:
        def on_tick(message: UInt8MultiArray) -> None:
            received_s = self._now_s()
            record = TickRecord.decode(envelope_bytes(message))
            self._live.on_change(name, received_s, record.change_m_s)
            reading = recorded_pose(record, received_s) if takes_pose else None
            if reading is not None:
                self._take_pose(name, reading, received_s)

        return on_tick

    def _on_restart(self, _: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        self._waits, self._goals_due_s = True, 0.0
        self._live.rewind()
        response.success, response.message = True, "a new episode begins once all robots are ready"
        return response

    def _step(self) -> None:
        now_s = self._now_s()
        if self._waits:
            self._wait(now_s)
        else:
            for score in self._live.advance(now_s):
                self._publish_score(score_values(self._live, score))
                orders = {} if self._orders is None else {"goals reached": self._orders.reached}
                report_status("task_figures", {"figures": figure_values(score) | orders})
                if score.outcome:
                    report_status("task_finished", finish_values(self._live, score))
                    self.get_logger().info(f"{score.outcome} after {score.decision} decisions")
        if self._orders is not None:
            self._orders.leads_round = self._trial is None or self._waits  # simulation knows no such help
            self._orders.step(now_s)
            for sentence in self._orders.waits.values():
                self.get_logger().info(sentence, throttle_duration_sec=WARN_EVERY_S)
            if self._ends and self._orders.is_over(now_s):
                self._end()
        if self._sends is not None:
            self._sends.publish()
        if now_s >= self._goals_due_s:
            self._goals_due_s = now_s + _GOALS_PERIOD_S
            self._publish_goals()

    def _wait(self, now_s: float) -> None:
        """Begin an episode, or publish the reasons for waiting."""
        reasons = waits_for(self._live, self._topics, self._modes, self._start_on, now_s)
        if self._trial is not None and self._trial.is_over(now_s):
            self._give_up(self._trial, reasons)
            return
        if self._trial is not None:
            reasons = reasons or self._trial.step(now_s)
        if not reasons:
            self._waits = False
            self._live.begin(now_s)
            report_status("task_started", {"scenario": self._live.scoring.scenario.name, "stamp_s": now_s})
        elif now_s >= self._goals_due_s:
            self._publish_score(waiting_values(self._live, reasons))
            self.get_logger().info(f"waiting: {'; '.join(reasons)}", throttle_duration_sec=WARN_EVERY_S)

    def _give_up(self, trial: TrialStart, reasons: Sequence[str]) -> None:
        """End a trial whose robots did not come to their starts."""
        self._waits, result = False, trial.refused(reasons)
        self._publish_score(waiting_values(self._live, result["reasons"]) | {"state": result["outcome"]})
        report_status("task_finished", result)
        self.get_logger().warning(f"{result['outcome']}: {'; '.join(result['reasons'])}")

    def _end(self) -> None:
        """Say that the job is done, which ends a run of `testudo up`; under `launch` this node ends; robots brake."""
        self._ends, last = False, self._live.last
        values = waiting_values(self._live, ()) if last is None else score_values(self._live, last)
        self._publish_score(values | {"state": ARRIVED})
        result = {"scenario": self._live.scoring.scenario.name} if last is None else finish_values(self._live, last)
        report_status("task_finished", result | {"outcome": ARRIVED})
        self.get_logger().info(f"{ARRIVED}: every robot is at the last of its goals; the run ends")
        if SUPERVISOR_VARIABLE not in os.environ and not self._stop.done():
            self._stop.set_result(None)

    def _publish_score(self, values: dict[str, Any]) -> None:
        self._score.publish(String(data=json.dumps(values, allow_nan=False)))

    def _publish_goals(self) -> None:
        shown = goal_markers(goal_views(self._live), body_markers(self._live))
        self._goals.publish(marker_array(self, shown, self._frame, 0.0))


def _task(fleet: Fleet, values: dict[str, Any]) -> tuple[Contract, OnlineTask]:
    """Return the contract of a fleet's policy file, and the task of its scenario by values by name."""
    spec = fleet.robots[0].spec
    contract = load_policy(fleet, spec).contract
    scoring = scoring_of(contract, spec)
    return contract, OnlineTask(scoring, fleet.names, task_of(scoring.scenario, fleet, values), open_end=fleet.orders)


def _values(text: str, name: str = "task") -> dict[str, Any]:
    """Read the values of a parameter.

    Raises:
        TestudoError: not a JSON object.
    """
    try:
        values = json.loads(text or "{}")
    except ValueError as error:
        raise TestudoError(f"parameter {name}: not JSON: {error}") from error
    if not isinstance(values, dict):
        raise TestudoError(
            f"parameter {name}: found {text}, expected an object such as " + '{"goal_world": [0.4, 0.1]}'
        )
    return values


def main() -> None:
    """Run the node until a signal comes."""
    sys.exit(run(TaskNode))


if __name__ == "__main__":
    main()
