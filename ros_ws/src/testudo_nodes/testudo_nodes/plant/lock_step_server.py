"""The tempo of the plant in lock-step: it calls everybody's turn, and moves time on when all have answered."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from rclpy.clock import Clock, ClockType
from rclpy.node import Node
from rosgraph_msgs.msg import Clock as ClockMessage
from std_msgs.msg import UInt8MultiArray

from testudo_deploy.launch.lock_step import (
    CLOCK_TOPIC,
    DONE_TOPIC,
    PATIENCE_S,
    SPARE,
    SPARE_PATIENCE_S,
    START_PATIENCE_S,
    TURN_TOPIC,
    RoundDone,
    Rounds,
    RoundStage,
    round_times_s,
)
from testudo_hardware.links.wire import fill_stamp
from testudo_nodes.common.clock import LockStep
from testudo_nodes.common.message_conversions import envelope_bytes, envelope_message
from testudo_nodes.common.node_runner import guarded
from testudo_nodes.common.qos import OFFERED, in_rounds

_LOOK_S = 0.5
"""How often, in real time, it looks whether somebody does not answer."""


class LockStepServer(LockStep):
    """Simulated time in rounds, one at every tick of any robot."""

    def __init__(
        self, node: Node, nodes: Sequence[str], periods_s: Iterable[float], stuck: Callable[[str], None]
    ) -> None:
        """Wait until every node is there, then begin.

        Args:
            node: the plant.
            nodes: labels of those that take part.
            periods_s: control periods of the robots.
            stuck: is told, once, that the run cannot go on, in one sentence.

        Raises:
            TestudoError: a node has no part in rounds.
            ValueError: no period, or one of nothing.
        """
        super().__init__(node)
        self._rounds, self._times_s, self._stuck = Rounds(nodes), round_times_s(periods_s), stuck
        self._begun = False
        self._over: Callable[[], None] | None = None
        self._ended = False
        self._turns = node.create_publisher(UInt8MultiArray, TURN_TOPIC, in_rounds())
        self._clock = node.create_publisher(ClockMessage, CLOCK_TOPIC, OFFERED["clock"])
        node.create_subscription(UInt8MultiArray, DONE_TOPIC, guarded(node, self._on_done), in_rounds(depth=500))
        self._asked_s = time.monotonic()
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        self._watch = node.create_timer(_LOOK_S, guarded(node, self._look), clock=steady)

    def end_after_this_round(self, over: Callable[[], None]) -> None:
        """Begin no other round; ``over`` is called at the end of this one."""
        self._over = over

    def _on_done(self, message: UInt8MultiArray) -> None:
        self._rounds.take(RoundDone.decode(envelope_bytes(message)))
        self._try()

    def _try(self) -> None:
        if self._rounds.missing or self._ended:
            return
        if self._rounds.stage is RoundStage.SENSE:
            self._call()
        elif self._mailbox.is_complete(self._rounds.sent):
            self.deliver(self._rounds.sent)
            if self._over is None:
                self._begin_round()
            else:
                self._ended = True
                self._over()

    def _begin_round(self) -> None:
        self._begun = True
        self._move_to(next(self._times_s))
        clock = ClockMessage()
        fill_stamp(clock.clock, self.now_s())
        self._clock.publish(clock)
        self._run_timers()
        self._call()

    def _call(self) -> None:
        self._rounds.sent.update(self.sent)
        self._asked_s = time.monotonic()
        self._turns.publish(envelope_message(self._rounds.turn(self.now_s()).encode()))

    def _look(self) -> None:
        """Go on without those whom nobody needs, and end without the others."""
        waited_s = time.monotonic() - self._asked_s
        if self._ended or not self._rounds.missing or (not self._begun and waited_s < START_PATIENCE_S):
            return
        for label in self._rounds.missing:
            if label in SPARE and waited_s > SPARE_PATIENCE_S:
                self._node.get_logger().warning(f"lock-step: {label} does not answer: the run goes on without it")
                self._rounds.drop(label)
        if self._rounds.missing and waited_s > PATIENCE_S:
            self._ended = True
            names = ", ".join(self._rounds.missing)
            self._stuck(f"lock-step: {names} did not answer for {PATIENCE_S:g} s")
        self._try()
