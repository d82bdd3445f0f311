"""Proof that the process behind an epoch is alive: a challenge with a random number that it must answer.

Recorded messages have right codes, too. A receiver therefore asks for an answer before it accepts a new epoch: it
publishes its own random number, and only a running process with the key and that epoch can sign it. All processes of a
fleet exchange challenges and answers on `EPOCHS_TOPIC`.
"""

import hmac
import secrets
import struct
from collections.abc import Callable

from testudo_deploy.authentication.fleet_key import FleetKey

EPOCHS_TOPIC = "/fleet/epochs"
"""`std_msgs/UInt8MultiArray`: challenges and answers of the processes of a keyed fleet."""
_FORM = struct.Struct("<B8s16s")
_CODE_BYTES = 16
_CHALLENGE, _ANSWER = 1, 2
_REPEAT_S = 0.05  # between two challenges of one epoch


class ProcessEpochs:
    """The epoch of this process, and the epochs of others that have proven themselves to it."""

    def __init__(self, key: FleetKey, send: Callable[[bytes], None]) -> None:
        """Make a new epoch; ``send`` publishes a challenge or an answer."""
        self.own = secrets.token_bytes(8)
        self._key, self._send = key.derived("epoch"), send
        self._number = secrets.token_bytes(16)
        self._proven = {self.own}
        self._asked_s: dict[bytes, float] = {}
        """When each epoch was challenged last."""
        self.on_proof: list[Callable[[], None]] = []
        """Called after each new proof."""

    def is_proven(self, epoch: bytes, now_s: float) -> bool:
        """Return whether a process has proven itself; otherwise challenge it."""
        if epoch in self._proven:
            return True
        if now_s - self._asked_s.get(epoch, -_REPEAT_S) >= _REPEAT_S:
            self._asked_s = {epoch: asked_s for epoch, asked_s in self._asked_s.items() if now_s - asked_s < _REPEAT_S}
            self._asked_s[epoch] = now_s
            self._send(self._signed(_CHALLENGE, epoch, self._number))
        return False

    def hear(self, data: bytes) -> None:
        """Take a challenge or an answer; what is not signed with the key, or not for this process, is ignored."""
        if len(data) != _FORM.size + _CODE_BYTES:
            return
        kind, epoch, number = _FORM.unpack_from(data)
        if not hmac.compare_digest(data, self._signed(kind, epoch, number)):
            return
        if kind == _CHALLENGE and epoch == self.own:
            self._send(self._signed(_ANSWER, epoch, number))
        elif kind == _ANSWER and number == self._number and epoch not in self._proven:
            self._proven.add(epoch)
            for call in self.on_proof:
                call()

    def _signed(self, kind: int, epoch: bytes, number: bytes) -> bytes:
        words = _FORM.pack(kind, epoch, number)
        return words + hmac.digest(self._key, words, "sha256")[:_CODE_BYTES]
