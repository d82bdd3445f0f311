"""A process of a fleet says which policy file it uses, and takes part in a change of it."""

from collections.abc import Callable, Mapping
from typing import Any

from rclpy.node import Node
from std_msgs.msg import String

from testudo_deploy.contract.messages import EnvelopeError
from testudo_deploy.contract.policy_change import PolicyChange, PolicyInUse, in_use_topic
from testudo_deploy.launch.topic_names import CHANGE_TOPIC
from testudo_deploy.supervision.policy_agreement import SAID_EVERY_S
from testudo_hardware.errors import TestudoError
from testudo_nodes.common.clock import NodeClock
from testudo_nodes.common.node_runner import WARN_EVERY_S
from testudo_nodes.common.qos import OFFERED, REQUESTED

Step = Callable[[PolicyChange], str]
"""Does a step, and returns a sentence about it; raises `TestudoError` to refuse it."""


class PolicyTopics:
    """Says the policy of a process once a second, and answers each step of a change once."""

    def __init__(
        self,
        node: Node,
        clock: NodeClock,
        process: str,
        in_use: Callable[[], tuple[str, str]],
        steps: Mapping[str, Step],
    ) -> None:
        """Connect.

        Args:
            node: of the process.
            clock: of the node, in real time.
            process: its label in the plan, such as `r0/guard`.
            in_use: returns the hash of its policy file and that of its contract; two empty texts without one.
            steps: what it does, by step; it does not answer others.
        """
        self._node, self._process, self._in_use, self._steps = node, process, in_use, steps
        self._change, self._answers = "", dict[str, tuple[bool, str]]()
        self._publisher: Any = clock.publisher(String, in_use_topic(process), OFFERED["policy_in_use"])
        clock.subscribe(String, CHANGE_TOPIC, self._on_change, REQUESTED["change"])
        self._timer = clock.every(SAID_EVERY_S, self._repeat)

    def say(self, change: str = "", step: str = "", *, accepted: bool = True, sentence: str = "") -> None:
        """Say which policy file is in use; with the answer to a step of a change."""
        said = PolicyInUse(self._process, *self._in_use(), change, step, accepted, sentence)
        self._publisher.publish(String(data=said.encode().decode()))

    def _repeat(self) -> None:
        self.say()

    def _on_change(self, message: String) -> None:
        try:
            change = PolicyChange.decode(message.data.encode())
        except EnvelopeError as error:
            self._node.get_logger().warning(f"{CHANGE_TOPIC}: {error}", throttle_duration_sec=WARN_EVERY_S)
            return
        if change.step not in self._steps:
            return
        if change.change != self._change:
            self._change, self._answers = change.change, {}
        if change.step not in self._answers:
            self._answers[change.step] = self._done(change)
        accepted, sentence = self._answers[change.step]
        self.say(change.change, change.step, accepted=accepted, sentence=sentence)

    def _done(self, change: PolicyChange) -> tuple[bool, str]:
        try:
            answer = True, self._steps[change.step](change)
        except Exception as error:  # noqa: BLE001 -- whatever fails is refused, and said
            plain = str(error) if isinstance(error, TestudoError) else f"{type(error).__name__}: {error}"
            answer = False, f"{self._process}: {' '.join(plain.split())}"
        said = f"{change.step} of a policy: {answer[1]}"
        if answer[0]:  # rclpy refuses two severities of one line
            self._node.get_logger().info(said)
        else:
            self._node.get_logger().warning(said)
        return answer
