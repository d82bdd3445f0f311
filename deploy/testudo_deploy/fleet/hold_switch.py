"""The hold-to-run switch of a fleet: a button of a joystick, in the fleet file or as an option; pure."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from typing import Any

from testudo_hardware.errors import TestudoError
from testudo_hardware.strict_files import OPTIONAL

SILENT_S = 0.5
LEAST_SILENT_S, MOST_SILENT_S = 0.2, 2.0  # a joystick of joy_node repeats its state 20 times a second
_MOST_BUTTON = 63
_TOPIC = re.compile(r"/[A-Za-z_]\w*(/[A-Za-z_]\w*)*")


@dataclass(frozen=True)
class HoldSwitch:
    """The button that must be held for robots to move."""

    topic: str  # of `sensor_msgs/Joy`, from the root
    button: int  # its place in `buttons`
    silent_s: float = field(default=SILENT_S, metadata=OPTIONAL)
    """Without a message of the joystick for this time, robots stop [s]."""


def topic_or_refuse(topic: str, where: str, error: type[TestudoError] = TestudoError) -> str:
    """Return a topic of a joystick.

    Raises:
        TestudoError: it is no absolute name, as an ``error``.
    """
    if not _TOPIC.fullmatch(topic):
        raise error(f"{where}: found {topic!r}, expected a topic from the root, such as /joy")
    return topic


def check_hold_switch(entry: HoldSwitch | None, where: str, error: type[TestudoError]) -> HoldSwitch | None:
    """Return the entry ``hold_to_run`` of a fleet file if all values are in range.

    Raises:
        TestudoError: a topic that is no absolute name, or a number out of range, as an ``error``.
    """
    if entry is None:
        return None
    topic_or_refuse(entry.topic, f"{where}.topic", error)
    if not 0 <= entry.button <= _MOST_BUTTON:
        raise error(f"{where}.button: found {entry.button}, expected 0 to {_MOST_BUTTON}")
    if not LEAST_SILENT_S <= entry.silent_s <= MOST_SILENT_S:  # NaN, too
        raise error(f"{where}.silent_s: found {entry.silent_s:g} s, expected {LEAST_SILENT_S} to {MOST_SILENT_S:g} s")
    return entry


def hold_option(text: str) -> HoldSwitch | None:
    """Read an option: `/joy:4`, or nothing.

    Raises:
        TestudoError: neither of these.
    """
    if not text:
        return None
    topic, _, button = text.rpartition(":")
    if not _TOPIC.fullmatch(topic) or not button.isdecimal():
        raise TestudoError(f"hold_to_run: found {text!r}, expected TOPIC:NUMBER of a joystick's button, such as /joy:4")
    return check_hold_switch(HoldSwitch(topic, int(button)), "hold_to_run", TestudoError)


def chosen_switch(of_fleet: HoldSwitch | None, text: str) -> HoldSwitch | None:
    """Return the switch of the fleet file, or that of an option; None without one.

    Raises:
        TestudoError: both name one, or the option is none.
    """
    option = hold_option(text)
    if option is not None and of_fleet is not None:
        raise TestudoError(f"hold_to_run: found {text!r} and one in the fleet file, expected one of the two")
    return option or of_fleet


def hold_tables(switch: HoldSwitch | None) -> dict[str, Any]:
    """Return the entry `hold_to_run` of a fleet file; empty without a switch."""
    return {} if switch is None else {"hold_to_run": asdict(switch)}
