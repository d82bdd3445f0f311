"""The one clock of a node, and the topics and timers that go by it: real time, or rounds of simulated time.

In real time a message is acted on when it comes and the clock is the steady one. In lock-step
(`testudo_deploy.launch.lock_step`) messages wait for the node's turn, timers run on simulated time, and every message
that is sent is counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from rclpy.clock import Clock, ClockType
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import QoSProfile
from rclpy.subscription import Subscription
from rclpy.task import Future
from std_msgs.msg import UInt8MultiArray

from testudo_deploy.launch.lock_step import (
    DONE_TOPIC,
    START_S,
    TURN_TOPIC,
    Mailbox,
    RoundDone,
    RoundTurn,
    SimTimer,
    stage_of,
)
from testudo_nodes.common.message_conversions import envelope_bytes, envelope_message
from testudo_nodes.common.node_runner import both_clocks, flag_parameter, guarded
from testudo_nodes.common.qos import in_rounds
from testudo_nodes.common.scheduling import PRIORITIES


class TimerHandle(Protocol):
    """A timer that begins anew when it is reset."""

    def reset(self) -> None:
        """Begin to wait anew, also after `cancel`."""

    def cancel(self) -> None:
        """Wait no more."""


class RealTime:
    """Everything at once, on the steady clock."""

    in_rounds = False

    def __init__(self, node: Node) -> None:
        self._node = node
        self._steady = Clock(clock_type=ClockType.STEADY_TIME)

    @property
    def priority(self) -> int:
        """Return the node's priority of real-time scheduling; 0: none."""
        return PRIORITIES.get(self._node.get_name(), 0)

    def now_s(self) -> float:
        """Return the clock on which every age and watchdog of the node is [s]."""
        return time.monotonic()

    def clocks(self) -> tuple[float, float]:
        """Return the ROS clock and the node's clock [s] of one moment."""
        return both_clocks(self._node)

    def publisher(self, kind: type, topic: str, profile: QoSProfile, **options: Any) -> Publisher:
        """Return a publisher."""
        return self._node.create_publisher(kind, topic, profile, **options)

    def listen(
        self, kind: type, topic: str, callback: Callable[[Any], None], profile: QoSProfile, **options: Any
    ) -> Subscription:
        """Call back for each message of a topic."""
        return self._node.create_subscription(kind, topic, guarded(self._node, callback), profile, **options)

    def listen_outside(
        self, kind: type, topic: str, callback: Callable[[Any], None], profile: QoSProfile, **options: Any
    ) -> None:
        """Call back for each message of a topic on which people, and not the fleet's nodes, speak."""
        self.listen(kind, topic, callback, profile, **options)

    def every(self, period_s: float, callback: Callable[[], None]) -> TimerHandle:
        """Call back at a period."""
        return self._node.create_timer(period_s, guarded(self._node, callback), clock=self._steady)

    def wait_for(self, future: Future) -> None:
        """Let nothing go on before a service has answered; in real time nothing waits."""

    def drop(self, entity: Any) -> None:
        """End a publisher, a subscription or a timer."""
        node = self._node
        if isinstance(entity, Publisher):
            node.destroy_publisher(entity)
        elif isinstance(entity, Subscription):
            node.destroy_subscription(entity)
        else:
            node.destroy_timer(entity)


class LockStep:
    """Topics and timers on simulated time; what a participant and the plant have in common."""

    in_rounds = True

    def __init__(self, node: Node) -> None:
        self._node, self._time_s = node, START_S
        self._mailbox = Mailbox()
        self._callbacks: dict[str, list[Callable[[Any], None]]] = {}
        self._timers: list[SimTimer] = []
        self.sent: dict[str, int] = {}
        """By absolute topic: messages that this node sent."""

    @property
    def priority(self) -> int:
        """Return 0: who waits for all others must not take the processors from them."""
        return 0

    def now_s(self) -> float:
        """Return simulated time [s]."""
        return self._time_s

    def clocks(self) -> tuple[float, float]:
        """Return simulated time [s] twice: the ROS clock is no other."""
        return self._time_s, self._time_s

    def publisher(self, kind: type, topic: str, profile: QoSProfile, **options: Any) -> CountedPublisher:
        """Return a publisher whose messages are counted."""
        return CountedPublisher(self._node.create_publisher(kind, topic, in_rounds(profile), **options), self.sent)

    def listen(
        self, kind: type, topic: str, callback: Callable[[Any], None], profile: QoSProfile, **options: Any
    ) -> TopicSubscription:
        """Call back for each message of a topic, in the node's turn."""
        absolute = self._node.resolve_topic_name(topic)
        if absolute not in self._callbacks:  # listened to for ever: the count of messages must not begin anew
            self._callbacks[absolute] = []
            self._mailbox.open(absolute)

            def keep(message: Any) -> None:
                self._mailbox.post(absolute, message)
                self._try()

            self._node.create_subscription(kind, absolute, guarded(self._node, keep), in_rounds(profile), **options)
        hearing = TopicSubscription(absolute, guarded(self._node, callback))
        self._callbacks[absolute].append(hearing.callback)
        return hearing

    def listen_outside(
        self, kind: type, topic: str, callback: Callable[[Any], None], profile: QoSProfile, **options: Any
    ) -> None:
        """Call back for each message of a topic on which people speak, at once: who stops a robot waits for no turn."""
        self._node.create_subscription(kind, topic, guarded(self._node, callback), profile, **options)

    def every(self, period_s: float, callback: Callable[[], None]) -> TimerHandle:
        """Call back at a period of simulated time."""
        timer = SimTimer(period_s, guarded(self._node, callback), self._time_s)
        self._timers.append(timer)
        return timer

    def drop(self, entity: Any) -> None:
        """Send or hear a topic no more, or end a timer."""
        if isinstance(entity, SimTimer):
            self._timers.remove(entity)
        elif isinstance(entity, TopicSubscription):
            self._callbacks[entity.topic].remove(entity.callback)
        else:
            self._node.destroy_publisher(entity.publisher)

    def deliver(self, sent: Mapping[str, int] | None = None) -> None:
        """Hand on what counts among the messages sent; left out, whatever has come."""
        for topic, message in self._mailbox.take_all() if sent is None else self._mailbox.take(sent):
            for callback in tuple(self._callbacks[topic]):
                callback(message)

    def _move_to(self, time_s: float) -> None:
        self._time_s = time_s

    def _run_timers(self) -> None:
        for timer in tuple(self._timers):
            timer.advance(self._time_s)

    def _try(self) -> None:
        """Go on if everything has come."""
        raise NotImplementedError


@dataclass(frozen=True)
class TopicSubscription:
    """Somebody who listens to a topic in lock-step."""

    topic: str
    """Absolute."""
    callback: Callable[[Any], None]


class CountedPublisher:
    """A publisher that counts what it sends."""

    def __init__(self, publisher: Publisher, sent: dict[str, int]) -> None:
        self.publisher, self._sent = publisher, sent
        self.topic_name = publisher.topic_name

    def publish(self, message: Any) -> None:
        """Send a message."""
        self._sent[self.topic_name] = self._sent.get(self.topic_name, 0) + 1
        self.publisher.publish(message)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.publisher, name)


class LockStepParticipant(LockStep):
    """The tempo of a node that acts when the plant calls its stage."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self._label = node.get_fully_qualified_name().lstrip("/")
        self._stage = stage_of(self._label)
        self._turn: RoundTurn | None = None
        self._held: set[Future] = set()
        self._done = node.create_publisher(UInt8MultiArray, DONE_TOPIC, in_rounds())
        node.create_subscription(UInt8MultiArray, TURN_TOPIC, guarded(node, self._on_turn), in_rounds())
        self._answer(-1)

    def wait_for(self, future: Future) -> None:
        """Answer the plant only after a service has answered."""
        self._held.add(future)

        def release(_: Future) -> None:
            self._held.discard(future)
            self._finish()

        future.add_done_callback(release)

    def _on_turn(self, message: UInt8MultiArray) -> None:
        turn = RoundTurn.decode(envelope_bytes(message))
        if turn.stage == self._stage:
            self._turn, self._acted = turn, False
            self._try()

    def _try(self) -> None:
        if self._turn is None or self._acted or not self._mailbox.is_complete(self._turn.sent):
            return
        self._acted = True
        self._move_to(self._turn.time_s)
        self.deliver(self._turn.sent)
        self._run_timers()
        self._finish()

    def _finish(self) -> None:
        if self._turn is None or not self._acted or self._held:
            return
        number, self._turn = self._turn.number, None
        self._answer(number)

    def _answer(self, number: int) -> None:
        self._done.publish(envelope_message(RoundDone(self._label, number, dict(self.sent)).encode()))


Tempo = RealTime | LockStepParticipant


def is_lock_step(node: Node) -> bool:
    """Declare the parameter `lock_step` and return it."""
    description = "rounds of simulated time that the plant conducts; false: real time"
    return flag_parameter(node, "lock_step", default=False, description=description)


def clock_of(node: Node) -> Tempo:
    """Return the tempo of a node, as its parameter `lock_step` says."""
    return LockStepParticipant(node) if is_lock_step(node) else RealTime(node)
