"""The guard of one robot, between policy and driver: passes commands on, or brakes.

The logic is in `testudo_deploy.guard`. The process needs neither the policy nor its runtime.
"""

import functools
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from geometry_msgs.msg import TwistStamped
from rclpy.duration import Duration
from rclpy.node import Node
from rclpy.task import Future
from std_msgs.msg import Bool, String, UInt8MultiArray
from std_srvs.srv import Trigger

from testudo_deploy.contract.messages import EnvelopeError, PeerMessage
from testudo_deploy.contract.policy_archive import read_policy_contract
from testudo_deploy.fleet.fleet import FleetRobot, load_fleet
from testudo_deploy.fleet.hold_switch import chosen_switch
from testudo_deploy.guard.command_checks import Bounds, CommandChecks
from testudo_deploy.guard.command_guard import CommandGuard
from testudo_deploy.guard.flight_guard import LAST_S
from testudo_deploy.guard.foreign_motion import ForeignMotion
from testudo_deploy.guard.guard_bounds import guard_bounds, segment_limits
from testudo_deploy.guard.own_segment import OwnSegment
from testudo_deploy.guard.speed_cap import speed_cap_m_s
from testudo_deploy.launch.topic_names import DIAGNOSTICS_TOPIC, ESTOP_TOPIC, HEARTBEAT_TOPIC, PEER_TOPIC
from testudo_deploy.monitoring.diagnostics import Level, Status, diagnostic_text
from testudo_hardware.frames import PlanarTransform
from testudo_hardware.links.crazyswarm2 import SetPointLeader
from testudo_hardware.links.link_profile import with_stamped_commands
from testudo_hardware.links.topics import CommandWire
from testudo_hardware.links.wire import (
    CommandReading,
    Measurement,
    OdometryReading,
    WireError,
    convert_clock_s,
    read_command,
)
from testudo_nodes.common.clock import backend_of, clock_of, secure
from testudo_nodes.common.messages import diagnostics_message, envelope_bytes, message_class, status_message
from testudo_nodes.common.node_runner import WARN_EVERY_S, CpuMeter, parameter, report_status, run, text_parameter
from testudo_nodes.common.qos import OFFERED, REQUESTED
from testudo_nodes.robot.command_publishers import CommandPublishers, CommandTopic
from testudo_nodes.robot.flight_topics import GuardFlight
from testudo_nodes.robot.last_brake import LastBrake
from testudo_nodes.robot.policy_exchange import GuardExchange
from testudo_nodes.robot.scan_zones import GuardScan
from testudo_nodes.robot.subscriptions import PoseSubscription

_STATUS_S = 0.1
_DIAGNOSTICS_S = 1.0
_ACKNOWLEDGE_S, _SPIN_S = 0.2, 0.05


class GuardNode(Node):
    """The guard of one robot, in the robot's namespace."""

    def __init__(self, _stop: Future) -> None:
        """Start with braking.

        Raises:
            TestudoError: the fleet is refused.
        """
        super().__init__("guard")
        self.failed = False
        fleet = load_fleet(text_parameter(self, "fleet", "the fleet file"))
        self._name = text_parameter(self, "robot", "the name of this robot in the fleet file")
        robot = fleet.robot(self._name)
        self._spec = robot.spec
        self._wire = self._command_wire(robot)
        self._message = message_class(self._wire.type)
        self._topic = robot.link.topics["cmd_vel"]
        yaw_rate_rad_s = self._spec.yaw_rate_limit_rad_s if self._wire.carries_yaw_rate else 0.0
        self._node_clock = clock_of(self)
        switch = chosen_switch(fleet.hold_to_run, parameter(self, "hold_to_run", "", "TOPIC:NUMBER of a joystick"))
        in_lock_step = self._node_clock.in_lock_step
        self._guard = CommandGuard(
            dimension=self._spec.dimension,
            dead_man_s=self._spec.dead_man_s,
            yaw_rate_limit=yaw_rate_rad_s,
            heartbeat_s=0.0 if in_lock_step else fleet.estop_heartbeat_s,
            hold_s=0.0 if in_lock_step or switch is None else switch.silent_s,
        )
        self._published_code: str | None = None
        self._since_s = self._landed_s = self._diagnosed_s = -float("inf")
        backend = backend_of(self)
        secure(self, self._node_clock, fleet, backend)
        self._epoch = "lock-step" if in_lock_step else uuid.uuid4().hex
        self.priority = self._node_clock.priority
        self._flight = GuardFlight(self, self._node_clock, robot) if robot.has_flight_phases else None
        self._leader = SetPointLeader(oldest_s=robot.pose.max_age_s) if self._wire.needs_place else None
        self._motion = ForeignMotion(self._spec) if self._spec.dimension == 2 else None  # a braked drone drifts
        policy = Path(text_parameter(self, "policy", "the policy file, which holds the arena"))
        contract = read_policy_contract(policy, fleet.team_of(self._name).policy_sha256)  # without its runtime
        self._exchange = GuardExchange(self, self._node_clock, self._name, replace(fleet, policy=policy), contract)
        bounds = None if contract.arena is None else guard_bounds(self._spec, contract.arena)
        self._content = self._command_checks(robot, bounds)
        cap_m_s = speed_cap_m_s(self._spec, contract.scenario, on_hardware=backend == "hw")
        self._scan = GuardScan(self._node_clock, robot, self._content, cap_m_s)
        self._scan.begin(self._watch)
        self._connect()
        self._cpu = CpuMeter()

    def _command_wire(self, robot: FleetRobot) -> CommandWire:
        """Return the command format of the robot's driver; nav2's parameter overrides the link profile."""
        profile = robot.link.profile
        if profile.command.enable_stamped_cmd_vel is not None:
            stamped = parameter(
                self,
                "enable_stamped_cmd_vel",
                profile.command.enable_stamped_cmd_vel.value,
                "commands are TwistStamped, else Twist; by default as in the link profile",
            )
            profile = with_stamped_commands(profile, stamped)
        return CommandWire(robot.name, robot.spec, profile)

    def _command_checks(self, robot: FleetRobot, bounds: Bounds | None) -> CommandChecks:
        """Return the checks of commands; subscribe to the robot's own pose, for them and for position set-points.

        Raises:
            TestudoError: a message type is not installed.
        """
        oldest_s = robot.pose.max_age_s + self._spec.control_period_s
        segment = OwnSegment(segment_limits(self._spec))
        checks = CommandChecks(
            self._spec, bounds, oldest_pose_s=oldest_s, lands=robot.has_flight_phases, segment=segment
        )

        def hear(message: UInt8MultiArray) -> None:
            try:
                segment.hear(PeerMessage.decode(envelope_bytes(message)), self._node_clock.now_s())
            except EnvelopeError as error:
                self._warn(error)

        self._node_clock.subscribe(UInt8MultiArray, PEER_TOPIC, hear, REQUESTED["peer_state"])

        def see(reading: Measurement, _: float) -> None:
            if self._leader is not None:
                self._leader.see(PlanarTransform(reading.position_world, reading.yaw), reading.stamp_s)
            if self._motion is not None:
                self._motion.see_pose(reading.stamp_s, reading.position_world)
            if isinstance(reading, OdometryReading):
                checks.see_pose(reading.stamp_s, reading.position_world, reading.yaw, reading.velocity)

        def subscribe(kind: type, topic: str, callback: Callable[[Any], None], quality: str) -> None:
            self._node_clock.subscribe(kind, topic, callback, REQUESTED[quality])

        PoseSubscription(self._node_clock.clocks, robot).begin(subscribe, see, self._warn)
        return checks

    def _warn(self, error: Exception) -> None:
        self.get_logger().warning(str(error), throttle_duration_sec=WARN_EVERY_S)

    def close(self) -> None:
        """Brake as the last command; a flying robot is landed, because no set-points follow."""
        if self._flight is not None:
            self._brake(self._node_clock.now_s())
            real_s = time.monotonic()
            self._flight.close(functools.partial(self._spin, real_s + LAST_S))
        for timer in (self._silence, self._pulse, self._checks):
            self._node_clock.destroy(timer)
        self._brake(self._node_clock.now_s())
        self._command.wait_for_all_acked(Duration(seconds=_ACKNOWLEDGE_S))
        self._last_brake.close()
        report_status("guard", {"robot": self._name, "cpu_share": self._cpu.share()})

    def _spin(self, end_s: float) -> bool:
        """Run callbacks and timers for a moment after the executor was stopped; return False when it is over."""
        real_s = time.monotonic()
        if self._node_clock.in_lock_step or self.executor is None or real_s >= end_s:
            return False  # simulated time stands still
        self.executor.spin_until_future_complete(Future(), timeout_sec=_SPIN_S)
        return True

    def _connect(self) -> None:
        clock = self._node_clock
        self._command = clock.publisher(self._message, self._topic, OFFERED["cmd_vel"])
        self._last_brake = LastBrake(self._wire, self._command.topic_name, starts=not clock.in_lock_step)
        self._status = clock.publisher(DiagnosticStatus, "guard_status", OFFERED["guard_status"])
        self._diagnostics = clock.publisher(DiagnosticArray, DIAGNOSTICS_TOPIC, OFFERED["diagnostics"])
        clock.subscribe(TwistStamped, "cmd_vel_policy", self._on_command, REQUESTED["cmd_vel_policy"])
        policy_topic = self.resolve_topic_name("cmd_vel_policy")
        allowed = self._wire.profile.command_publishers
        topics = [
            CommandTopic(self._command.topic_name, self.get_fully_qualified_name(), allowed),
            CommandTopic(policy_topic, f"{self.get_namespace()}/policy"),
        ]
        self._command_publishers = CommandPublishers(self, topics)
        for topic in (ESTOP_TOPIC, "estop"):
            # a late guard gets the present level; every publisher matches, whatever its quality of service
            for quality in ("estop", "estop_level", "estop_button"):
                clock.subscribe_outside(Bool, topic, self._estop_callback(topic), REQUESTED[quality])
        if self._guard.hears_station:
            clock.subscribe(String, HEARTBEAT_TOPIC, self._on_heartbeat, REQUESTED["station_heartbeat"])
            # reset by every heartbeat, and by every message of a switch that is held
            self._station = clock.every(self._guard.lost_after_s or _DIAGNOSTICS_S, self._watch)
            self._let_go = clock.every(self._guard.let_go_after_s or _DIAGNOSTICS_S, self._watch)
        self.create_service(Trigger, "~/estop", self._on_stop)
        self.create_service(Trigger, "~/rearm", self._on_rearm)
        if self._flight is not None:
            self.create_service(Trigger, "~/motors_off", self._on_motors_off)
            self._flight.begin(self._step_flight)
        # reset by every command: calls back when the policy has been silent for too long
        self._silence = clock.every(self._guard.silent_after_s, self._watch)
        self._pulse = clock.every(self._spec.control_period_s, self._repeat_brake)
        self._checks = clock.every(_STATUS_S, self._check)

    def _on_command(self, message: TwistStamped) -> None:
        now_s = self._node_clock.now_s()
        try:
            reading = read_command(message, self._name, self._spec)
        except WireError as error:
            self.get_logger().warning(str(error), throttle_duration_sec=WARN_EVERY_S)
            return
        lands = (
            self._flight is not None
            and reading.yaw_rate == 0
            and self._flight.guard.may_descend(reading.command, now_s)
        )
        code = self._content.refusal(reading.command, now_s, descends=lands) or self._scan.refusal(reading.command)
        self._guard.hold(self._scan.code(now_s) or self._last_brake.code)
        if self._guard.command(
            reading.stamp_s, reading.command, now_s, yaw_rate=reading.yaw_rate, lands=lands, refusal=code
        ):
            self._silence.reset()
            if self._guard.code:
                self._landed_s = now_s
            self._send(self._scan.slowed(reading))
            if self._published_code == "":
                return
        self._watch()

    def _on_heartbeat(self, message: String) -> None:
        held_s = self._guard.held_s
        if self._guard.hear_heartbeat(message.data, self._node_clock.now_s()):
            self._station.reset()
        if self._guard.held_s != held_s:
            self._let_go.reset()
        self._watch()

    def _estop_callback(self, topic: str) -> Callable[[Bool], None]:
        source = self.resolve_topic_name(topic)

        def on_level(message: Bool) -> None:
            self._guard.hear_estop(message.data, source)
            self._watch()

        return on_level

    def _on_stop(self, _: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        self._guard.stop()
        self._watch()
        response.success, response.message = True, self._guard.sentence
        return response

    def _on_rearm(self, _: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        answer = self._guard.rearm(self._node_clock.now_s())
        response.success, response.message = answer.granted, answer.sentence
        self._watch()
        return response

    def _on_motors_off(self, _: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        flight = self._flight
        if flight is None:
            response.success, response.message = False, f"{self._name} does not fly"
            return response
        answer = flight.guard.motors_off(self._node_clock.now_s(), stopped=self._guard.is_stopped)
        flight.send(answer.requests)
        response.success, response.message = answer.granted, answer.sentence
        return response

    def _step_flight(self) -> None:
        """Advance the flight; if set-points begin, send the first one immediately."""
        if self._flight is None:
            return
        flight = self._flight.guard
        before, streamed = flight.phase, flight.streams
        has_pose = self._leader is None or self._leader.sees(self._node_clock.now_s())
        self._flight.step(stopped=not self._guard.may_take_off, has_pose=has_pose)
        if flight.streams and not streamed:
            self._brake(self._node_clock.now_s())
        if flight.phase is not before:
            self._publish_status(self._node_clock.now_s())

    def _watch(self) -> None:
        """Brake immediately for a reason that is not published yet."""
        now_s = self._node_clock.now_s()
        self._guard.hold(self._scan.code(now_s) or self._last_brake.code)
        brakes = self._guard.watch(now_s)
        if self._published_code != self._guard.code:
            if brakes:
                self._brake(now_s)
                self._pulse.reset()
            self._publish_status(now_s)

    def _repeat_brake(self) -> None:
        """Repeat the brake at the control rate; stop this timer while commands pass."""
        self._watch()
        if self._guard.code:
            self._brake(self._node_clock.now_s())
        else:
            self._pulse.cancel()

    def _check(self) -> None:
        """Check the publishers of commands, and publish the status."""
        self._last_brake.beat()
        real_s = time.monotonic()
        foreign = self._command_publishers.found(real_s)
        if foreign is not None:
            self._guard.see_publishers(foreign)
        if self._motion is not None and self._motion.found(self._node_clock.now_s()):
            self._guard.see_foreign_motion()
        self._watch()
        self._step_flight()
        if self._guard.code:
            self._brake(self._node_clock.now_s())  # in case the timer of the brake is stopped
        self._publish_status(self._node_clock.now_s())

    def _brake(self, now_s: float) -> None:
        if now_s - self._landed_s < self._guard.silent_after_s:
            return  # commands that let it descend are passed on
        self._send(CommandReading(now_s, (0.0,) * self._spec.dimension))

    def _send(self, reading: CommandReading) -> None:
        if self._flight is not None and not self._flight.guard.streams:
            if self._leader is not None:
                self._leader.forget()
            return
        at = None
        if self._leader is not None:
            now_s = self._node_clock.now_s()
            led = self._leader.lead(reading.command, now_s, reading.yaw_rate)
            if led is None:
                return  # no pose yet: it has not taken off
            yaw_rate = reading.yaw_rate if self._leader.sees(now_s) else 0.0
            reading, at = replace(reading, command=led[0], yaw_rate=yaw_rate), led[1]
        if self._wire.profile.stamps.value == "ros":
            ros_now_s, now_s = self._node_clock.clocks()
            reading = replace(reading, stamp_s=convert_clock_s(reading.stamp_s, now_s, ros_now_s))
        self._content.note_sent(self._node_clock.now_s(), reading.command)
        if self._motion is not None:
            self._motion.note_sent(self._node_clock.now_s(), reading.command)
        self._command.publish(self._wire.encode(self._message(), reading, at))

    def _publish_status(self, now_s: float) -> None:
        guard = self._guard
        changed = self._published_code != guard.code
        if changed:
            self._since_s = now_s
        self._published_code = guard.code
        level = Level.ERROR if guard.code else Level.OK
        values = {
            "code": guard.code,
            "since_s": diagnostic_text(now_s - self._since_s),
            "stamp_s": repr(now_s),
            "commands": diagnostic_text(guard.commands),
            "refused": diagnostic_text(guard.refused),
            "flight": "" if self._flight is None else str(self._flight.guard.phase),
            "life": self._epoch,
            "rearms": str(guard.rearms),
            "stops": str(guard.stops),
            "speed_share": diagnostic_text(self._scan.share),
        }
        name = f"{self._name}: guard"
        message = status_message(Status(level, name, self._name, guard.sentence, values))
        self._status.publish(message)
        if changed or now_s - self._diagnosed_s >= _DIAGNOSTICS_S:
            self._diagnosed_s = now_s
            self._diagnostics.publish(diagnostics_message(message, self))


def main() -> None:
    """Run the node until a signal comes."""
    sys.exit(run(GuardNode))


if __name__ == "__main__":
    main()
