"""Faults that tests inject into robots of the plant: weak brakes, blocked wheels, radio loss, low battery."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from testudo_hardware.errors import TestudoError
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import RobotSpec

_KEYS = ("braking_share", "blocked", "radio_lost", "battery_v")
_MOST_V = 100.0


@dataclass(frozen=True)
class RobotFaults:
    """Injected faults of one robot."""

    braking_share: float = 1.0
    """Deceleration relative to nominal, in (0, 1]; turning of a wheeled robot is not affected."""
    blocked: tuple[str, ...] = ()
    """``left`` and ``right`` wheels, or the ``body`` of a robot without wheels."""
    radio_lost: bool = False
    """No set-point or request reaches the drone."""
    battery_v: float | None = None
    """Reported battery voltage of a drone; None for the simulated one."""

    def updated(self, values: Any, spec: RobotSpec, where: str) -> Self:
        """Return these faults updated by a mapping ``values``; ``where`` is the prefix of error messages.

        Raises:
            TestudoError: not a mapping, an unknown key, or a value out of range.
        """
        if not isinstance(values, Mapping) or not set(values) <= set(_KEYS):
            raise TestudoError(f"{where}: found {values!r}, expected a mapping with keys from {', '.join(_KEYS)}")
        share, blocked = values.get("braking_share", self.braking_share), values.get("blocked", self.blocked)
        if not (isinstance(share, int | float) and 0 < share <= 1):
            raise TestudoError(f"{where}: braking_share: found {share!r}, expected a number above 0, at most 1")
        parts = blockable(spec)
        if not isinstance(blocked, list | tuple) or not all(part in parts for part in blocked):
            raise TestudoError(f"{where}: blocked: found {blocked!r}, expected a list of {', '.join(parts)}")
        radio_lost, battery_v = values.get("radio_lost", self.radio_lost), values.get("battery_v", self.battery_v)
        if not isinstance(radio_lost, bool):
            raise TestudoError(f"{where}: radio_lost: found {radio_lost!r}, expected true or false")
        if battery_v is not None and not (isinstance(battery_v, int | float) and 0 < battery_v < _MOST_V):
            raise TestudoError(f"{where}: battery_v: found {battery_v!r}, expected volts above 0, or null")
        return replace(
            self,
            braking_share=float(share),
            blocked=tuple(sorted(set(blocked))),
            radio_lost=radio_lost,
            battery_v=battery_v,
        )


def blockable(spec: RobotSpec) -> tuple[str, ...]:
    """Return the parts of a robot that can be blocked."""
    return ("left", "right") if spec.kind == DIFFERENTIAL_DRIVE else ("body",)


def read_faults(text: str, faults: RobotFaults, spec: RobotSpec, where: str) -> RobotFaults:
    """Return ``faults`` updated by JSON, for instance ``{"blocked": ["left"]}``; see `RobotFaults.updated`.

    Raises:
        TestudoError: not JSON, or invalid values.
    """
    return faults.updated(_parsed(text, where), spec, where)


def read_start_faults(text: str, specs: Mapping[str, RobotSpec], where: str) -> dict[str, RobotFaults]:
    """Return the initial faults by robot from JSON such as ``{"r0": {"braking_share": 0.7}}``; empty text is none.

    Raises:
        TestudoError: not JSON, invalid values, or an unknown robot.
    """
    if not text.strip():
        return {}
    values = _parsed(text, where)
    if not isinstance(values, Mapping) or not set(values) <= set(specs):
        raise TestudoError(f"{where}: found {values!r}, expected a mapping by robot from {', '.join(specs)}")
    return {name: RobotFaults().updated(one, specs[name], f"{where}: {name}") for name, one in values.items()}


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TestudoError(f"{where}: found {text[:80]!r}, expected JSON: {error}") from error
