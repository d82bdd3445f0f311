"""The robots of a fleet, its station and its network in one process, with processes that end and start again.

Loop, supervisor, bring-up, task and orders are the deployed classes; bodies follow the motion model at ends of the
intervals of the robot file. Guard and driver are reduced to what counts here: commands act late, and a robot without a
command brakes after its dead-man time.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from testudo_bench.red_team.bodies import STEP_S, KinematicBodies
from testudo_deploy.contract.messages import PeerMessage, TaskMessage
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.fleet.fleet import Fleet
from testudo_deploy.station.fleet_bring_up import BringUp, Request
from testudo_deploy.supervision.modes import READY, RESTING, Event, Mode
from testudo_deploy.supervision.robot import Robot
from testudo_deploy.supervision.supervisor import GuardReport
from testudo_hardware.links.wire import body_forward_command
from testudo_sim.online_task.goal_orders import GoalOrders
from testudo_sim.online_task.online_task import OnlineTask
from testudo_sim.online_task.task_sender import TaskSender
from testudo_sim.online_task.task_state import Pose, scoring_of, task_of

_TASK_S = 0.05
_ASK_S = 0.5  # an operator asks again after this time
_DELAY_S = (0.01, 0.06)  # of messages between computers
_LOSS = 0.02  # share of messages that are lost
_SEE_S = (0.02, 0.06)  # age of poses


@dataclass
class InProcess:
    """One robot: its process, if it runs, and what connects it."""

    name: str
    index: int
    robot: Robot | None = None
    linked: bool = True  # its messages arrive, and it hears others
    lives: int = 0  # processes so far
    due_s: float = 0.0
    started_s: float = 0.0  # of its process
    operated: bool = False  # an operator arms and starts it, as the station does so only once
    asked_s: float = -math.inf
    commands: list[tuple[float, tuple[float, ...]]] = field(default_factory=list[tuple[float, tuple[float, ...]]])
    """When each command was sent, and its channels, newest last."""
    joined_s: list[float] = field(default_factory=list[float])
    """How long each of its processes took from its start until it drove [s]."""

    @property
    def holds(self) -> str:
        """Return why it stands."""
        return "" if self.robot is None else self.robot.holds

    @property
    def drives(self) -> bool:
        """Return whether its policy may drive it."""
        return self.robot is not None and self.robot.supervisor.mode is Mode.ACTIVE


class FleetInProcess:
    """A fleet of robots on the ground with `orders: true`, in steps of `STEP_S`."""

    def __init__(self, fleet: Fleet, seed: int, *, absent: tuple[str, ...] = ()) -> None:
        """Begin with all processes but those of ``absent`` robots, whose bodies stand at their initial positions."""
        artefact = PolicyArtefact.load(fleet.policy, sha256=fleet.policy_sha256)
        self.fleet, self.random, self.now_s = fleet, np.random.default_rng(seed), 1.0
        self.spec, contract = fleet.robots[0].spec, artefact.contract
        starts = np.array([robot.initial_position_world for robot in fleet.robots], float).T
        yaws = np.array([robot.initial_yaw for robot in fleet.robots], float)
        self.bodies = KinematicBodies(self.spec, starts, yaws, self.random, None)
        scoring = scoring_of(contract, self.spec)
        self.live = OnlineTask(scoring, fleet.names, task_of(scoring.scenario, fleet), open_end=True)
        self.orders = GoalOrders(self.live, contract, {one.name: one.initial_position_world for one in fleet.robots})
        self._sender = TaskSender(contract, scoring.scenario, fleet.names, "task")
        self._bring_up = BringUp(fleet.names)
        self._queue: list[tuple[float, Callable[[], Any]]] = []
        self._task_due_s = self.now_s
        self.robots = {name: InProcess(name, k) for k, name in enumerate(fleet.names)}
        for name in fleet.names:
            if name not in absent:
                self.start(name)

    def start(self, name: str) -> None:
        """Start the process of a robot, also again; one that is new to the station is armed and started by it."""
        one = self.robots[name]
        one.lives += 1
        one.operated = one.operated or one.lives > 1
        epoch = f"{name} {one.lives}"
        one.robot = Robot(self.fleet, name, str(self.fleet.policy), epoch=epoch, now_s=self.now_s, simulated_time=True)
        one.started_s = self.now_s
        one.due_s = self.now_s + float(self.random.uniform(0, self.spec.control_period_s))

    def end(self, name: str) -> None:
        """End the process of a robot, without a last command."""
        self.robots[name].robot = None

    def declare_lost(self, name: str, place_world: tuple[float, ...] | None) -> None:
        """Tell all processes that a robot is lost, as `testudo lost` does."""
        for one in self.robots.values():
            if one.name != name and one.robot is not None and one.linked:
                one.robot.loop.declare_lost(name, place_world)

    def step(self) -> None:
        """Advance by one physics step; each process that is due runs."""
        self.now_s += STEP_S
        due = [item for item in self._queue if item[0] <= self.now_s]
        self._queue = [item for item in self._queue if item[0] > self.now_s]
        for _, deliver in sorted(due, key=lambda item: item[0]):
            deliver()
        for one in self.robots.values():
            if one.robot is not None and self.now_s >= one.due_s:
                one.due_s += self.spec.control_period_s
                self._tick(one, one.robot)
        if self.now_s >= self._task_due_s:
            self._task_due_s += _TASK_S
            self._run_station()
        self.bodies.advance([self._applied(one) for one in self.robots.values()], np.zeros(2))

    def place(self, name: str) -> tuple[float, ...]:
        """Return the true place (D,) [m] of a robot."""
        return self.bodies.pose(self.robots[name].index)[0]

    def _send(self, deliver: Callable[[], Any]) -> None:
        if self.random.uniform() >= _LOSS:
            self._queue.append((self.now_s + float(self.random.uniform(*_DELAY_S)), deliver))

    def _tick(self, one: InProcess, robot: Robot) -> None:
        self._see(one, robot)
        robot.hear_guard(GuardReport(self.now_s, ""))
        output = robot.tick(self.now_s)
        if output.commands:
            turned = output.record.estimate_yaw or 0.0
            one.commands.append((self.now_s, body_forward_command(self.spec, output.record.sent_command, turned)))
            one.commands = one.commands[-40:]
        if output.announcement is not None and one.linked:
            for other in self.robots.values():
                if other is not one:
                    self._send(lambda other=other, message=output.announcement: self._hear(other, message))
            self._send(lambda message=output.announcement: self._sender.hear(message))
        if self.drives_first(one):
            one.joined_s.append(self.now_s - one.started_s)

    def drives_first(self, one: InProcess) -> bool:
        """Return whether this process of a robot drives for the first time."""
        return (
            one.drives and len(one.joined_s) < one.lives and one.robot is not None and one.robot.supervisor.was_active
        )

    def _see(self, one: InProcess, robot: Robot) -> None:
        """Give a robot its pose, and the station the same one."""
        place, yaw, velocity = self.bodies.pose(one.index)
        stamp_s = self.now_s
        angle, share = self.random.uniform(-math.pi, math.pi), self.random.uniform()
        error = share * self.spec.position_error_m * np.array([math.cos(angle), math.sin(angle)])
        seen = tuple((np.array(place) + error).tolist())
        turned = yaw + float(self.random.uniform(-1, 1)) * self.spec.yaw_error_rad

        def arrive() -> None:
            if one.robot is robot:
                robot.loop.on_odometry(stamp_s, self.now_s, seen, turned, velocity)
                if one.linked:
                    self.live.on_pose(one.name, stamp_s, self.now_s, Pose(seen, turned, velocity))

        self._queue.append((self.now_s + float(self.random.uniform(*_SEE_S)), arrive))

    def _hear(self, other: InProcess, message: PeerMessage) -> None:
        if other.robot is not None and other.linked:
            other.robot.loop.on_peer(message, self.now_s)

    def _hear_task(self, message: TaskMessage) -> None:
        one = self.robots[message.robot]
        if one.robot is not None and one.linked:
            one.robot.loop.task.hear(message, self.now_s)

    def _run_station(self) -> None:
        self.orders.step(self.now_s)
        sample = self.live.sample(self.now_s)
        for message in () if sample is None else self._sender.messages(sample, self.now_s):
            self._send(lambda message=message: self._hear_task(message))
        for one in self.robots.values():
            if one.robot is None or not one.linked:
                continue
            status = one.robot.status(self.now_s)
            values = status.values
            past = {key: values[key] == "true" for key in ("was_active", "flew", "by_hand")}
            self._bring_up.on_mode(
                one.name, values["mode"], values["code"], status.message, lost=values["lost"], **past
            )
            if one.operated and self.now_s - one.asked_s >= _ASK_S:
                one.asked_s = self.now_s
                mode = one.robot.supervisor.mode
                if mode in RESTING or mode in READY:
                    one.robot.request(Event.ARM if mode in RESTING else Event.START, self.now_s)
        for name, request in self._bring_up.next_requests(self.now_s):
            robot = self.robots[name].robot
            if robot is not None and self.robots[name].linked:
                robot.request(Event.ARM if request is Request.ACTIVATE else Event.START, self.now_s)
            self._bring_up.on_answer(name)  # at once; of a robot that is not there, that it could not be sent

    def _applied(self, one: InProcess) -> tuple[float, ...]:
        """Return the command that acts on a body now: late, and none after the dead-man time."""
        delay_s = float(self.bodies.delay_s[one.index])
        acting = [item for item in one.commands if item[0] + delay_s <= self.now_s]
        if not acting or self.now_s - acting[-1][0] - delay_s > self.spec.dead_man_s:
            return (0.0,) * self.spec.dimension
        return acting[-1][1]
