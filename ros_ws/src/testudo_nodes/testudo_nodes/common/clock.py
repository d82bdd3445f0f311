"""The clock of a node, with the topics and timers that follow it: real time, or lock-step on simulated time.

In real time a message is handled when it arrives and the clock is the steady one. In lock-step
(`testudo_deploy.launch.lock_step`) messages wait for the node's stage, timers run on simulated time, and every message
sent is counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from rclpy.clock import Clock
from rclpy.clock_type import ClockType
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import QoSProfile
from rclpy.subscription import Subscription
from rclpy.task import Future
from std_msgs.msg import UInt8MultiArray

from testudo_deploy.authentication.fleet_key import load_key
from testudo_deploy.fleet.fleet import Fleet
from testudo_deploy.launch.launch_plan import BACKENDS
from testudo_deploy.launch.lock_step import (
    DONE_TOPIC,
    STAGE_TOPIC,
    START_S,
    SimTimer,
    StageDone,
    StageStart,
    TopicQueues,
    stage_of,
)
from testudo_nodes.common.authentication import Authentication, SigningPublisher, authentication_of
from testudo_nodes.common.messages import envelope_bytes, envelope_message
from testudo_nodes.common.node_runner import both_clocks, logging_errors, parameter
from testudo_nodes.common.process_priority import PRIORITIES
from testudo_nodes.common.qos import lock_step_profile


class TimerHandle(Protocol):
    """A timer that can be restarted."""

    def reset(self) -> None:
        """Restart the period, also after `cancel`."""

    def cancel(self) -> None:
        """Stop the timer."""


class RealTimeClock:
    """The steady clock; messages are handled when they arrive."""

    in_lock_step = False

    def __init__(self, node: Node) -> None:
        self._node = node
        self._steady = Clock(clock_type=ClockType.STEADY_TIME)
        self.authentication: Authentication | None = None
        """Of a keyed fleet; set it before the first publisher and subscription. See `secure`."""

    @property
    def priority(self) -> int:
        """Return the node's real-time priority; 0: none."""
        return PRIORITIES.get(self._node.get_name(), 0)

    def now_s(self) -> float:
        """Return the clock of all ages and watchdogs of the node [s]."""
        return time.monotonic()

    def clocks(self) -> tuple[float, float]:
        """Return the ROS clock and the node's clock [s] of one moment."""
        return both_clocks(self._node)

    def publisher(self, kind: type, topic: str, profile: QoSProfile, **options: Any) -> Publisher | SigningPublisher:
        """Return a publisher; in a keyed fleet it signs the messages of signed topics."""
        publisher = self._node.create_publisher(kind, topic, profile, **options)
        signs = self.authentication is not None and self.authentication.signs(topic)
        return self.authentication.signing(publisher) if self.authentication and signs else publisher

    def subscribe(
        self,
        kind: type,
        topic: str,
        callback: Callable[[Any], None],
        profile: QoSProfile,
        *,
        raw: bool = False,
        keeps: bool = False,
        **options: Any,
    ) -> Subscription:
        """Call back for each message of a topic; in a keyed fleet, for each with a right code.

        ``raw`` and ``keeps`` are those of `Authentication.verifying`.
        """
        if self.authentication is not None and self.authentication.signs(topic):
            callback = self.authentication.verifying(kind, topic, callback, raw=raw, keeps=keeps)
            raw = True
        options["raw"] = raw
        return self._node.create_subscription(kind, topic, logging_errors(self._node, callback), profile, **options)

    def subscribe_outside(
        self, kind: type, topic: str, callback: Callable[[Any], None], profile: QoSProfile, **options: Any
    ) -> Subscription:
        """Call back for each message of a topic whose publishers are not nodes of the fleet."""
        return self.subscribe(kind, topic, callback, profile, **options)

    def every(self, period_s: float, callback: Callable[[], None]) -> TimerHandle:
        """Call back at a period [s]."""
        return self._node.create_timer(period_s, logging_errors(self._node, callback), clock=self._steady)

    def wait_for(self, future: Future) -> None:
        """Hold the clock until a service has answered; in real time do nothing."""

    def destroy(self, entity: Any) -> None:
        """Destroy a publisher, a subscription or a timer."""
        node = self._node
        if isinstance(entity, SigningPublisher):
            node.destroy_publisher(entity.publisher)
        elif isinstance(entity, Publisher):
            node.destroy_publisher(entity)
        elif isinstance(entity, Subscription):
            node.destroy_subscription(entity)
        else:
            node.destroy_timer(entity)


class LockStepClock:
    """Topics and timers on simulated time; the common part of the participants and of the lock-step server."""

    in_lock_step = True
    priority = 0  # no real-time priority: a node that waits for others must not take the processors from them

    def __init__(self, node: Node) -> None:
        self._node, self._time_s = node, START_S
        self._queues = TopicQueues()
        self._callbacks: dict[str, list[Callable[[Any], None]]] = {}
        self._timers: list[SimTimer] = []
        self.sent: dict[str, int] = {}
        """By absolute topic: messages that this node has sent."""

    def now_s(self) -> float:
        """Return simulated time [s]."""
        return self._time_s

    def clocks(self) -> tuple[float, float]:
        """Return simulated time [s] twice, as the ROS clock and the node's clock."""
        return self._time_s, self._time_s

    def publisher(self, kind: type, topic: str, profile: QoSProfile, **options: Any) -> CountedPublisher:
        """Return a publisher whose messages are counted."""
        profile = lock_step_profile(profile)
        return CountedPublisher(self._node.create_publisher(kind, topic, profile, **options), self.sent)

    def subscribe(
        self, kind: type, topic: str, callback: Callable[[Any], None], profile: QoSProfile, **options: Any
    ) -> TopicSubscription:
        """Call back for each message of a topic, in the node's stage."""
        absolute = self._node.resolve_topic_name(topic)
        options.pop("keeps", None)  # of authentication, which lock-step lacks
        if absolute not in self._callbacks:  # never destroyed: the count of messages must not restart
            self._callbacks[absolute] = []
            self._queues.open(absolute)

            def enqueue(message: Any) -> None:
                self._queues.put(absolute, message)
                self._try()

            enqueue_safely = logging_errors(self._node, enqueue)
            self._node.create_subscription(kind, absolute, enqueue_safely, lock_step_profile(profile), **options)
        subscription = TopicSubscription(absolute, logging_errors(self._node, callback))
        self._callbacks[absolute].append(subscription.callback)
        return subscription

    def subscribe_outside(
        self, kind: type, topic: str, callback: Callable[[Any], None], profile: QoSProfile, **options: Any
    ) -> Subscription:
        """Call back immediately for each message of a topic from outside the fleet: a stop waits for no stage."""
        return self._node.create_subscription(kind, topic, logging_errors(self._node, callback), profile, **options)

    def every(self, period_s: float, callback: Callable[[], None]) -> TimerHandle:
        """Call back at a period of simulated time [s]."""
        timer = SimTimer(period_s, logging_errors(self._node, callback), self._time_s)
        self._timers.append(timer)
        return timer

    def destroy(self, entity: Any) -> None:
        """Destroy a publisher, a subscription or a timer."""
        if isinstance(entity, SimTimer):
            self._timers.remove(entity)
        elif isinstance(entity, TopicSubscription):
            self._callbacks[entity.topic].remove(entity.callback)
        elif isinstance(entity, Subscription):
            self._node.destroy_subscription(entity)
        else:
            self._node.destroy_publisher(entity.publisher)

    def deliver(self, sent: Mapping[str, int] | None = None) -> None:
        """Call back for the messages that are among those sent; by default for all that have arrived."""
        for topic, message in self._queues.take_all() if sent is None else self._queues.take(sent):
            for callback in tuple(self._callbacks[topic]):
                callback(message)

    def _move_to(self, time_s: float) -> None:
        self._time_s = time_s

    def _run_timers(self) -> None:
        for timer in tuple(self._timers):
            timer.advance(self._time_s)

    def _try(self) -> None:
        """Continue if everything has arrived."""
        raise NotImplementedError


@dataclass(frozen=True)
class TopicSubscription:
    """One callback of a topic in lock-step."""

    topic: str  # absolute
    callback: Callable[[Any], None]


class CountedPublisher:
    """A publisher that counts its messages."""

    def __init__(self, publisher: Publisher, sent: dict[str, int]) -> None:
        self.publisher, self._sent = publisher, sent
        self.topic_name = publisher.topic_name

    def publish(self, message: Any) -> None:
        """Send a message."""
        self._sent[self.topic_name] = self._sent.get(self.topic_name, 0) + 1
        self.publisher.publish(message)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.publisher, name)


class LockStepParticipant(LockStepClock):
    """The clock of a node that acts when the plant starts the node's stage."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self._label = node.get_fully_qualified_name().lstrip("/")
        self._stage = stage_of(self._label)
        self._start: StageStart | None = None
        self._acted = False
        self._pending: set[Future] = set()
        self._done = node.create_publisher(UInt8MultiArray, DONE_TOPIC, lock_step_profile())
        on_start = logging_errors(node, self._on_start)
        node.create_subscription(UInt8MultiArray, STAGE_TOPIC, on_start, lock_step_profile())
        self._answer(-1)

    def wait_for(self, future: Future) -> None:
        """Answer the plant only after a service has answered."""
        self._pending.add(future)

        def release(_: Future) -> None:
            self._pending.discard(future)
            self._finish()

        future.add_done_callback(release)

    def _on_start(self, message: UInt8MultiArray) -> None:
        start = StageStart.decode(envelope_bytes(message))
        if start.stage == self._stage:
            self._start, self._acted = start, False
            self._try()

    def _try(self) -> None:
        if self._start is None or self._acted or not self._queues.is_complete(self._start.sent):
            return
        self._acted = True
        self._move_to(self._start.time_s)
        self.deliver(self._start.sent)
        self._run_timers()
        self._finish()

    def _finish(self) -> None:
        if self._start is None or not self._acted or self._pending:
            return
        number, self._start = self._start.number, None
        self._answer(number)

    def _answer(self, number: int) -> None:
        self._done.publish(envelope_message(StageDone(self._label, number, dict(self.sent)).encode()))


NodeClock = RealTimeClock | LockStepParticipant


def secure(node: Node, clock: RealTimeClock | LockStepClock, fleet: Fleet, backend: str) -> None:
    """Sign and verify the messages of a keyed fleet from now on; do nothing if the fleet has no key.

    Lock-step, which exists only in simulation on one machine, has no authentication.

    Raises:
        FleetKeyError: the key cannot be read.
    """
    if isinstance(clock, RealTimeClock) and clock.authentication is None:
        clock.authentication = authentication_of(node, fleet, backend, time.monotonic)
    elif fleet.key_file is not None:
        load_key(fleet.key_file)  # one that cannot be read is refused there, too


def backend_of(node: Node) -> str:
    """Declare the parameter `backend` and return it."""
    return parameter(node, "backend", "hw", f"what moves the robots: {' or '.join(BACKENDS)}")


def is_lock_step(node: Node) -> bool:
    """Declare the parameter `lock_step` and return it."""
    return parameter(node, "lock_step", False, "lock-step on simulated time with the plant; false: real time")


def clock_of(node: Node) -> NodeClock:
    """Return the clock of a node, by its parameter `lock_step`."""
    return LockStepParticipant(node) if is_lock_step(node) else RealTimeClock(node)
