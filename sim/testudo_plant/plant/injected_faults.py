"""What may be broken in a robot of the plant, for tests: weak brakes, blocked wheels, a dead radio, a low battery."""

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
    """What is broken in one robot."""

    braking_share: float = 1.0
    """Deceleration over that of a sound robot, above 0, at most 1; a wheeled robot turns as before."""
    blocked: tuple[str, ...] = ()
    """``left`` and ``right`` of the wheels, or ``body`` of a robot without wheels."""
    radio_lost: bool = False
    """Nothing that is sent reaches a drone."""
    battery_v: float | None = None
    """What the battery of a drone is taken to show, whatever was flown; None for the truth."""

    def updated(self, values: Any, spec: RobotSpec, where: str) -> Self:
        """Return these faults with those that the keys of ``values`` name; ``where`` begins the sentence of an error.

        Raises:
            TestudoError: no mapping, an unknown key, or a value out of range.
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
    """Return what can be blocked in a robot."""
    return ("left", "right") if spec.kind == DIFFERENTIAL_DRIVE else ("body",)


def read_faults(text: str, faults: RobotFaults, spec: RobotSpec, where: str) -> RobotFaults:
    """Return ``faults`` updated by JSON, for instance ``{"blocked": ["left"]}``; see `RobotFaults.updated`.

    Raises:
        TestudoError: it is no JSON or does not hold.
    """
    return faults.updated(_parsed(text, where), spec, where)


def read_start_faults(text: str, specs: Mapping[str, RobotSpec], where: str) -> dict[str, RobotFaults]:
    """Return the faults from the start by robot; empty text is none, else ``{"r0": {"braking_share": 0.7}}``.

    Raises:
        TestudoError: it is no JSON or does not hold, or a robot is not known.
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
