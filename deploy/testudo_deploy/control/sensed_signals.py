"""Signals of the task that a robot takes from its own sensors, and how old they are."""

from collections.abc import Mapping, Sequence

import numpy as np

from testudo_deploy.contract.contract import NEIGHBOURS, Signal
from testudo_deploy.contract.messages import EnvelopeError
from testudo_deploy.contract.task_values import task_arrays
from testudo_deploy.guard.command_guard import CLOCK_TOLERANCE_S
from testudo_hardware.errors import TestudoError


class SensedSignals:
    """The newest message of each sensor; times on the robot's clock [s]."""

    def __init__(self, limits_s: Mapping[Signal, float]) -> None:
        """Begin without a message; ``limits_s`` is the oldest age of each signal.

        Raises:
            TestudoError: a signal of peers, which no sensor of the robot knows.
        """
        for signal in limits_s:
            if NEIGHBOURS in signal.shape:
                raise TestudoError(
                    f"signal {signal.name}: found a sensor topic for it, expected none: it is the peers'"
                )
        self._limits_s = {signal.name: limit_s for signal, limit_s in limits_s.items()}
        self._signals = {signal.name: signal for signal in limits_s}
        self._arrays: dict[str, np.ndarray] = {}
        self._faults: dict[str, str] = {}
        self.stamps_s: dict[str, float] = {}
        """Of the newest messages, by signal."""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the signals."""
        return tuple(self._signals)

    @property
    def arrays(self) -> Mapping[str, np.ndarray] | None:
        """Return the newest values, component first: (C,) or (C, K); None unless every sensor has sent some."""
        return dict(self._arrays) if len(self._arrays) == len(self._signals) else None

    def hear(self, name: str, numbers: Sequence[float], stamp_s: float, received_s: float) -> None:
        """Take a message of the sensor of a signal; wrong numbers also end the use of the last one."""
        if stamp_s > received_s + CLOCK_TOLERANCE_S:
            self._drop(name, f"task_stale: {name}: its sensor's stamp is of the future")
            return
        if stamp_s <= self.stamps_s.get(name, -np.inf):
            return
        try:
            found = task_arrays((self._signals[name],), {name: tuple(numbers)}, 0)
        except EnvelopeError as error:
            self._drop(name, f"task_stale: sensor of the {error}")
            return
        self._arrays |= found
        self.stamps_s[name] = stamp_s
        self._faults.pop(name, None)

    def _drop(self, name: str, fault: str) -> None:
        self._faults[name] = fault
        self._arrays.pop(name, None)

    def forget(self) -> None:
        """Forget all values, whose times are of another clock."""
        self._arrays.clear()
        self.stamps_s.clear()

    def fault(self, now_s: float) -> str:
        """Return why the robot must brake, ``code: details``; empty if all values may be used."""
        for name, limit_s in self._limits_s.items():
            if name in self._faults:
                return self._faults[name]
            if name not in self._arrays:
                return f"task_stale: {name}: its sensor has sent nothing"
            age_s = now_s - self.stamps_s[name]
            if not -CLOCK_TOLERANCE_S <= age_s <= limit_s:
                return f"task_stale: {name}: the value of its sensor is {age_s:.2f} s old, at most {limit_s:g} s"
        return ""
