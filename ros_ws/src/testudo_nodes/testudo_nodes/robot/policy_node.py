"""The policy of one robot as a managed node: poses and peer messages in, one shielded command per tick out.

configure loads and checks policy, fleet and robot; activate arms; the service `~/start` lets it drive. The logic is in
`testudo_deploy.supervision.robot`; this node connects it to ROS.
"""

import sys
import time
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from geometry_msgs.msg import TwistStamped
from rclpy.duration import Duration
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.task import Future
from std_msgs.msg import UInt8MultiArray
from std_srvs.srv import Trigger

from testudo_deploy.contract.messages import EnvelopeError, PeerMessage
from testudo_deploy.control.peer_tracker import PeerMeasurement
from testudo_deploy.fleet.fleet import Fleet, load_fleet
from testudo_deploy.launch.fleet_topics import unknown_robots
from testudo_deploy.launch.topic_names import DIAGNOSTICS_TOPIC, PEER_TOPIC
from testudo_deploy.monitoring.diagnostics import Level, Status
from testudo_deploy.supervision.modes import READY, RESTING, Event, code_of
from testudo_deploy.supervision.robot import Robot, TickOutput
from testudo_deploy.supervision.supervisor import GuardReport, Supervisor
from testudo_hardware.errors import TestudoError
from testudo_hardware.links.wire import CommandReading, Measurement, OdometryReading, body_forward_command
from testudo_nodes.common.clock import backend_of, clock_of, secure
from testudo_nodes.common.messages import (
    command_message,
    diagnostics_message,
    envelope_message,
    raw_envelope,
    raw_envelope_bytes,
    status_message,
    status_values,
)
from testudo_nodes.common.node_runner import (
    WARN_EVERY_S,
    CpuMeter,
    parameter,
    report_status,
    reporting_errors,
    run,
    text_parameter,
)
from testudo_nodes.common.qos import OFFERED
from testudo_nodes.robot.flight_topics import subscribe_vehicle, uses_topics
from testudo_nodes.robot.lost_robots import subscribe_lost
from testudo_nodes.robot.peer_inbox import PeerInbox
from testudo_nodes.robot.policy_exchange import PolicyExchange
from testudo_nodes.robot.subscriptions import Connections, PoseSubscription
from testudo_nodes.robot.task_topic import subscribe_task

_ACKNOWLEDGE_S = 0.2
_LOOKS, _LOOK_S = 20, 0.05
"""Number and period of the checks for a subscriber to the reason of a refusal, before the process ends."""
_STATUS_S, _ORDER_S = 0.5, 0.1
_DONE, _REFUSED = TransitionCallbackReturn.SUCCESS, TransitionCallbackReturn.FAILURE


class PolicyNode(LifecycleNode):
    """The node of one robot, in the robot's namespace."""

    def __init__(self, _stop: Future) -> None:
        """Declare the parameters and, with the parameter `configure`, configure.

        Raises:
            TestudoError: policy, fleet or robot is refused.
        """
        super().__init__("policy")
        self.failed = False
        self._files = (
            text_parameter(self, "fleet", "the fleet file"),
            text_parameter(self, "robot", "the name of this robot in the fleet file"),
            text_parameter(self, "policy", "the policy file, whose hash is in the fleet file"),
        )
        self._backend = backend_of(self)
        self._configures = parameter(self, "configure", False, "configure at the start; end if that is refused")
        self._node_clock = clock_of(self)
        self.priority = self._node_clock.priority
        # created here, so that a refused configuration is reported, too
        self._diagnostics = self._node_clock.publisher(DiagnosticArray, DIAGNOSTICS_TOPIC, OFFERED["diagnostics"])
        self._configured: Robot | None = None
        self._past: Supervisor | None = None  # of the previous configuration
        self._command: Any = None
        self._ticks: Any = None
        self._poses: list[PoseSubscription] = []
        """Of the robot itself and, with a tracking system, of its peers."""
        self._peers = PeerInbox(self._node_clock.now_s, self._refuse)
        self.refusal: TestudoError | None = None
        """Why the last configuration was refused."""
        self._exchange: PolicyExchange | None = None
        self._connections = Connections(self._node_clock, self._on_mismatch)
        self._flight_order: Any = None  # publisher of orders to the guard of a robot with flight phases
        self._flight_topics: bool | None = None
        self._braked_for = ""
        self._cpu = CpuMeter()
        if self._configures and self.trigger_configure() != _DONE:
            raise self.refusal or TestudoError("policy: could not be configured")

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Load and check everything, and connect; from then on the robot publishes its mode."""
        try:
            self._configure()
        except TestudoError as error:
            self._refuse_configuration(error)
            return _REFUSED
        except Exception as error:  # noqa: BLE001 -- rclpy would drop it
            self._disconnect()
            self._refuse_configuration(TestudoError(f"{type(error).__name__}: {error}"))
            return _REFUSED
        return _DONE

    def _configure(self) -> None:
        fleet_file, name, policy = self._files
        fleet = load_fleet(fleet_file)
        secure(self, self._node_clock, fleet, self._backend)
        if self._exchange is None:
            self._exchange = PolicyExchange(self, self._node_clock, name)
        fleet, policy = self._exchange.present(fleet, policy)
        now_s, lock_step = self._node_clock.now_s(), self._node_clock.in_lock_step
        epoch, on_hardware = self._new_epoch(), self._backend == "hw"
        robot = Robot(fleet, name, policy, epoch=epoch, now_s=now_s, simulated_time=lock_step, on_hardware=on_hardware)
        for warning in filter(None, (robot.uncalibrated, robot.use_compiled_bodies())):
            self.get_logger().warning(warning)
        clocks = self._node_clock.clocks
        self._poses = [PoseSubscription(clocks, fleet.robot(name))]
        if fleet.tracking:
            self._poses += [PoseSubscription(clocks, fleet.robot(peer), of_peer=True) for peer in fleet.peers(name)]
        if self._past is not None:
            robot.supervisor.remember(self._past)
        self._exchange.take(robot)
        self._configured = robot
        self._fleet_names = fleet.names
        self._connect(fleet, robot)

    @property
    def lifecycle(self) -> str:
        """Return the state of the managed node: unconfigured, inactive, active or finalized."""
        return self._state_machine.current_state[1]

    @property
    def _robot(self) -> Robot:
        """Return the robot of the configuration; RuntimeError without one."""
        if self._configured is None:
            raise RuntimeError("the node is not configured")
        return self._configured

    def _refuse_configuration(self, error: TestudoError) -> None:
        """Publish the reason; a process that ends then also prints it as its last line."""
        self.refusal = error
        status = self._error_status("not_configured", str(error))
        if not self._configures:
            self.get_logger().error(f"refused: {error}")
            self._diagnose(status)
            return
        for _ in range(_LOOKS):
            if self._diagnostics.get_subscription_count():
                break
            time.sleep(_LOOK_S)
        self._diagnose(status)
        self._diagnostics.wait_for_all_acked(Duration(seconds=_ACKNOWLEDGE_S))

    def report_failure(self, sentence: str) -> None:
        """Publish the exception of a transition; see `reporting_errors`."""
        self.get_logger().error(sentence)
        self._diagnose(self._error_status("transition_failed", sentence))

    def _error_status(self, code: str, sentence: str) -> Status:
        name = self._files[1]
        return Status(Level.ERROR, f"{name}: policy", name, sentence, {"code": code})

    def _diagnose(self, status: Status) -> None:
        self._diagnostics.publish(diagnostics_message(status_message(status), self))

    @reporting_errors
    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Arm, if all arming checks pass."""
        return _DONE if self._ask(Event.ARM)[0] else _REFUSED

    @reporting_errors
    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Brake, and send no further commands; a robot in the air lands."""
        self._ask(Event.DEACTIVATE)
        self._send_brake()
        return _DONE

    @reporting_errors
    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Disconnect; the next configuration begins a new epoch of the robot."""
        self._disconnect()
        return _DONE

    @reporting_errors
    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Brake as the last command; after an error the node can be configured again."""
        self._disconnect()
        return _DONE

    on_error = on_shutdown

    def close(self) -> None:
        """Brake as the last command, and report the summary."""
        robot = self._configured
        self._disconnect()
        if robot is not None:
            report_status("summary", {**robot.summary(), "cpu_share": self._cpu.share()})

    def _new_epoch(self) -> str:
        """Return the name of a new epoch of the robot; in lock-step it is the same in every run."""
        return "lock-step" if self._node_clock.in_lock_step else uuid.uuid4().hex

    def _connect(self, fleet: Fleet, robot: Robot) -> None:
        self._command = self._connections.publisher(TwistStamped, "cmd_vel_policy")
        self._peer_state = self._connections.publisher(UInt8MultiArray, "peer_state")
        self._record = self._connections.publisher(UInt8MultiArray, "tick")
        self._mode = self._connections.publisher(DiagnosticStatus, "mode")
        pose, *peer_poses = self._poses
        # the own source adds a velocity to poses without one
        pose.begin(self._connections.subscribe, cast(Any, self._on_pose), self._refuse, self._on_lost_place)
        self._connections.subscribe(DiagnosticStatus, "guard_status", self._on_guard)
        if not self._node_clock.in_lock_step:
            subscribe_lost(self._connections, robot.loop.declare_lost, self._refuse)
        subscribe_task(self._connections, robot.loop, self._node_clock, fleet.robot(robot.name), self._refuse)
        peers = fleet.peers(robot.name)
        for peer in peers:
            self._connections.subscribe(UInt8MultiArray, f"/{peer}/peer_state", self._peers.on_peer, raw=True)
        follows = fleet.robot(robot.name).follows
        if follows is not None:
            self._connections.subscribe(UInt8MultiArray, f"/{follows.robot}/peer_state", self._on_leader, raw=True)
        for peer, peer_pose in zip(peers if peer_poses else (), peer_poses, strict=True):
            peer_pose.begin(self._connections.subscribe, partial(self._on_peer_pose, peer), self._refuse)
        services = [("~/start", Event.START), ("~/stop", Event.STOP)]
        if robot.flight is not None:
            services.append(("~/land", Event.LAND))
            self._connect_flight(fleet, robot)
        for name, event in services:
            service = self.create_service(Trigger, name, self._request_callback(event))
            self._connections.on_close(lambda service=service: self.destroy_service(service))
        if self._node_clock.in_lock_step:
            self._ticks = self._node_clock.every(robot.spec.control_period_s, lambda: self._tick(on_pose=True))
        else:  # starts a tick if no pose does; restarted by each tick
            self._ticks = self._node_clock.every(robot.pacer.alone_s(0.0), lambda: self._tick(on_pose=False))
        status = self._node_clock.every(_STATUS_S, self._publish_mode)
        self._connections.on_close(lambda: self._node_clock.destroy(status))

    def _connect_flight(self, fleet: Fleet, robot: Robot) -> None:
        if self._flight_topics is None:
            self._flight_topics = uses_topics(self, fleet.robot(robot.name))
        self._flight_order = self._connections.publisher(UInt8MultiArray, "flight_order")
        subscribe, entry, now_s = self._connections.subscribe, fleet.robot(robot.name), self._node_clock.now_s
        subscribe_vehicle(subscribe, now_s, entry, robot.hear_vehicle, self._refuse, topics=self._flight_topics)
        orders = self._node_clock.every(_ORDER_S, self._publish_flight_order)
        self._connections.on_close(lambda: self._node_clock.destroy(orders))

    def _publish_flight_order(self) -> None:
        if self._flight_order is not None:
            order = self._robot.flight_order(self._node_clock.now_s())
            self._flight_order.publish(envelope_message(order.encode()))

    def _disconnect(self) -> None:
        """Brake as the last command, and destroy all publishers and subscriptions of the configuration."""
        if self._configured is None:
            return
        if self._ticks is not None:
            self._node_clock.destroy(self._ticks)  # no command may follow the brake
            self._ticks = None
        if self._command is not None:
            self._send_brake()
            self._command.wait_for_all_acked(Duration(seconds=_ACKNOWLEDGE_S))
            self._command = None
        self._connections.close()
        self._past = self._robot.supervisor
        self._configured, self._flight_order = None, None

    def _request_callback(self, event: Event) -> Callable[..., Trigger.Response]:
        def answer(_: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
            response.success, response.message = self._ask(event)
            return response

        return answer

    def _ask(self, event: Event) -> tuple[bool, str]:
        answer = self._robot.request(event, self._node_clock.now_s())
        self.get_logger().info(answer.sentence)
        if not answer.granted:
            name = self._robot.name
            self._diagnose(Status(Level.WARN, f"{name}: request", name, answer.sentence, {"code": answer.code}))
        self._publish_mode()
        self._publish_flight_order()
        return answer.granted, answer.sentence

    def _on_peer_pose(self, peer: str, reading: Measurement, _: float) -> None:
        self._robot.loop.on_sighting(peer, PeerMeasurement(reading.stamp_s, reading.position_world))

    def _on_pose(self, reading: OdometryReading, received_s: float) -> None:
        robot = self._robot
        if robot.flight is not None:
            robot.flight.hear_tilt(reading.tilt_rad)
        position = reading.position_world
        taken = robot.loop.on_odometry(reading.stamp_s, received_s, position, reading.yaw, reading.velocity)
        if self._node_clock.in_lock_step:
            return  # the tick begins when all messages of the stage have arrived
        # a rejected pose leads to a brake now, not at the next tick
        if taken and (robot.pacer.is_due(received_s) or not robot.loop.located):
            self._tick(on_pose=True)

    def _on_lost_place(self) -> None:
        self._robot.loop.lose_place()
        if not self._node_clock.in_lock_step:
            self._tick(on_pose=True)  # a brake now, not at the next tick

    def _on_leader(self, data: bytes) -> None:
        try:
            self._robot.hear_leader(PeerMessage.decode(raw_envelope_bytes(data)))
        except EnvelopeError as error:
            self._refuse(error)

    def _on_guard(self, message: DiagnosticStatus) -> None:
        self._robot.hear_guard(GuardReport.of(status_values(message), self._node_clock.now_s()))

    def _on_mismatch(self, sentence: str) -> None:
        self.get_logger().warning(sentence)
        if self._configured is not None:
            self._configured.supervisor.see_mismatch(sentence)

    def _refuse(self, error: Exception) -> None:
        self._robot.refused_messages += 1
        self.get_logger().warning(str(error), throttle_duration_sec=WARN_EVERY_S)

    def _tick(self, *, on_pose: bool) -> None:
        self._peers.read(self._robot.loop.on_peer)
        now_s = self._node_clock.now_s()
        outcome = self._robot.tick(now_s, on_pose=on_pose)
        if not self._node_clock.in_lock_step:
            self._ticks.timer_period_ns = round(1e9 * self._robot.pacer.alone_s(now_s))
            self._ticks.reset()
        record = outcome.record
        if outcome.commands:
            # without an estimate the command is zero, which is the same at every yaw
            yaw = record.estimate_yaw or 0.0
            command = body_forward_command(self._robot.spec, record.sent_command, yaw)
            self._send(CommandReading(record.stamp_s, command, record.sent_yaw_rate))
        if outcome.announcement is not None:
            self._peer_state.publish(raw_envelope(outcome.announcement.encode()))
        self._record.publish(raw_envelope(record.encode()))
        self._report_changes(outcome)

    def _report_changes(self, outcome: TickOutput) -> None:
        """Publish a change of the mode, and report the start and the end of braking."""
        robot, record = self._robot, outcome.record
        code = code_of(record.reason)
        if code != self._braked_for:
            self._braked_for = code
            report_status("brake", {"robot": robot.name, "stamp_s": record.stamp_s, "reason": record.reason})
        if outcome.changed:
            self._publish_mode()
            self._publish_flight_order()
            self.get_logger().info(f"{robot.supervisor.mode}: {robot.supervisor.sentence}")
        if robot.supervisor.mode in RESTING and self.lifecycle == "active":
            self.trigger_deactivate()

    def _publish_mode(self) -> None:
        now_s, supervisor = self._node_clock.now_s(), self._robot.supervisor
        if supervisor.mode in (*RESTING, *READY):  # the search takes too long for a robot that drives
            supervisor.see_unknown_robots(self._unknown_robots())
            if self._exchange is not None:
                self._exchange.look()
        status = self._robot.status(now_s)
        self._mode.publish(status_message(status))
        self._diagnose(status)

    def _unknown_robots(self) -> list[str]:
        """Return the robots that publish for peers and are not in the fleet; topics without publishers are ignored."""
        found = unknown_robots([topic for topic, _ in self.get_topic_names_and_types()], self._fleet_names)
        return [name for name in found if self.count_publishers(f"/{name}/{PEER_TOPIC}")]

    def _send_brake(self) -> None:
        self._send(CommandReading(self._node_clock.now_s(), (0.0,) * self._robot.spec.dimension))

    def _send(self, reading: CommandReading) -> None:
        self._command.publish(command_message(self._robot.name, self._robot.spec, reading))


def main() -> None:
    """Run the node until a signal comes."""
    sys.exit(run(PolicyNode))


if __name__ == "__main__":
    main()
