"""Our stand-in of the step interface of the Robotarium's Python simulator, and the team as its robots run it.

`StandIn` moves unicycles and refuses what the testbed refuses. `InProcess` computes the commands from the deployed
classes, with the policy file in onnxruntime, and none of the code of the script.
"""

import numpy as np

from testudo_deploy.contract.contract import policy_signals, slots_first
from testudo_deploy.control.policy_decisions import PolicyDecisions
from testudo_deploy.control.state_prediction import PendingCommands, estimate_state
from testudo_deploy.fleet.pose_velocity import VelocityFilter
from testudo_deploy.shield.shield import Shield
from testudo_deploy.shield.stop_tube import stop_tube_parameters
from testudo_deploy.shield.velocity_projection import PeerTable
from testudo_hardware.links.wire import PoseReading
from testudo_hardware.motion import MotionState, motion_model
from testudo_hardware.motion.motion_model import effective_command
from testudo_hardware.spec import parse_robot

STEP_S, RIM_M_S, WHEEL_BASE_M, CONTACT_M = 0.033, 0.2, 0.11, 0.135


class StandIn:
    """Unicycles without lag; one call of `get_poses` in each step, and commands within the wheels' limit."""

    def __init__(self, *, number_of_robots, show_figure, initial_conditions, sim_in_real_time):
        assert isinstance(number_of_robots, int)
        assert isinstance(show_figure, bool)
        assert isinstance(sim_in_real_time, bool)
        assert initial_conditions.shape == (3, number_of_robots)
        self._poses = initial_conditions.copy()
        self._commands = np.zeros((2, number_of_robots))
        self._asked = self.ended = False

    def get_poses(self):
        assert not self._asked, "get_poses: called twice in a step"
        self._asked = True
        return self._poses.copy()

    def set_velocities(self, ids, velocities):
        self._commands[:, ids] = velocities

    def step(self):
        assert self._asked, "step: called before get_poses"
        self._asked = False
        forward, turn = self._commands
        assert (np.abs(forward) + WHEEL_BASE_M / 2 * np.abs(turn) <= RIM_M_S).all()
        x, y, yaw = self._poses
        self._poses = np.stack(
            [x + STEP_S * forward * np.cos(yaw), y + STEP_S * forward * np.sin(yaw), yaw + STEP_S * turn]
        )
        self._poses[2] = np.arctan2(np.sin(self._poses[2]), np.cos(self._poses[2]))

    def call_at_scripts_end(self):
        self.ended = True


class InProcess:
    """The team of a policy file from the deployed classes, on poses that a testbed gives."""

    def __init__(self, artefact, goals_world):
        contract = artefact.contract
        spec = parse_robot(contract.robot_spec, "contract")
        self.model = motion_model(spec)
        self.shield = Shield(self.model, contract.shield, stop_tube_parameters(spec), contract.arena)
        self.goals = goals_world.T
        count = len(self.goals)
        self.filters = [VelocityFilter(spec, 1 / spec.control_period_s) for _ in range(count)]
        self.sent = [PendingCommands(spec.command_delay_s, spec.dead_man_s) for _ in range(count)]
        self.decisions = [PolicyDecisions(artefact) for _ in range(count)]
        self.announced = np.zeros((2, count))
        self.now_s = 0.0

    def commands(self, poses):
        count = len(self.goals)
        found = [
            each.take(PoseReading(self.now_s, (pose[0], pose[1]), pose[2]))
            for each, pose in zip(self.filters, poses.T.tolist(), strict=True)
        ]
        commands = np.zeros((2, count))
        if all(found):
            states = [self._estimate(k, found[k].reading) for k in range(count)]
            stops = [self.model.stopping_point(state) for state in states]
            before = self.announced.copy()
            for k in range(count):
                others = [j for j in range(count) if j != k]
                points = np.array([stops[j].position_world for j in others]).reshape(-1, 2).T
                table = PeerTable(points, before[:, others], np.zeros(count - 1), np.ones(count - 1, bool))
                commands[:, k] = self._command(k, states[k], stops[k], table)
        for sent, command in zip(self.sent, commands.T, strict=True):
            sent.push(self.now_s, effective_command(self.model, command))
        self.now_s += STEP_S
        return commands

    def _estimate(self, k, reading):
        measured = MotionState(np.array(reading.position_world), np.array(reading.yaw), np.array(reading.velocity))
        pending, pending_s = self.sent[k].since(reading.stamp_s, self.now_s)
        return estimate_state(self.model, measured, pending, pending_s)

    def _command(self, k, state, stop, table):
        decisions = self.decisions[k]
        if decisions.is_due():
            goal = {"goal_world": self.goals[k]}
            decisions.decide(slots_first(policy_signals(state, stop, table, self.shield.parameters.hold_s, goal)))
        decisions.track(stop.position_world)
        result = self.shield.layer1(stop, table, decisions.nominal_world)
        rims = abs(result.command[0]) + WHEEL_BASE_M / 2 * abs(result.command[1])
        share = min(1.0, RIM_M_S / max(rims, 1e-9))
        self.announced[:, k] = share * result.control_velocity_world
        return share * result.command
