"""Hears what the pose source of one robot says; what it means is up to `testudo_deploy.fleet.pose_source`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from testudo_deploy.fleet.fleet import FleetRobot
from testudo_deploy.fleet.pose_source import TRANSFORM_TYPE, PoseSourceReader, SensedTopic
from testudo_hardware.links.topics import Measurement
from testudo_hardware.links.wire import WireError
from testudo_nodes.common.message_definitions import message_class


class Listen(Protocol):
    """Subscribes for a node, which ends what it began."""

    def __call__(self, kind: type, topic: str, callback: Callable[[Any], None], quality: str) -> None:
        """Call back for each message; ``quality`` is a key of `qos.REQUESTED`."""


class PoseSubscription:
    """Where one robot is, as its pose source tells it."""

    def __init__(self, clocks: Callable[[], tuple[float, float]], robot: FleetRobot, *, of_peer: bool = False) -> None:
        """Look up what there is to hear.

        Args:
            clocks: the ROS clock and the clock of the node that hears [s], at one moment.
            robot: whose poses.
            of_peer: it is another robot than the node's: its poses are handed on as they come, without what only the
                robot itself knows.

        Raises:
            TestudoError: a message type is not installed.
        """
        self._clocks, self._sensor, self._of_peer = clocks, PoseSourceReader(robot), of_peer
        self._topics = [
            (message_class(topic.type), topic.absolute if of_peer else topic.name, topic)
            for topic in self._sensor.topics
        ]
        self._corrected = bool(self._sensor.transform_topic) and not of_peer
        self._transforms = message_class(TRANSFORM_TYPE) if self._corrected else None

    def begin(
        self, listen: Listen, take: Callable[[Measurement, float], None], refuse: Callable[[Exception], None]
    ) -> None:
        """Subscribe.

        Args:
            listen: makes a subscription.
            take: is given each place in the fleet's frame, and the time [s] of the node's clock at which it came.
            refuse: is given why a message cannot be read.
        """
        for kind, name, topic in self._topics:
            listen(kind, name, self._pose_callback(topic, take, refuse), topic.kind)
        if self._corrected:
            listen(self._transforms, self._sensor.transform_topic, self._transform_callback(refuse), "tf")

    def _pose_callback(
        self, topic: SensedTopic, take: Callable[[Measurement, float], None], refuse: Callable[[Exception], None]
    ) -> Callable[[Any], None]:
        understand = self._sensor.read if self._of_peer else self._sensor.place

        def on_pose(message: Any) -> None:
            ros_now_s, now_s = self._clocks()
            try:
                reading = understand(topic, message, ros_now_s, now_s)
            except WireError as error:
                refuse(error)
                return
            if reading is not None:
                take(reading, now_s)

        return on_pose

    def _transform_callback(self, refuse: Callable[[Exception], None]) -> Callable[[Any], None]:
        def on_transforms(message: Any) -> None:
            try:
                self._sensor.correct(message.transforms, *self._clocks())
            except WireError as error:
                refuse(error)

        return on_transforms
