"""Stands between the policy of a robot and its actuators: passes commands on, or brakes.

All that decides is in `testudo_deploy.guard`. The process needs neither the policy nor its runtime.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace

from diagnostic_msgs.msg import DiagnosticStatus
from geometry_msgs.msg import TwistStamped
from rclpy.duration import Duration
from rclpy.node import Node
from rclpy.task import Future
from std_msgs.msg import Bool
from std_srvs.srv import Trigger

from testudo_deploy.diagnostics import Level, Status, shown
from testudo_deploy.fleet import FleetRobot, load_fleet
from testudo_deploy.guard import Guard
from testudo_deploy.plan import ESTOP_TOPIC
from testudo_deploy.publishers import foreign_publishers
from testudo_hardware.errors import TestudoError
from testudo_hardware.links.profile import with_stamped_commands
from testudo_hardware.links.topics import CommandWire
from testudo_hardware.links.wire import CommandReading, WireError, other_clock_s, read_command
from testudo_nodes.conversions import status_message
from testudo_nodes.message_definitions import message_class
from testudo_nodes.node_runner import WARN_EVERY_S, CpuMeter, flag_parameter, run, tell, text_parameter
from testudo_nodes.qos import OFFERED, REQUESTED
from testudo_nodes.tempo import tempo_of

_STATUS_S = 0.1
_LOOK_S = 0.1
"""How often it looks who publishes commands."""
_NAMELESS = "_NODE_NAME_UNKNOWN_"
"""A publisher whose node is not known yet; one that stays so is no node of ROS."""
_LAST_WORD_S = 0.2


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
        self._guard = Guard(dimension=self._spec.dimension, dead_man_s=self._spec.dead_man_s)
        self._seen: tuple[str, ...] = ()
        self._told: tuple[str, str] | None = None
        self._since_s = self._look_s = -float("inf")
        self._tempo = tempo_of(self)
        self.priority = self._tempo.priority
        self._connect()
        self._cpu = CpuMeter()

    def _command_wire(self, robot: FleetRobot) -> CommandWire:
        """Return how the robot's driver takes commands; nav2's parameter has the last word.

        Raises:
            TestudoError: a set-point that needs to know where the drone is.
        """
        profile = robot.link.profile
        if profile.command.enable_stamped_cmd_vel is not None:
            stamped = flag_parameter(
                self,
                "enable_stamped_cmd_vel",
                default=profile.command.enable_stamped_cmd_vel.value,
                description="commands are TwistStamped, else Twist; left out: as the link profile says",
            )
            profile = with_stamped_commands(profile, stamped)
        wire = CommandWire(robot.name, robot.spec, profile)
        if wire.needs_place:
            raise TestudoError(
                f"{robot.name}: link {profile.name!r}: set_point: found {profile.command.set_point.value}, "
                "expected velocity_world: the guard does not know where the drone is"
            )
        return wire

    def close(self) -> None:
        """Brake as the last command."""
        for timer in (self._silence, self._pulse, self._round):
            self._tempo.drop(timer)
        self._brake(self._tempo.now_s())
        self._command.wait_for_all_acked(Duration(seconds=_LAST_WORD_S))
        tell("guard", {"robot": self._name, "cpu_share": self._cpu.share()})

    def _connect(self) -> None:
        tempo = self._tempo
        self._command = tempo.publisher(self._message, self._topic, OFFERED["cmd_vel"])
        self._status = tempo.publisher(DiagnosticStatus, "guard_status", OFFERED["guard_status"])
        tempo.listen(TwistStamped, "cmd_vel_policy", self._on_command, REQUESTED["cmd_vel_policy"])
        self._policy_topic = self.resolve_topic_name("cmd_vel_policy")
        for topic in (ESTOP_TOPIC, "estop"):
            tempo.listen_outside(Bool, topic, self._on_estop, REQUESTED["estop"])
        self.create_service(Trigger, "~/estop", self._on_stop)
        self.create_service(Trigger, "~/rearm", self._on_rearm)
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
        if self._guard.command(reading.stamp_s, reading.command, now_s):
            self._silence.reset()
            self._send(reading)
            if self._told is not None and not self._told[0]:
                return
        self._watch()

    def _on_estop(self, message: Bool) -> None:
        self._guard.hear_estop(message.data)
        self._watch()

    def _on_stop(self, _: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        self._guard.hear_estop(True)
        self._guard.hear_estop(False)  # a press; what is latched stays
        self._watch()
        response.success, response.message = True, self._guard.sentence
        return response

    def _on_rearm(self, _: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        answer = self._guard.rearm()
        response.success, response.message = answer.granted, answer.sentence
        self._watch()
        return response

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
            self._guard.see_publishers(
                [name for name in found if _NAMELESS not in name or name in self._seen]
            )
            self._seen = found
        self._watch()
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
        self._send(CommandReading(now_s, (0.0,) * self._spec.dimension))

    def _send(self, reading: CommandReading) -> None:
        if self._wire.profile.stamps.value == "ros":
            ros_now_s, now_s = self._tempo.clocks()
            reading = replace(reading, stamp_s=other_clock_s(reading.stamp_s, now_s, ros_now_s))
        self._command.publish(self._wire.encode(self._message(), reading))

    def _tell(self, now_s: float) -> None:
        guard = self._guard
        if self._told is None or self._told[0] != guard.code:
            self._since_s = now_s
        self._told = (guard.code, guard.sentence)
        level = Level.ERROR if guard.code else Level.OK
        values = {
            "code": guard.code,
            "since_s": shown(now_s - self._since_s),
            "stamp_s": repr(now_s),
            "commands": shown(guard.commands),
            "refused": shown(guard.refused),
        }
        name = f"{self._name}: guard"
        message = status_message(Status(level, name, self._name, guard.sentence, values))
        self._status.publish(message)


def main() -> None:
    """Run the node until a signal comes."""
    sys.exit(run(GuardNode))


if __name__ == "__main__":
    main()
