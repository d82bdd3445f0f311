"""Faults that tests inject into the plant: weak brakes, blocked wheels, low battery, and the radio to drones."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np

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
    blocked: tuple[str, ...] = ()  # `left` and `right` wheels, or the `body` of a robot without wheels
    radio_lost: bool = False  # no set-point or request reaches the drone
    battery_v: float | None = None  # reported battery voltage of a drone; None for the simulated one

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
        # parts of a robot that can be blocked
        parts = ("left", "right") if spec.kind == DIFFERENTIAL_DRIVE else ("body",)
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


_GAP_S = 0.1  # shortest time between two bursts
_ALL = 0.5
"""Probability that a burst affects all drones; else it affects each drone with the same probability."""


@dataclass(frozen=True)
class RadioModel:
    """Losses and additional delays of the radio.

    Raises:
        TestudoError: a share outside 0 to 1, or a time that is negative or out of order.
    """

    loss: float = 0.0  # probability of loss of each set-point, independently
    burst_s: float = 0.0  # duration of bursts of total loss; 0 for none
    every_s: float = 1.0  # mean time between bursts, exponentially distributed, at least 0.1 s
    late_s: tuple[float, float] = (0.0, 0.0)  # range of the delay beyond that of the robot; uniform

    def __post_init__(self) -> None:
        low, high = self.late_s
        sound = 0 <= self.loss <= 1 and 0 <= self.burst_s < np.inf and 0 < self.every_s < np.inf
        if not (sound and 0 <= low <= high < np.inf):
            raise TestudoError(
                f"radio: found loss {self.loss}, bursts of {self.burst_s} s each {self.every_s} s and "
                f"{low} to {high} s late, expected a share, times of 0 or more, and low <= high"
            )


class SetPointRadio:
    """The radio of a team on the clock of the plant, with its own random numbers."""

    def __init__(self, model: RadioModel, count: int, rng: np.random.Generator, start_s: float) -> None:
        """Start without a burst."""
        self._model, self._count, self._rng = model, count, rng
        self._dead = np.zeros(count, bool)
        self._deaf = np.zeros(count, bool)
        self._begin_s = self._end_s = start_s
        self.bursts = self.sent = self.lost = 0
        """Numbers of bursts, of set-points sent, and of set-points lost."""
        self._draw_burst(start_s)

    def kill(self, index: int, dead: bool) -> None:
        """Block (or unblock) the radio to a drone; for tests."""
        self._dead[index] = dead

    def dark(self, index: int, now_s: float) -> bool:
        """Return whether a drone receives nothing at ``now_s`` [s], which never decreases."""
        while self._model.burst_s and now_s >= self._end_s:
            self.bursts += 1
            self._draw_burst(self._end_s)
        in_burst = bool(self._model.burst_s) and now_s >= self._begin_s and self._deaf[index]
        return bool(self._dead[index] or in_burst)

    def carry(self, index: int, now_s: float) -> float | None:
        """Return the additional delay [s] of a set-point sent at ``now_s``; None if it is lost."""
        self.sent += 1
        if self.dark(index, now_s) or self._rng.uniform() < self._model.loss:
            self.lost += 1
            return None
        return float(self._rng.uniform(*self._model.late_s))

    def _draw_burst(self, after_s: float) -> None:
        self._begin_s = after_s + max(_GAP_S, self._rng.exponential(self._model.every_s))
        self._end_s = self._begin_s + self._model.burst_s
        some = self._rng.uniform(size=self._count) < _ALL
        self._deaf = some | (self._rng.uniform() < _ALL)


def read_radio(text: str, where: str) -> RadioModel:
    """Return the radio model from JSON such as ``{"loss": 0.05, "burst_s": 0.1}``; empty text is a perfect radio.

    Raises:
        TestudoError: not JSON, an unknown key, or an invalid value.
    """
    if not text.strip():
        return RadioModel()
    known, values = [entry.name for entry in fields(RadioModel)], _parsed(text, where)
    if not isinstance(values, dict) or not set(values) <= set(known):
        raise TestudoError(f"{where}: found {text[:80]!r}, expected a mapping with keys from {', '.join(known)}")
    late = values.pop("late_s", [0.0, 0.0])
    numbers = [*values.values(), *(late if isinstance(late, list) and len(late) == 2 else [None])]
    if not all(isinstance(one, int | float) for one in numbers):
        raise TestudoError(f"{where}: found {text[:80]!r}, expected numbers, and for late_s two of them")
    try:
        return RadioModel(**values, late_s=tuple(late))
    except TestudoError as error:
        raise TestudoError(f"{where}: {error}") from error
