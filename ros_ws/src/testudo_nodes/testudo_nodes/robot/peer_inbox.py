"""Peer messages between two ticks of a robot: decoding them together takes half the time."""

from collections import deque
from collections.abc import Callable

from testudo_deploy.contract.messages import EnvelopeError, PeerMessage
from testudo_nodes.common.messages import raw_envelope_bytes

_UNREAD = 1000  # more than all peer messages between two ticks; bounds the memory that a flood of messages takes


class PeerInbox:
    """Messages since the last tick with their times of arrival; if there are too many, the newest."""

    def __init__(self, now_s: Callable[[], float], refuse: Callable[[Exception], None]) -> None:
        """Begin empty; ``refuse`` receives the error of each message that cannot be read."""
        self._now_s, self._refuse = now_s, refuse
        self._unread: deque[tuple[bytes, float]] = deque(maxlen=_UNREAD)

    def on_peer(self, data: bytes) -> None:
        """Take a serialised message."""
        self._unread.append((data, self._now_s()))

    def read(self, take: Callable[[PeerMessage, float], object]) -> None:
        """Decode all, and pass them on with their times of arrival."""
        unread = tuple(self._unread)
        self._unread.clear()
        for data, received_s in unread:
            try:
                take(PeerMessage.decode(raw_envelope_bytes(data)), received_s)
            except EnvelopeError as error:
                self._refuse(error)
