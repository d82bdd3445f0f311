"""Runs the policy of one robot: odometry and peers in, one shielded command at every control tick.

All that decides is in `testudo_deploy.control_loop`; this node carries messages to it and from it.
"""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable

from geometry_msgs.msg import TwistStamped
from nav_msgs.msg import Odometry
from rclpy.clock import Clock, ClockType
from rclpy.duration import Duration
from rclpy.node import Node
from rclpy.task import Future
from std_msgs.msg import UInt8MultiArray

from testudo_deploy.artefact import Artefact
from testudo_deploy.control_loop import ControlLoop
from testudo_deploy.fleet import Fleet, load_fleet
from testudo_deploy.messages import EnvelopeError, PeerMessage, TickRecord
from testudo_deploy.obligation_rules import check_fleet
from testudo_deploy.obligations import fleet_obligations
from testudo_deploy.pacing import Pacer
from testudo_deploy.roster import Sighting
from testudo_deploy.wire import CommandReading, WireError, read_odometry, travelling_command
from testudo_hardware.spec import RobotSpec
from testudo_nodes.conversions import command_message, envelope_bytes, envelope_message
from testudo_nodes.node_runner import CpuMeter, guarded, run, tell, text_parameter
from testudo_nodes.qos import OFFERED, REQUESTED

_LAST_WORD_S = 0.2
_WARN_EVERY_S = 5.0


class PolicyNode(Node):
    """The node of one robot, in the robot's namespace."""

    def __init__(self, _stop: Future) -> None:
        """Load policy, fleet and robot.

        Raises:
            TestudoError: one of them is refused.
        """
        super().__init__("policy")
        self.failed = False
        fleet = load_fleet(text_parameter(self, "fleet", "the fleet file"))
        self._name = text_parameter(self, "robot", "the name of this robot in the fleet file")
        policy = text_parameter(
            self, "policy", "the policy file; its hash stands in the fleet file"
        )
        robot = fleet.robot(self._name)
        self._spec = robot.spec
        artefact = Artefact.load(policy, robot=robot.spec, sha256=fleet.policy_sha256)
        check_fleet(fleet_obligations(fleet, artefact.contract))
        peers = fleet.peers(self._name)
        self._loop = ControlLoop(
            artefact,
            robot.spec,
            robot=self._name,
            peers=peers,
            goal_world=robot.goal_world,
            epoch=uuid.uuid4().hex,
            untrusted=tuple(peer for peer in peers if fleet.robot(peer).untrusted),
        )
        self._pacer = Pacer(robot.spec.control_period_s)
        self._refused = 0
        self._braked_for = ""
        self._connect(peers)
        if fleet.tracking:
            self._watch(fleet, peers)
        self._cpu = CpuMeter()

    def close(self) -> None:
        """Brake as the last command, and tell what happened."""
        self.destroy_timer(self._timer)
        zero = CommandReading(time.monotonic(), (0.0,) * self._spec.dimension)
        self._command.publish(command_message(self._name, self._spec, zero))
        self._command.wait_for_all_acked(Duration(seconds=_LAST_WORD_S))
        pacer = self._pacer
        tell(
            "summary",
            {
                "robot": self._name,
                "ticks": pacer.ticks,
                "late_ticks": pacer.late_ticks,
                "missed_ticks": pacer.missed_ticks,
                "worst_late_s": pacer.worst_late_s,
                "refused_messages": self._refused,
                "refused_poses": self._loop.refused_poses,
                "refused_peer_messages": self._loop.refused_peer_messages,
                "cpu_share": self._cpu.share(),
            },
        )

    def _connect(self, peers: tuple[str, ...]) -> None:
        self._command = self.create_publisher(TwistStamped, "cmd_vel", OFFERED["cmd_vel"])
        self._peer_state = self.create_publisher(
            UInt8MultiArray, "peer_state", OFFERED["peer_state"]
        )
        self._record = self.create_publisher(UInt8MultiArray, "tick", OFFERED["tick"])
        self.create_subscription(
            Odometry, "odom", guarded(self, self._on_odometry), REQUESTED["odom"]
        )
        for peer in peers:
            self.create_subscription(
                UInt8MultiArray,
                f"/{peer}/peer_state",
                guarded(self, self._on_peer),
                REQUESTED["peer_state"],
            )
        # not on the arrival of odometry: the shield and the record count on one tick per period
        self._timer = self.create_timer(
            self._spec.control_period_s,
            guarded(self, self._tick),
            clock=Clock(clock_type=ClockType.STEADY_TIME),
        )

    def _watch(self, fleet: Fleet, peers: tuple[str, ...]) -> None:
        """Listen to where the tracking system sees the peers."""
        for peer in peers:
            seen = guarded(self, self._sighter(peer, fleet.robot(peer).spec))
            self.create_subscription(Odometry, f"/{peer}/odom", seen, REQUESTED["odom"])

    def _sighter(self, peer: str, spec: RobotSpec) -> Callable[[Odometry], None]:
        def on_sighting(message: Odometry) -> None:
            try:
                reading = read_odometry(message, peer, spec)
            except WireError as error:
                self._refuse(error)
                return
            self._loop.on_sighting(peer, Sighting(reading.stamp_s, reading.position_world))

        return on_sighting

    def _on_odometry(self, message: Odometry) -> None:
        received_s = time.monotonic()
        try:
            reading = read_odometry(message, self._name, self._spec)
        except WireError as error:
            self._refuse(error)
            return
        self._loop.on_odometry(
            reading.stamp_s, received_s, reading.position_world, reading.yaw, reading.velocity
        )

    def _on_peer(self, message: UInt8MultiArray) -> None:
        try:
            self._loop.on_peer(PeerMessage.decode(envelope_bytes(message)), time.monotonic())
        except EnvelopeError as error:
            self._refuse(error)

    def _refuse(self, error: Exception) -> None:
        self._refused += 1
        self.get_logger().warning(str(error), throttle_duration_sec=_WARN_EVERY_S)

    def _tick(self) -> None:
        now_s = time.monotonic()
        record = self._loop.tick(now_s, self._pacer.begin(now_s))
        # without an estimate the command is zero, which no angle turns
        travels = travelling_command(self._spec, record.sent_command, record.estimate_yaw or 0.0)
        sent = CommandReading(record.stamp_s, travels)
        self._command.publish(command_message(self._name, self._spec, sent))
        announcement = self._loop.announcement(time.monotonic())
        if announcement is not None:
            self._peer_state.publish(envelope_message(announcement.encode()))
        self._record.publish(envelope_message(record.encode()))
        self._note(record)

    def _note(self, record: TickRecord) -> None:
        """Tell when the robot begins to brake, for which reason, and when it drives again."""
        code = record.reason.partition(":")[0]
        if code != self._braked_for:
            self._braked_for = code
            tell("brake", {"robot": self._name, "stamp_s": record.stamp_s, "reason": record.reason})
            self.get_logger().info(f"braking: {record.reason}" if code else "driving")


def main() -> None:
    """Run the node until a signal comes."""
    sys.exit(run(PolicyNode))


if __name__ == "__main__":
    main()
