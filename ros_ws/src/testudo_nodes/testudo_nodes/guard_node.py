"""Stands between the policy of a robot and its actuators: passes commands on, or brakes.

All that decides is in `testudo_deploy.guard`. The process needs neither the policy nor its runtime.
"""

from __future__ import annotations

import sys
import time

from diagnostic_msgs.msg import DiagnosticStatus
from geometry_msgs.msg import TwistStamped
from rclpy.clock import Clock, ClockType
from rclpy.duration import Duration
from rclpy.node import Node
from rclpy.task import Future
from std_msgs.msg import Bool
from std_srvs.srv import Trigger

from testudo_deploy.diagnostics import Level, Status, shown
from testudo_deploy.fleet import load_fleet
from testudo_deploy.guard import Guard
from testudo_deploy.plan import ESTOP_TOPIC
from testudo_deploy.wire import CommandReading, WireError, read_command
from testudo_nodes.conversions import command_message, status_message
from testudo_nodes.node_runner import CpuMeter, guarded, run, tell, text_parameter
from testudo_nodes.qos import OFFERED, REQUESTED

_STATUS_S = 0.1
_LOOK_S = 0.1
"""How often it looks who publishes commands."""
_NAMELESS = "_NODE_NAME_UNKNOWN_"
"""A publisher whose node is not known yet; one that stays so is no node of ROS."""
_LAST_WORD_S = 0.2
_WARN_EVERY_S = 5.0


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
        self._spec = fleet.robot(self._name).spec
        self._guard = Guard(dimension=self._spec.dimension, dead_man_s=self._spec.dead_man_s)
        self._seen: tuple[str, ...] = ()
        self._told: tuple[str, str] | None = None
        self._since_s = self._status_s = self._look_s = -float("inf")
        self._connect()
        self._cpu = CpuMeter()

    def close(self) -> None:
        """Brake as the last command."""
        self.destroy_timer(self._silence)
        self.destroy_timer(self._pulse)
        self._brake(time.monotonic())
        self._command.wait_for_all_acked(Duration(seconds=_LAST_WORD_S))
        tell("guard", {"robot": self._name, "cpu_share": self._cpu.share()})

    def _connect(self) -> None:
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        self._command = self.create_publisher(TwistStamped, "cmd_vel", OFFERED["cmd_vel"])
        self._status = self.create_publisher(
            DiagnosticStatus, "guard_status", OFFERED["guard_status"]
        )
        self._policy = self.create_subscription(
            TwistStamped,
            "cmd_vel_policy",
            guarded(self, self._on_command),
            REQUESTED["cmd_vel_policy"],
        )
        for topic in (ESTOP_TOPIC, "estop"):
            self.create_subscription(
                Bool, topic, guarded(self, self._on_estop), REQUESTED["estop"]
            )
        self.create_service(Trigger, "~/estop", self._on_stop)
        self.create_service(Trigger, "~/rearm", self._on_rearm)
        # begins anew with every command: it runs out when the policy has been silent for too long
        self._silence = self.create_timer(
            self._guard.silent_after_s, guarded(self, self._watch), clock=steady
        )
        self._pulse = self.create_timer(
            self._spec.control_period_s, guarded(self, self._beat), clock=steady
        )

    def _on_command(self, message: TwistStamped) -> None:
        now_s = time.monotonic()
        try:
            reading = read_command(message, self._name, self._spec)
        except WireError as error:
            self.get_logger().warning(str(error), throttle_duration_sec=_WARN_EVERY_S)
            return
        if self._guard.command(reading.stamp_s, reading.command, now_s):
            self._silence.reset()
            self._command.publish(message)
        else:
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
        now_s = time.monotonic()
        brakes = self._guard.watch(now_s)
        if self._told is None or self._told[0] != self._guard.code:
            if brakes:
                self._brake(now_s)
            self._tell(now_s)

    def _beat(self) -> None:
        """Repeat the brake, look who publishes, and say how things are."""
        now_s = time.monotonic()
        if now_s - self._look_s >= _LOOK_S:
            self._look_s = now_s
            found = self._foreign()
            self._guard.see_publishers(
                [name for name in found if _NAMELESS not in name or name in self._seen]
            )
            self._seen = found
        self._watch()
        if self._guard.code:
            self._brake(now_s)
        if now_s - self._status_s >= _STATUS_S:
            self._tell(now_s)

    def _foreign(self) -> tuple[str, ...]:
        """Return the nodes that publish commands in the guard's place, or in the policy's."""
        own, policy = self.get_fully_qualified_name(), f"{self.get_namespace()}/policy"
        found = []
        for topic, expected in ((self._command.topic_name, own), (self._policy.topic_name, policy)):
            ends = [
                f"{end.node_namespace.rstrip('/')}/{end.node_name}"
                for end in self.get_publishers_info_by_topic(topic)
            ]
            if expected in ends:
                ends.remove(expected)  # once: a second one of the same name is another process
            found += [f"{name} on {topic}" for name in ends]
        return tuple(found)

    def _brake(self, now_s: float) -> None:
        zero = CommandReading(now_s, (0.0,) * self._spec.dimension)
        self._command.publish(command_message(self._name, self._spec, zero))

    def _tell(self, now_s: float) -> None:
        guard = self._guard
        if self._told is None or self._told[0] != guard.code:
            self._since_s = now_s
        self._told, self._status_s = (guard.code, guard.sentence), now_s
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
