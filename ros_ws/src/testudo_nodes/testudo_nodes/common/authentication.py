"""Publishers and subscriptions of a keyed fleet; `testudo_deploy.authentication` makes and checks the codes."""

from collections import deque
from collections.abc import Callable
from typing import Any

from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.serialization import deserialize_message, serialize_message
from std_msgs.msg import UInt8MultiArray

from testudo_deploy.authentication.fleet_key import FleetKey, load_key
from testudo_deploy.authentication.message_codes import AuthenticationError, MessageSigner, MessageVerifier
from testudo_deploy.authentication.process_epochs import EPOCHS_TOPIC, ProcessEpochs
from testudo_deploy.fleet.fleet import Fleet
from testudo_deploy.launch.signed_topics import signed_topics
from testudo_nodes.common.messages import envelope_bytes, envelope_message
from testudo_nodes.common.node_runner import WARN_EVERY_S, logging_errors
from testudo_nodes.common.qos import OFFERED

_HELD = 1000  # messages of a topic that wait for the proof of their process


def authentication_of(node: Node, fleet: Fleet, backend: str, now_s: Callable[[], float]) -> "Authentication | None":
    """Return the authentication of a node in a keyed fleet, by `signed_topics` and a steady clock; None without a key.

    Raises:
        FleetKeyError: the key cannot be read.
    """
    if fleet.key_file is None:
        return None
    return Authentication(node, load_key(fleet.key_file), signed_topics(fleet, backend), now_s)


class Authentication:
    """Signs and verifies the messages of one node."""

    def __init__(self, node: Node, key: FleetKey, signed: frozenset[str], now_s: Callable[[], float]) -> None:
        """Join the exchange of epochs.

        Args:
            node: the node.
            key: the fleet key.
            signed: absolute names of the topics that carry codes.
            now_s: a steady clock.
        """
        self._node, self._key, self._signed, self._now_s = node, key, signed, now_s
        self._signers: dict[str, MessageSigner] = {}
        self.refused = 0
        """Number of refused messages."""
        profile = OFFERED["epochs"]
        publisher = node.create_publisher(UInt8MultiArray, EPOCHS_TOPIC, profile)
        self._epochs = ProcessEpochs(key, lambda data: publisher.publish(envelope_message(data)))

        def hear(message: UInt8MultiArray) -> None:
            self._epochs.hear(envelope_bytes(message))

        node.create_subscription(UInt8MultiArray, EPOCHS_TOPIC, logging_errors(node, hear), profile)

    def signs(self, topic: str) -> bool:
        """Return whether messages of a topic, by any name, carry codes."""
        return self._node.resolve_topic_name(topic) in self._signed

    def signing(self, publisher: Publisher) -> "SigningPublisher":
        """Return a publisher that signs. All publishers of a topic count its messages together."""
        topic = publisher.topic_name
        if topic not in self._signers:
            self._signers[topic] = MessageSigner(self._key, topic, self._epochs)
        return SigningPublisher(publisher, self._signers[topic])

    def verifying(
        self, kind: type, topic: str, callback: Callable[[Any], None], *, raw: bool = False, keeps: bool = False
    ) -> Callable[[bytes], None]:
        """Return a callback for raw messages that passes on those with a right code.

        Args:
            kind: type of the message.
            topic: its topic, by any name.
            callback: receives the message, or its bytes without the code if ``raw``.
            raw: see ``callback``.
            keeps: messages of a process that has not proven itself yet wait for the proof; otherwise they are dropped.
        """
        verifier = MessageVerifier(self._key, self._node.resolve_topic_name(topic), self._epochs)
        held: deque[bytes] = deque(maxlen=_HELD)

        def verify(data: bytes) -> None:
            try:
                message = verifier.verify(data, self._now_s())
            except AuthenticationError as error:
                if keeps and error.code == "unproven":
                    held.append(data)
                elif error.code != "unproven":
                    self.refused += 1
                    self._node.get_logger().warning(f"refused: {error}", throttle_duration_sec=WARN_EVERY_S)
                return
            callback(message if raw else deserialize_message(message, kind))

        def release() -> None:
            waiting = tuple(held)
            held.clear()
            for data in waiting:
                verify(data)

        if keeps:
            self._epochs.on_proof.append(release)
        return verify


class SigningPublisher:
    """A publisher whose messages carry authentication codes."""

    def __init__(self, publisher: Publisher, signer: MessageSigner) -> None:
        self.publisher, self._signer = publisher, signer

    def publish(self, message: Any) -> None:
        """Send a message, or a serialised one."""
        data = message if isinstance(message, bytes) else serialize_message(message)
        self.publisher.publish(self._signer.sign(data))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.publisher, name)
