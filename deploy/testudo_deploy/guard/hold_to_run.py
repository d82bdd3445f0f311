"""The hold-to-run switch of a fleet as its guards see it: robots may move only while somebody holds it; pure.

The station's emergency stop reads the switch and sends its state with the heartbeat. Letting go is no emergency stop:
who holds the switch again permits motion (hold-to-run and enabling control of IEC 60204-1, enabling device of ISO
10218-1). After silence, and at the start, the switch must be seen released first, so that one that is jammed or tied
down permits nothing.
"""

from __future__ import annotations

HELD, RELEASED = "held", "released"
"""Words of a heartbeat that carries the switch; the number of the joystick's message follows them."""
UNHEARD = "unheard"


def beat_text(number: int, word: str, message: int) -> str:
    """Return the content of a heartbeat with the state of the switch; ``message`` counts the joystick's messages."""
    return f"{number} {word} {message}"


class HoldToRun:
    """The switch of one guard; times are seconds on one clock that the caller injects."""

    def __init__(self, silent_s: float) -> None:
        """Begin unheard; a message of the joystick counts for ``silent_s``."""
        self._silent_s = silent_s
        self._message = ""
        """Number of the joystick's newest message."""
        self._held_s: float | None = None
        self._was_released = False
        """It was seen released, and has not been silent since it was held."""

    @property
    def held_s(self) -> float | None:
        """Return when the newest message came in which it was held; None while it is not held."""
        return self._held_s

    def hear(self, content: str, now_s: float) -> None:
        """Take a heartbeat; one that repeats a message of the joystick, or carries no switch, changes nothing."""
        self.is_held(now_s)  # a silence that nobody has noticed yet
        _, _, state = content.partition(" ")
        word, _, message = state.partition(" ")
        if word not in (HELD, RELEASED) or message in ("", self._message):
            return
        self._message = message
        if word == RELEASED:
            self._was_released, self._held_s = True, None
        elif self._was_released:
            self._held_s = now_s

    def is_held(self, now_s: float) -> bool:
        """Return whether robots may move."""
        if self._held_s is not None and now_s - self._held_s >= self._silent_s:
            self._held_s, self._was_released = None, False
        return self._held_s is not None
