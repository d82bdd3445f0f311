"""A button of the emergency stop: a USB key device (Linux input events), or a button of a joystick message; pure reads.

A device that is unplugged counts as pressed.
"""

import array
import contextlib
import fcntl
import os
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass

from testudo_hardware.errors import TestudoError

_EVENT = struct.Struct("@llHHi")  # struct input_event of linux/input.h: time, type, code, value
_KEY, _UP = 1, 0
_KEYS_BYTES = 96
_READ_KEYS = 0x80004518 | (_KEYS_BYTES << 16)  # EVIOCGKEY: a bit for each key that is down now
_MOST_EVENTS = 64
_TOPIC = re.compile(r"(/?[A-Za-z_][\w/]*):(\d+)")


@dataclass(frozen=True)
class ButtonChoice:
    """Where the button is: a device file, or a topic of `sensor_msgs/Joy` with the number of its button."""

    device: str = ""
    topic: str = ""
    index: int = 0


def button_choice(text: str) -> ButtonChoice | None:
    """Read a choice: `/dev/input/event3`, `/joy:1` or nothing.

    Raises:
        TestudoError: neither of these.
    """
    if not text:
        return None
    if text.startswith("/dev/"):
        return ButtonChoice(device=text)
    found = _TOPIC.fullmatch(text)
    if found is None:
        raise TestudoError(f"button: found {text!r}, expected a device such as /dev/input/event3, or TOPIC:NUMBER")
    return ButtonChoice(topic=found[1], index=int(found[2]))


class ButtonDevice:
    """Every key of one input device presses the stop; look at it several times a second."""

    def __init__(self, path: str, press: Callable[[], None], let_go: Callable[[], None]) -> None:
        """Open the device.

        ``press`` is called for each key that goes down, and when the device is lost; ``let_go`` once no key is down.

        Raises:
            TestudoError: it cannot be opened.
        """
        self._path, self._press, self._let_go = path, press, let_go
        self._down: set[int] = set()
        self._file: int | None = None
        try:
            self._open()
        except OSError as error:
            hint = "is it plugged in, and may this user read it?"
            raise TestudoError(f"button: {path}: {error.strerror}; {hint}") from error

    def look(self) -> None:
        """Read what has happened since the last look."""
        if self._file is None:
            with contextlib.suppress(OSError):
                self._open()
            return
        try:
            data = os.read(self._file, _MOST_EVENTS * _EVENT.size)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lose()
            return
        for _, _, kind, code, value in _EVENT.iter_unpack(data[: len(data) // _EVENT.size * _EVENT.size]):
            if kind == _KEY:
                self._take(code, value)

    def _take(self, code: int, value: int) -> None:
        if value == _UP:
            self._down.discard(code)
            if not self._down:
                self._let_go()
            return
        self._down.add(code)
        self._press()

    def _lose(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
        self._press()

    def _open(self) -> None:
        self._file = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        keys = array.array("B", bytes(_KEYS_BYTES))
        self._down = set()
        with contextlib.suppress(OSError):  # not a device of keys, as in tests
            fcntl.ioctl(self._file, _READ_KEYS, keys)
            self._down = {8 * place + bit for place, byte in enumerate(keys) for bit in range(8) if byte >> bit & 1}
        if self._down:
            self._press()
        else:
            self._let_go()
