"""Sends the signals of the task to the robots of a fleet, and hears their announcements."""

import uuid

from rclpy.node import Node
from std_msgs.msg import UInt8MultiArray

from testudo_deploy.contract.contract import Contract
from testudo_deploy.contract.messages import EnvelopeError, PeerMessage
from testudo_deploy.launch.topic_names import PEER_TOPIC
from testudo_nodes.common.clock import NodeClock
from testudo_nodes.common.messages import raw_envelope, raw_envelope_bytes
from testudo_nodes.common.node_runner import WARN_EVERY_S
from testudo_nodes.common.qos import OFFERED, REQUESTED
from testudo_sim.online_task.online_task import OnlineTask
from testudo_sim.online_task.task_sender import TaskSender


class TaskTopics:
    """Publishers of the task's messages, one for each robot."""

    def __init__(self, node: Node, clock: NodeClock, live: OnlineTask, contract: Contract) -> None:
        """Connect.

        Raises:
            TestudoError: the scenario has other signals than the policy reads.
        """
        self._node, self._clock = node, clock
        self.exchange(live, contract)
        self._publishers = {
            robot: clock.publisher(UInt8MultiArray, f"/{robot}/task", OFFERED["task"]) for robot in live.robots
        }
        for robot in live.robots:
            topic, profile = f"/{robot}/{PEER_TOPIC}", REQUESTED[PEER_TOPIC]
            clock.subscribe(UInt8MultiArray, topic, self._on_announcement, profile, raw=True)

    def exchange(self, live: OnlineTask, contract: Contract) -> None:
        """Send the signals of a task from now on, for robots with the policy of a contract.

        Raises:
            TestudoError: the scenario has other signals than the policy reads.
        """
        epoch = "lock-step" if self._clock.in_lock_step else uuid.uuid4().hex  # in lock-step the same in every run
        self._live, self._sender = live, TaskSender(contract, live.scoring.scenario, live.robots, epoch)

    def publish(self) -> None:
        """Send the present signals; nothing while a robot or body is not measured, so that the robots brake."""
        now_s = self._clock.now_s()
        sample = self._live.sample(now_s)
        if sample is None:
            return
        for message in self._sender.messages(sample, now_s):
            self._publishers[message.robot].publish(raw_envelope(message.encode()))

    def _on_announcement(self, data: bytes) -> None:
        try:
            self._sender.hear(PeerMessage.decode(raw_envelope_bytes(data)))
        except EnvelopeError as error:
            self._node.get_logger().warning(str(error), throttle_duration_sec=WARN_EVERY_S)
