"""Stands between the policy of a robot and its actuators: passes commands on, or brakes.

All that decides is in `testudo_deploy.guard.command_guard`. The process needs neither the policy nor its runtime.
"""

from __future__ import annotations

import functools
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from geometry_msgs.msg import TwistStamped
from rclpy.duration import Duration
from rclpy.node import Node
from rclpy.task import Future
from std_msgs.msg import Bool
from std_srvs.srv import Trigger

from testudo_deploy.fleet.fleet import FleetRobot, load_fleet
from testudo_deploy.guard.command_guard import CommandGuard
from testudo_deploy.guard.flight_guard import LAST_S
from testudo_deploy.launch.launch_plan import DIAGNOSTICS_TOPIC, ESTOP_TOPIC
from testudo_deploy.monitoring.diagnostics import Level, Status, diagnostic_text
from testudo_deploy.station.publisher_check import foreign_publishers
from testudo_hardware.frames import PlanarTransform
from testudo_hardware.links.crazyswarm2 import SetPointLeader
from testudo_hardware.links.link_profile import with_stamped_commands
from testudo_hardware.links.topics import CommandWire
from testudo_hardware.links.wire import CommandReading, OdometryReading, WireError, convert_clock_s, read_command
from testudo_nodes.common.clock import clock_of
from testudo_nodes.common.message_conversions import diagnostics_message, status_message
from testudo_nodes.common.message_definitions import message_class
from testudo_nodes.common.node_runner import WARN_EVERY_S, CpuMeter, flag_parameter, report_status, run, text_parameter
from testudo_nodes.common.qos import OFFERED, REQUESTED
from testudo_nodes.robot.flight_topics import GuardFlight
from testudo_nodes.robot.pose_subscription import PoseSubscription

_STATUS_S = 0.1
_DIAGNOSTICS_S = 1.0
_LOOK_S = 0.1
"""How often it looks who publishes commands."""
_NAMELESS = "_NODE_NAME_UNKNOWN_"
"""A publisher whose node is not known yet; one that stays so is no node of ROS."""
_LAST_WORD_S, _LAST_SPIN_S = 0.2, 0.05


class GuardNode(Node):
    """The guard of one robot, in the robot's namespace."""

    def __init__(self, _stop: Future) -> None:
        """Begin to brake.

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
        self._allowed = self._wire.profile.command.other_publishers.value
        turns_rad_s = self._spec.yaw_rate_limit_rad_s if self._wire.carries_yaw_rate else 0.0
        self._guard = CommandGuard(
            dimension=self._spec.dimension, dead_man_s=self._spec.dead_man_s, yaw_rate_limit=turns_rad_s
        )
        self._seen: tuple[str, ...] = ()
        self._told: tuple[str, str] | None = None
        self._since_s = self._look_s = self._landed_s = self._diagnosed_s = -float("inf")
        self._tempo = clock_of(self)
        self._life = "lock-step" if self._tempo.in_rounds else uuid.uuid4().hex
        self.priority = self._tempo.priority
        self._flight = GuardFlight(self, self._tempo, robot) if robot.has_flight_phases else None
        self._leader = self._lead_set_points(robot) if self._wire.needs_place else None
        self._connect()
        self._cpu = CpuMeter()

    def _command_wire(self, robot: FleetRobot) -> CommandWire:
        """Return how the robot's driver takes commands; nav2's parameter has the last word."""
        profile = robot.link.profile
        if profile.command.enable_stamped_cmd_vel is not None:
            stamped = flag_parameter(
                self,
                "enable_stamped_cmd_vel",
                default=profile.command.enable_stamped_cmd_vel.value,
                description="commands are TwistStamped, else Twist; left out: as the link profile says",
            )
            profile = with_stamped_commands(profile, stamped)
        return CommandWire(robot.name, robot.spec, profile)

    def _lead_set_points(self, robot: FleetRobot) -> SetPointLeader:
        """Hear where the drone is, for set-points that are a place.

        Raises:
            TestudoError: a message type is not installed.
        """
        leader = SetPointLeader(oldest_s=robot.pose.max_age_s)

        def see(reading: OdometryReading, _: float) -> None:
            leader.see(PlanarTransform(reading.position_world, reading.yaw), reading.stamp_s)

        def listen(kind: type, topic: str, callback: Callable[[Any], None], quality: str) -> None:
            self._tempo.listen(kind, topic, callback, REQUESTED[quality])

        PoseSubscription(self._tempo.clocks, robot).begin(listen, see, self._warn)
        return leader

    def _warn(self, error: Exception) -> None:
        self.get_logger().warning(str(error), throttle_duration_sec=WARN_EVERY_S)

    def close(self) -> None:
        """Brake as the last command; what flies is landed, as nobody is left to hold it up."""
        if self._flight is not None:
            self._brake(self._tempo.now_s())
            real_s = time.monotonic()
            self._flight.close(functools.partial(self._spin, real_s + LAST_S))
        for timer in (self._silence, self._pulse, self._round):
            self._tempo.drop(timer)
        self._brake(self._tempo.now_s())
        self._command.wait_for_all_acked(Duration(seconds=_LAST_WORD_S))
        report_status("guard", {"robot": self._name, "cpu_share": self._cpu.share()})

    def _spin(self, end_s: float) -> bool:
        """Let the guard go on for a moment once its executor was stopped; returns False when that has no use."""
        real_s = time.monotonic()
        if self._tempo.in_rounds or self.executor is None or real_s >= end_s:
            return False  # simulated time stands still
        self.executor.spin_until_future_complete(Future(), timeout_sec=_LAST_SPIN_S)
        return True

    def _connect(self) -> None:
        tempo = self._tempo
        self._command = tempo.publisher(self._message, self._topic, OFFERED["cmd_vel"])
        self._status = tempo.publisher(DiagnosticStatus, "guard_status", OFFERED["guard_status"])
        self._diagnostics = tempo.publisher(DiagnosticArray, DIAGNOSTICS_TOPIC, OFFERED["diagnostics"])
        tempo.listen(TwistStamped, "cmd_vel_policy", self._on_command, REQUESTED["cmd_vel_policy"])
        self._policy_topic = self.resolve_topic_name("cmd_vel_policy")
        for topic in (ESTOP_TOPIC, "estop"):
            # a guard that comes late asks for the level that stands; whoever presses is heard, whatever he offers
            for quality in ("estop", "estop_level", "estop_button"):
                tempo.listen_outside(Bool, topic, self._estop_hearer(topic), REQUESTED[quality])
        self.create_service(Trigger, "~/estop", self._on_stop)
        self.create_service(Trigger, "~/rearm", self._on_rearm)
        if self._flight is not None:
            self.create_service(Trigger, "~/motors_off", self._on_motors_off)
            self._flight.begin(self._fly)
        # begins anew with every command: it runs out when the policy has been silent for too long
        self._silence = tempo.every(self._guard.silent_after_s, self._watch)
        self._pulse = tempo.every(self._spec.control_period_s, self._repeat)
        self._round = tempo.every(_STATUS_S, self._look_around)

    def _on_command(self, message: TwistStamped) -> None:
        now_s = self._tempo.now_s()
        try:
            reading = read_command(message, self._name, self._spec)
        except WireError as error:
            self.get_logger().warning(str(error), throttle_duration_sec=WARN_EVERY_S)
            return
        lands = (
            self._flight is not None and reading.yaw_rate == 0 and self._flight.pure.may_descend(reading.command, now_s)
        )
        if self._guard.command(reading.stamp_s, reading.command, now_s, yaw_rate=reading.yaw_rate, lands=lands):
            self._silence.reset()
            if self._guard.code:
                self._landed_s = now_s
            self._send(reading)
            if self._told is not None and not self._told[0]:
                return
        self._watch()

    def _estop_hearer(self, topic: str) -> Callable[[Bool], None]:
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
        answer = self._guard.rearm()
        response.success, response.message = answer.granted, answer.sentence
        self._watch()
        return response

    def _on_motors_off(self, _: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        answer = self._flight.pure.motors_off(self._tempo.now_s(), stopped=self._guard.code == "estop")
        self._flight.ask(answer.requests)
        response.success, response.message = answer.granted, answer.sentence
        return response

    def _fly(self) -> None:
        """Go on with the flight; where set-points begin, the first one leaves at once."""
        if self._flight is None:
            return
        flight = self._flight.pure
        before, streamed = flight.phase, flight.streams
        blind = self._leader is not None and not self._leader.sees(self._tempo.now_s())
        self._flight.step(stopped=self._guard.code == "estop", blind=blind)
        if flight.streams and not streamed:
            self._brake(self._tempo.now_s())
        if flight.phase is not before:
            self._tell(self._tempo.now_s())

    def _watch(self) -> None:
        """Brake at once if there is a reason that was not told yet."""
        now_s = self._tempo.now_s()
        brakes = self._guard.watch(now_s)
        if self._told is None or self._told[0] != self._guard.code:
            if brakes:
                self._brake(now_s)
                self._pulse.reset()
            self._tell(now_s)

    def _repeat(self) -> None:
        """Repeat the brake at the control rate; while commands pass there is nothing to wake up for."""
        self._watch()
        if self._guard.code:
            self._brake(self._tempo.now_s())
        else:
            self._pulse.cancel()

    def _look_around(self) -> None:
        """Look who publishes, and say how things are."""
        real_s = time.monotonic()  # nodes come and go in real time, whatever the robots' clock is
        if real_s - self._look_s >= _LOOK_S:
            self._look_s = real_s
            found = self._foreign()
            self._guard.see_publishers([name for name in found if _NAMELESS not in name or name in self._seen])
            self._seen = found
        self._watch()
        self._fly()
        if self._guard.code:
            self._brake(self._tempo.now_s())  # should the pulse ever be lost
        self._tell(self._tempo.now_s())

    def _foreign(self) -> tuple[str, ...]:
        """Return the nodes that publish commands in the guard's place, or in the policy's."""
        command, policy = self._command.topic_name, self._policy_topic
        found = [
            (command, self.get_fully_qualified_name(), self._allowed),
            (policy, f"{self.get_namespace()}/policy", ()),
        ]
        return tuple(
            f"{name} on {topic}"
            for topic, own, allowed in found
            for name in foreign_publishers(self._ends(topic), own, allowed)
        )

    def _ends(self, topic: str) -> list[str]:
        ends = self.get_publishers_info_by_topic(topic)
        return [f"{end.node_namespace.rstrip('/')}/{end.node_name}" for end in ends]

    def _brake(self, now_s: float) -> None:
        if now_s - self._landed_s < self._guard.silent_after_s:
            return  # what brings it down is passed on
        self._send(CommandReading(now_s, (0.0,) * self._spec.dimension))

    def _send(self, reading: CommandReading) -> None:
        if self._flight is not None and not self._flight.pure.streams:
            if self._leader is not None:
                self._leader.forget()
            return
        at = None
        if self._leader is not None:
            now_s = self._tempo.now_s()
            led = self._leader.lead(reading.command, now_s, reading.yaw_rate)
            if led is None:
                return  # where it is was never known: it has not taken off
            yaw_rate = reading.yaw_rate if self._leader.sees(now_s) else 0.0
            reading, at = replace(reading, command=led[0], yaw_rate=yaw_rate), led[1]
        if self._wire.profile.stamps.value == "ros":
            ros_now_s, now_s = self._tempo.clocks()
            reading = replace(reading, stamp_s=convert_clock_s(reading.stamp_s, now_s, ros_now_s))
        self._command.publish(self._wire.encode(self._message(), reading, at))

    def _tell(self, now_s: float) -> None:
        guard = self._guard
        changed = self._told is None or self._told[0] != guard.code
        if changed:
            self._since_s = now_s
        self._told = (guard.code, guard.sentence)
        level = Level.ERROR if guard.code else Level.OK
        values = {
            "code": guard.code,
            "since_s": diagnostic_text(now_s - self._since_s),
            "stamp_s": repr(now_s),
            "commands": diagnostic_text(guard.commands),
            "refused": diagnostic_text(guard.refused),
            "flight": "" if self._flight is None else str(self._flight.pure.phase),
            "life": self._life,
            "rearms": str(guard.rearms),
            "stops": str(guard.stops),
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
