"""The lock-step server: starts the stages of each round, and advances simulated time when all nodes have answered."""

import time
from collections.abc import Callable, Iterable, Sequence

from rclpy.clock import Clock
from rclpy.clock_type import ClockType
from rclpy.node import Node
from rosgraph_msgs.msg import Clock as ClockMessage
from std_msgs.msg import UInt8MultiArray

from testudo_deploy.launch.lock_step import (
    ANSWER_TIMEOUT_S,
    CLOCK_TOPIC,
    DONE_TOPIC,
    OPTIONAL_NODES,
    OPTIONAL_TIMEOUT_S,
    STAGE_TOPIC,
    START_TIMEOUT_S,
    Rounds,
    Stage,
    StageDone,
    round_times_s,
)
from testudo_hardware.links.wire import fill_stamp
from testudo_nodes.common.clock import LockStepClock
from testudo_nodes.common.messages import envelope_bytes, envelope_message
from testudo_nodes.common.node_runner import logging_errors
from testudo_nodes.common.qos import OFFERED, lock_step_profile

_CHECK_S = 0.5  # period, in real time, of the check for nodes that do not answer


class LockStepServer(LockStepClock):
    """The clock of the plant in lock-step: one round at every tick of any robot."""

    def __init__(
        self,
        node: Node,
        nodes: Sequence[str],
        periods_s: Iterable[float],
        on_stalled: Callable[[str], None],
        *,
        optional: Sequence[str] = OPTIONAL_NODES,
    ) -> None:
        """Begin when every node is ready.

        Args:
            node: the plant.
            nodes: labels of the nodes in lock-step.
            periods_s: control periods of the robots [s].
            on_stalled: called once, with a sentence, if the run cannot continue.
            optional: labels of nodes without which it continues.

        Raises:
            TestudoError: a node has no stage.
            ValueError: no period, or one that is not positive.
        """
        super().__init__(node)
        self._rounds, self._times_s, self._on_stalled = Rounds(nodes), round_times_s(periods_s), on_stalled
        self._begun, self._optional = False, tuple(optional)
        self._on_end: Callable[[], None] | None = None
        self._ended = False
        self._stages = node.create_publisher(UInt8MultiArray, STAGE_TOPIC, lock_step_profile())
        self._clock = node.create_publisher(ClockMessage, CLOCK_TOPIC, OFFERED["clock"])
        on_done = logging_errors(node, self._on_done)
        node.create_subscription(UInt8MultiArray, DONE_TOPIC, on_done, lock_step_profile(depth=500))
        self._asked_s = time.monotonic()
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        self._check_timer = node.create_timer(_CHECK_S, logging_errors(node, self._check), clock=steady)

    def end_after_this_round(self, on_end: Callable[[], None]) -> None:
        """Begin no other round; call ``on_end`` at the end of this one."""
        self._on_end = on_end

    def _on_done(self, message: UInt8MultiArray) -> None:
        self._rounds.take(StageDone.decode(envelope_bytes(message)))
        self._try()

    def _try(self) -> None:
        if self._rounds.missing or self._ended:
            return
        if self._rounds.stage is Stage.SENSE:
            self._start_stage()
        elif self._queues.is_complete(self._rounds.sent):
            self.deliver(self._rounds.sent)
            if self._on_end is None:
                self._begin_round()
            else:
                self._ended = True
                self._on_end()

    def _begin_round(self) -> None:
        self._begun = True
        self._move_to(next(self._times_s))
        clock = ClockMessage()
        fill_stamp(clock.clock, self.now_s())
        self._clock.publish(clock)
        self._run_timers()
        self._start_stage()

    def _start_stage(self) -> None:
        self._rounds.sent.update(self.sent)
        self._asked_s = time.monotonic()
        self._stages.publish(envelope_message(self._rounds.start_stage(self.now_s()).encode()))

    def _check(self) -> None:
        """Continue without optional nodes that do not answer, and end the run if another one does not."""
        waited_s = time.monotonic() - self._asked_s
        if self._ended or not self._rounds.missing or (not self._begun and waited_s < START_TIMEOUT_S):
            return
        for label in self._rounds.missing:
            if label in self._optional and waited_s > OPTIONAL_TIMEOUT_S:
                self._node.get_logger().warning(f"lock-step: {label} does not answer: the run continues without it")
                self._rounds.drop(label)
        if self._rounds.missing and waited_s > ANSWER_TIMEOUT_S:
            self._ended = True
            names = ", ".join(self._rounds.missing)
            self._on_stalled(f"lock-step: {names} did not answer for {ANSWER_TIMEOUT_S:g} s")
        self._try()
