"""Publishers and subscriptions of a robot's nodes: of one configuration, and those of a pose source."""

from collections.abc import Callable
from typing import Any, Protocol

from testudo_deploy.fleet.fleet import FleetRobot
from testudo_deploy.fleet.pose_source import TRANSFORM_TYPE, PoseSourceReader, SensedTopic
from testudo_hardware.links.wire import Measurement, WireError
from testudo_nodes.common.clock import NodeClock
from testudo_nodes.common.messages import message_class
from testudo_nodes.common.qos import OFFERED, REQUESTED, mismatch_of_offer, mismatch_of_request


class Subscribe(Protocol):
    """Subscribes for a node, which destroys the subscription."""

    def __call__(self, kind: type, topic: str, callback: Callable[[Any], None], quality: str) -> None:
        """Call back for each message; ``quality`` is a key of `qos.REQUESTED`."""


class Connections:
    """Publishers and subscriptions of one configuration of a node, destroyed together."""

    def __init__(self, clock: NodeClock, on_mismatch: Callable[[str], None]) -> None:
        """Begin without any.

        Args:
            clock: the clock of the node.
            on_mismatch: called with a sentence for each partner whose quality of service does not match.
        """
        self._clock, self._on_mismatch = clock, on_mismatch
        self._destroyers: list[Callable[[], Any]] = []

    def publisher(self, kind: type, topic: str) -> Any:
        """Return a new publisher; the last part of the topic names its quality of service."""
        events = mismatch_of_offer(topic, self._on_mismatch)
        publisher = self._clock.publisher(kind, topic, OFFERED[topic.rpartition("/")[2]], event_callbacks=events)
        self.on_close(lambda: self._clock.destroy(publisher))
        return publisher

    def subscribe(
        self, kind: type, topic: str, callback: Callable[[Any], None], quality: str = "", *, raw: bool = False
    ) -> None:
        """Subscribe to a topic; ``quality`` names its quality of service, by default the last part of the topic."""
        profile = REQUESTED[quality or topic.rpartition("/")[2]]
        events = mismatch_of_request(topic, self._on_mismatch)
        subscription = self._clock.subscribe(kind, topic, callback, profile, raw=raw, event_callbacks=events)
        self.on_close(lambda: self._clock.destroy(subscription))

    def on_close(self, destroy: Callable[[], Any]) -> None:
        """Call a function when the connections are closed."""
        self._destroyers.append(destroy)

    def close(self) -> None:
        """Destroy everything, the newest first."""
        for destroy in reversed(self._destroyers):
            destroy()
        self._destroyers.clear()


class PoseSubscription:
    """Subscriptions to the pose source of one robot; `testudo_deploy.fleet.pose_source` interprets the messages."""

    def __init__(self, clocks: Callable[[], tuple[float, float]], robot: FleetRobot, *, of_peer: bool = False) -> None:
        """Look up the topics.

        Args:
            clocks: the ROS clock and the clock of the subscribing node [s], at one moment.
            robot: the robot whose poses are measured.
            of_peer: the robot is a peer of the node's robot: its poses are passed on as measured, without corrections
                that need data of that robot.

        Raises:
            TestudoError: a message type is not installed.
        """
        self._clocks, self._source, self._of_peer = clocks, PoseSourceReader(robot), of_peer
        self._topics = [
            (message_class(topic.type), topic.absolute if of_peer else topic.name, topic)
            for topic in self._source.topics
        ]
        self._restarts = 0
        corrected = bool(self._source.transform_topic) and not of_peer
        self._transforms = message_class(TRANSFORM_TYPE) if corrected else None

    def begin(
        self,
        subscribe: Subscribe,
        take: Callable[[Measurement, float], None],
        refuse: Callable[[Exception], None],
        lose: Callable[[], None] = lambda: None,
    ) -> None:
        """Subscribe.

        Args:
            subscribe: makes a subscription.
            take: receives each pose in the fleet's frame, and its time of arrival on the node's clock [s].
            refuse: receives the error of each message that cannot be read.
            lose: called when the filter of the robot's localisation drops the place that it had given.
        """
        for kind, name, topic in self._topics:
            subscribe(kind, name, self._pose_callback(topic, take, refuse, lose), topic.kind)
        if self._transforms is not None:
            subscribe(self._transforms, self._source.transform_topic, self._transform_callback(refuse, lose), "tf")

    def _notice(self, lose: Callable[[], None]) -> None:
        """Tell of a place that was dropped since the last message."""
        if self._source.restarts != self._restarts:
            self._restarts = self._source.restarts
            lose()

    def _pose_callback(
        self,
        topic: SensedTopic,
        take: Callable[[Measurement, float], None],
        refuse: Callable[[Exception], None],
        lose: Callable[[], None],
    ) -> Callable[[Any], None]:
        read = self._source.read if self._of_peer else self._source.place

        def on_pose(message: Any) -> None:
            ros_now_s, now_s = self._clocks()
            try:
                reading = read(topic, message, ros_now_s, now_s)
            except WireError as error:
                refuse(error)
                return
            self._notice(lose)
            if reading is not None:
                take(reading, now_s)

        return on_pose

    def _transform_callback(
        self, refuse: Callable[[Exception], None], lose: Callable[[], None]
    ) -> Callable[[Any], None]:
        def on_transforms(message: Any) -> None:
            try:
                self._source.correct(message.transforms, *self._clocks())
            except WireError as error:
                refuse(error)
            self._notice(lose)

        return on_transforms
