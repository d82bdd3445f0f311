"""A robot under test over real DDS: its processes, and a node that listens and disturbs."""

import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace

import rclpy
from diagnostic_msgs.msg import DiagnosticStatus
from geometry_msgs.msg import TwistStamped
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
from nav_msgs.msg import Odometry
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from std_srvs.srv import Trigger
from tests.deploy.tiny_fleet import make_tiny_fleet

from testudo_deploy.launch.child_processes import FleetProcesses
from testudo_deploy.launch.launch_plan import plan, with_hold_to_run
from testudo_hardware.links.wire import read_command, read_odometry
from testudo_nodes.common.messages import status_values
from testudo_nodes.common.process_priority import PRIORITIES, reset_scheduling, set_realtime_priority
from testudo_nodes.common.qos import OFFERED, REQUESTED, recorded

PATIENCE_S = 40.0
MOVING_M_S = 0.02
UP_TO_SPEED_S = 0.5


@dataclass
class Heard:
    """What was said about one robot, each with its arrival on the steady clock."""

    sent: list = field(default_factory=list)
    applied: list = field(default_factory=list)
    truth: list = field(default_factory=list)
    mode: str = ""


class Observer:
    """Listens to a robot and stands between its odometry and its policy."""

    def __init__(self, domain_id, robot, environment):
        self.robot, self.heard = robot, Heard()
        self.change = lambda message: message
        self.last_relayed_s = 0.0
        self._context = rclpy.Context()
        os.environ.update(environment)
        rclpy.init(context=self._context, domain_id=domain_id)
        self.node = rclpy.create_node("observer", context=self._context)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self.node)
        name = robot.name
        self._relay = self.node.create_publisher(Odometry, f"/{name}/odom_relayed", OFFERED["odom"])
        self._listen(Odometry, f"/{name}/odom", REQUESTED["odom"], self._pass_on)
        self._listen(TwistStamped, f"/{name}/cmd_vel", OFFERED["applied_cmd_vel"], self._sent)
        self._listen(TwistStamped, f"/{name}/applied_cmd_vel", recorded("cmd_vel"), self._applied)
        self._listen(Odometry, f"/{name}/truth", recorded("truth"), self._truth)
        self._listen(DiagnosticStatus, f"/{name}/mode", REQUESTED["mode"], self._mode)
        self._activate = self.node.create_client(ChangeState, f"/{name}/policy/change_state")
        self._start = self.node.create_client(Trigger, f"/{name}/policy/start")
        self._thread = threading.Thread(target=self._spin, daemon=True)
        self._thread.start()
        set_realtime_priority(PRIORITIES["observer"], alone=True)

    def close(self):
        reset_scheduling()
        self._context.try_shutdown()
        self._thread.join(5)

    def bring_up(self):
        """Arm and start the robot as an operator does, as often as it takes."""
        order = ChangeState.Request(transition=Transition(id=Transition.TRANSITION_ACTIVATE))
        asked = {"idle": (self._activate, order), "armed": (self._start, Trigger.Request())}

        def is_active():
            if self.heard.mode in asked:
                client, request = asked[self.heard.mode]
                client.call_async(request)
                time.sleep(0.3)
            return self.heard.mode == "active"

        self.wait(is_active, "the robot could not be started")

    def speed(self):
        """Return the newest true forward speed [m/s]."""
        return self.heard.truth[-1][1].velocity[0] if self.heard.truth else 0.0

    def wait(self, condition, what, patience_s=PATIENCE_S):
        """Wait until ``condition()`` holds."""
        end_s = time.monotonic() + patience_s
        while not condition():
            assert time.monotonic() < end_s, f"waited {patience_s} s in vain: {what}"
            time.sleep(0.005)

    def was_driving(self, begin_s, end_s):
        """Whether the robot was heard, and moved whenever it was, between two times."""
        speeds = [r.velocity[0] for at, r in self.heard.truth if begin_s <= at <= end_s]
        return bool(speeds) and min(speeds) > MOVING_M_S

    def wait_until_driving(self):
        """Wait until the robot has driven for a while, and so is up to speed."""

        def driving():
            now_s = time.monotonic()
            heard = self.heard.truth
            old = bool(heard) and heard[0][0] < now_s - UP_TO_SPEED_S
            return old and self.was_driving(now_s - UP_TO_SPEED_S, now_s)

        self.wait(driving, "the robot never drove")

    def wait_until_at_rest(self, since_s=0.0):
        """Wait until truth from after ``since_s`` says that the robot stands."""

        def at_rest():
            heard = self.heard.truth
            return bool(heard) and heard[-1][0] > since_s and abs(self.speed()) < 0.003

        self.wait(at_rest, "the robot never came to rest", 5.0)

    def braked_after(self, fault_s, series, patience_s=3.0):
        """Return when the first zero command after ``fault_s`` arrived."""

        def found():
            return next((at for at, reading in series if at > fault_s and not any(reading.command)), None)

        self.wait(lambda: found() is not None, "no brake command", patience_s)
        return found()

    def way_since(self, time_s):
        """Return how far the robot has come [m] since a time."""
        passed = [reading for at, reading in self.heard.truth if at >= time_s]
        first, last = passed[0].position_world, passed[-1].position_world
        return sum((a - b) ** 2 for a, b in zip(first, last, strict=True)) ** 0.5

    def _listen(self, kind, topic, profile, callback):
        self.node.create_subscription(kind, topic, callback, profile)

    def _pass_on(self, message):
        changed = self.change(message)
        if changed is not None:
            self.last_relayed_s = time.monotonic()
            self._relay.publish(changed)

    def _sent(self, message):
        reading = read_command(message, self.robot.name, self.robot.spec)
        self.heard.sent.append((time.monotonic(), reading))

    def _applied(self, message):
        reading = read_command(message, self.robot.name, self.robot.spec)
        self.heard.applied.append((time.monotonic(), reading))

    def _truth(self, message):
        reading = read_odometry(message, self.robot.name, self.robot.spec)
        self.heard.truth.append((time.monotonic(), reading))

    def _mode(self, message):
        self.heard.mode = status_values(message)["mode"]

    def _spin(self):
        with suppress(ExternalShutdownException):
            self._executor.spin()


@dataclass
class Bench:
    """One robot with its policy and plant, observed."""

    fleet: object
    processes: FleetProcesses
    observer: Observer
    policy: object
    """The plan of its policy node."""

    def close(self):
        """End the processes, then the observer."""
        self.processes.stop()
        self.observer.close()


def start_bench(folder, *, edit_model=None, run_folder=None, hold_to_run=""):
    """Start one robot with a long way to go, in a ROS domain of its own.

    Args:
        folder: where fleet and policy are written.
        edit_model: changes the ONNX model in place.
        run_folder: where to record.
        hold_to_run: button of a joystick that must be held.
    """
    fleet = make_tiny_fleet(folder, 1, start_x=0.0, goal_x=50.0, walls=False, edit_model=edit_model)
    planned = plan(fleet, run_folder=run_folder, duration_s=600.0)
    *others, policy = with_hold_to_run(planned, hold_to_run)
    policy = replace(
        policy,
        arguments=(*policy.arguments, "-r", "odom:=odom_relayed"),
    )
    processes = FleetProcesses([*others, policy])
    environment = processes.environment()
    dds = {name: environment[name] for name in environment if name.startswith(("ROS_A", "FAST"))}
    observer = Observer(processes.domain_id, fleet.robots[0], dds)
    processes.__enter__()
    return Bench(fleet, processes, observer, policy)
