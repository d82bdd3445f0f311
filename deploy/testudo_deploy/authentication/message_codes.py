"""Authentication codes of messages: who holds the key sent it, on this topic, in this process, and only once.

A code follows the serialised message, where readers of plain ROS ignore it:

    message | 0 to 3 zero bytes | epoch (8) | sequence (8) | HMAC-SHA256, shortened (16) | mark, number of zeros (4)

The epoch is random and names the sending process; a receiver accepts a new one only after the process has proven that
it is alive (`process_epochs.py`). Sequence numbers increase within an epoch and a topic: no message counts twice.
"""

import hmac
import struct
from itertools import count

from testudo_deploy.authentication.fleet_key import FleetKey
from testudo_deploy.authentication.process_epochs import ProcessEpochs
from testudo_hardware.errors import TestudoError

_MARK = b"TFK"
_NUMBERS = struct.Struct("<8sQ")
_CODE_BYTES = 16
_TRAILER_BYTES = _NUMBERS.size + _CODE_BYTES + len(_MARK) + 1
_ALIGNMENT = 4  # RTPS pads a payload to a multiple of 4 bytes
_ENDED_S = 0.5
"""A process has ended if none of its messages of a topic arrived for this time [s]; another may follow then."""


class AuthenticationError(TestudoError):
    """A message is refused; ``code`` is stable: unsigned, forged, unproven, replayed or second_process."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


def _code(key: bytes, topic: str, signed: bytes) -> bytes:
    return hmac.digest(key, topic.encode() + b"\0" + signed, "sha256")[:_CODE_BYTES]


class MessageSigner:
    """Adds codes to the messages of one topic that this process sends."""

    def __init__(self, key: FleetKey, topic: str, epochs: ProcessEpochs) -> None:
        """Begin with message 1; ``topic`` is the absolute name."""
        self._key, self._topic, self._epoch = key.derived("message"), topic, epochs.own
        self._sequence = count(1)

    def sign(self, message: bytes) -> bytes:
        """Return a serialised message with its code."""
        padding = -len(message) % _ALIGNMENT
        numbers = _NUMBERS.pack(self._epoch, next(self._sequence))
        signed = b"".join((message, bytes(padding), numbers, _MARK, bytes([padding])))
        return b"".join((signed[:-4], _code(self._key, self._topic, signed), signed[-4:]))


class MessageVerifier:
    """Checks the codes of the messages of one topic, for one subscription."""

    def __init__(self, key: FleetKey, topic: str, epochs: ProcessEpochs) -> None:
        """Begin without any message; ``topic`` is the absolute name."""
        self._key, self._topic, self._epochs = key.derived("message"), topic, epochs
        self._epoch, self._sequence, self._received_s = b"", 0, 0.0
        self._ended: set[bytes] = set()

    def verify(self, data: bytes, now_s: float) -> bytes:
        """Return the serialised message of a received one.

        Args:
            data: what arrived.
            now_s: a steady clock.

        Raises:
            AuthenticationError: it has no code, a code of another key or topic, of a process that has not proven
                itself, has ended or is a second one, or it is not newer than the last.
        """
        message, epoch, sequence = self._checked(data)
        if epoch != self._epoch:
            self._begin(epoch, now_s)
        elif sequence <= self._sequence:
            raise AuthenticationError("replayed", f"{self._topic}: message {sequence} arrived again or too late")
        self._sequence, self._received_s = sequence, now_s
        return message

    def _checked(self, data: bytes) -> tuple[bytes, bytes, int]:
        """Return message, epoch and sequence, if the code is right."""
        split = split_trailer(data)
        if split is None:
            raise AuthenticationError(
                "unsigned", f"{self._topic}: a message without authentication code; its sender has no fleet key"
            )
        message, trailer = split
        numbers, code = trailer[: _NUMBERS.size], trailer[_NUMBERS.size : -4]
        padded = data[: len(data) - _TRAILER_BYTES]
        if not hmac.compare_digest(code, _code(self._key, self._topic, b"".join((padded, numbers, trailer[-4:])))):
            raise AuthenticationError("forged", f"{self._topic}: a message with a wrong code, or of another fleet key")
        epoch, sequence = _NUMBERS.unpack(numbers)
        return message, epoch, sequence

    def _begin(self, epoch: bytes, now_s: float) -> None:
        """Accept the first message of a process, or refuse it."""
        if epoch in self._ended:
            raise AuthenticationError("replayed", f"{self._topic}: a message of a process that has ended")
        if not self._epochs.is_proven(epoch, now_s):
            raise AuthenticationError("unproven", f"{self._topic}: a message of a process that is not known yet")
        if self._epoch and now_s - self._received_s < _ENDED_S:
            raise AuthenticationError("second_process", f"{self._topic}: two processes of the fleet publish")
        self._ended.add(self._epoch)
        self._epoch = epoch


def split_trailer(data: bytes) -> tuple[bytes, bytes] | None:
    """Return message and trailer of a message with a code, unchecked; None if it has none."""
    if len(data) < _TRAILER_BYTES or data[-4:-1] != _MARK or data[-1] >= _ALIGNMENT:
        return None
    end = len(data) - _TRAILER_BYTES - data[-1]
    return (data[:end], data[-_TRAILER_BYTES:]) if end >= 0 else None
