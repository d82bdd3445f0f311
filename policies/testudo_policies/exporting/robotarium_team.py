"""A team on the Robotarium: the poses of all robots in, a unicycle command for each robot out, at every step.

The file that `testudo export --target robotarium` writes is a copy of this class and of all that it uses. Each robot
runs what it runs by itself elsewhere: the filter that finds velocities from poses, the prediction through the commands
that have not acted yet, the decisions of the policy, the tracking law and layer 1 of the shield. Since one program
knows the whole team, peers need no messages: their places are those of this step, of age zero. Layers 2 and 3 and the
right of way are not in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from testudo_deploy.contract.contract import policy_signals, slots_first
from testudo_deploy.control.policy_decisions import PolicyDecisions, PolicyFault
from testudo_deploy.control.state_prediction import PendingCommands, estimate_state
from testudo_deploy.fleet.pose_velocity import VelocityFilter
from testudo_deploy.shield.velocity_projection import PeerTable, ShieldStatus, project_velocity
from testudo_hardware.links.wire import PoseReading
from testudo_hardware.motion.differential_drive import DifferentialDrive
from testudo_hardware.motion.motion_model import effective_command
from testudo_hardware.motion.motion_state import MotionState, StoppingPoint
from testudo_policies.exporting.numpy_graph import Graph

TESTBED_WHEEL_M_S = 0.2 * (1 - 1e-9)  # highest rim speed of a wheel that the testbed accepts, in spite of rounding
TESTBED_WHEEL_BASE_M = 0.11  # as its simulator computes it: wider than that of the robot file


class Standstill(Exception):  # noqa: N818 -- a reason to stand
    """Why the whole team stands in this step."""


class GraphPolicy:
    """The policy: its graph, and of its contract what decisions need; takes the place of a `PolicyArtefact`."""

    def __init__(self, contract: Any, inputs: Sequence[str], graph: Graph) -> None:
        """Take the contract's command, decision ticks and hidden size, and the names of the graph's inputs."""
        self.contract = contract
        self._inputs, self._graph = inputs, graph

    def step(self, signals: Mapping[str, np.ndarray], hidden: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return command (D,) and next hidden state (H,); see `PolicyArtefact.step`.

        Raises:
            ValueError: a signal or the output is not finite.
        """
        given = {**signals, "hidden": hidden}
        inputs = {name: np.asarray(given[name], np.float32)[None] for name in self._inputs}
        for name, value in inputs.items():
            if not np.isfinite(value).all():
                raise ValueError(f"signal {name}: not finite")
            if value.shape[1] == 0:  # the graph needs a slot: a robot alone has one that is not valid
                inputs[name] = np.zeros((1, 1, *value.shape[2:]), np.float32)
        values = self._graph.run(inputs)
        command, hidden_next = values["command"][0], values["hidden_next"][0] if self.contract.hidden_size else hidden
        if not (np.isfinite(command).all() and np.isfinite(hidden_next).all()):
            raise ValueError("the policy's output is not finite")
        return command, hidden_next


class TeamRobot:
    """What is remembered of one robot."""

    def __init__(self, spec: Any, policy: Any, goal_world: np.ndarray) -> None:
        """Start at rest, without a pose; ``policy`` is a `GraphPolicy`."""
        self._velocities = VelocityFilter(spec, 1 / spec.control_period_s)
        self.sent = PendingCommands(spec.command_delay_s, spec.dead_man_s)
        self.decisions = PolicyDecisions(policy)
        self.goal_world = goal_world
        self.velocity_world = np.zeros(2)  # of the control point [m/s], under the newest command

    def estimate(self, model: DifferentialDrive, pose: PoseReading, now_s: float) -> MotionState | None:
        """Return the state at which this step's command will begin to act; None while its velocity is not known."""
        filtered = self._velocities.take(pose)
        if filtered is None:
            return None
        found = filtered.reading
        measured = MotionState(np.array(found.position_world), np.array(found.yaw), np.array(found.velocity))
        return estimate_state(model, measured, *self.sent.since(found.stamp_s, now_s))


class RobotariumTeam:
    """All robots; call `commands` once in each step of the testbed."""

    def __init__(
        self, spec: Any, parameters: Any, arena: Any, policy: GraphPolicy, goals_world: Sequence[Sequence[float]]
    ) -> None:
        """Take robot, shield, arena and policy of the contract, and goals (2, N) [m].

        Raises:
            ValueError: the goals have another shape, or are not finite.
        """
        goals = np.array(goals_world, float)
        if goals.ndim != 2 or goals.shape[0] != 2 or goals.shape[1] < 1 or not np.isfinite(goals).all():
            raise ValueError(f"goals: found an array of shape {goals.shape}, expected (2, N) of finite numbers")
        self._model, self._parameters, self._arena = DifferentialDrive(spec), parameters, arena
        self._robots = [TeamRobot(spec, policy, goal) for goal in goals.T]
        self.period_s = spec.control_period_s
        self.reason = ""
        """Why robots stand in the newest step; empty if they do not."""
        self._steps = 0

    @property
    def size(self) -> int:
        """Return the number of robots."""
        return len(self._robots)

    def commands(self, poses: np.ndarray) -> np.ndarray:
        """Return forward speed [m/s] and turn rate [rad/s] of each robot (2, N).

        ``poses`` (3, N) are x [m], y [m] and heading [rad]. All robots stand (zeros) while a pose is not finite, or the
        velocity of a robot is not known: in the first two steps, and after a jump; and after any other fault.

        Raises:
            ValueError: poses of another shape, as of another number of robots.
        """
        poses = np.asarray(poses, float)
        if poses.shape != (3, self.size):
            raise ValueError(f"poses: found shape {poses.shape}, expected {(3, self.size)} for {self.size} robots")
        self.reason, now_s = "", self._steps * self.period_s
        self._steps += 1
        try:
            commands = self._driven(poses, now_s)
        except Exception as error:  # noqa: BLE001 -- every fault must end in a team that stands
            self.reason = str(error) if isinstance(error, Standstill) else f"{type(error).__name__}: {error}"
            for robot in self._robots:
                robot.decisions.drop()
                robot.velocity_world = np.zeros(2)
            commands = np.zeros((2, self.size))
        for robot, command in zip(self._robots, commands.T, strict=True):
            robot.sent.push(now_s, effective_command(self._model, command))
        return commands

    def _driven(self, poses: np.ndarray, now_s: float) -> np.ndarray:
        readings = [PoseReading(now_s, (x, y), yaw) for x, y, yaw in poses.T.tolist()]
        pairs = zip(self._robots, readings, strict=True)
        states = [robot.estimate(self._model, reading, now_s) for robot, reading in pairs]
        known = [state for state in states if state is not None]
        if not np.isfinite(poses).all():
            raise Standstill("a pose is not finite")
        if len(known) < self.size:
            raise Standstill("the velocity of a robot is not known yet")
        stops = [self._model.stopping_point(state) for state in known]
        points = np.stack([stop.position_world for stop in stops], axis=1)
        velocities = np.stack([robot.velocity_world for robot in self._robots], axis=1)
        commands = np.zeros((2, self.size))
        for k, robot in enumerate(self._robots):
            slots = np.delete(np.arange(self.size), k)
            age_s = np.zeros(self.size - 1)
            table = PeerTable(points[:, slots], velocities[:, slots], age_s, np.ones(age_s.shape, bool))
            commands[:, k] = self._command(robot, known[k], stops[k], table)
        if not np.isfinite(commands).all():
            raise Standstill("a command is not finite")
        return commands

    def _command(self, robot: TeamRobot, state: MotionState, stop: StoppingPoint, table: PeerTable) -> np.ndarray:
        """Return the command (2,) of one robot; zeros if its policy or the shield brakes it."""
        decisions = robot.decisions
        robot.velocity_world = np.zeros(2)
        try:
            if decisions.is_due():
                task = {"goal_world": robot.goal_world}
                signals = policy_signals(state, stop, table, self._parameters.hold_s, task)
                decisions.decide(slots_first(signals))
            decisions.track(np.asarray(stop.position_world))
        except PolicyFault as fault:
            self.reason = str(fault)
            decisions.drop()
            return np.zeros(2)
        nominal_world = decisions.nominal_world
        result = project_velocity(self._model, self._parameters, self._arena, stop, table, nominal_world)
        if int(result.status) == ShieldStatus.BRAKED:
            self.reason = "the shield brakes a robot"
            decisions.drop()
            return np.zeros(2)
        # shorter along the same path, so that every row of the shield that zero keeps is kept
        rims = abs(result.command[0]) + TESTBED_WHEEL_BASE_M / 2 * abs(result.command[1])
        share = min(1.0, TESTBED_WHEEL_M_S / max(float(rims), 1e-9))
        robot.velocity_world = share * result.control_velocity_world
        return share * result.command
