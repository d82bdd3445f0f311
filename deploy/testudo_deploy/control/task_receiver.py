"""The signals of the task that a robot receives from the station and from its sensors, and how old they are.

The age is bounded as that of peer messages, without a shared clock: a message names the robot's own announcement that
the station had heard, so that it was sent after that moment; the age of the station's measurements is added. Values
that are too old, of another contract, or not those of the contract, brake the robot. A signal that a sensor of the
robot sends is never taken from the station.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from testudo_deploy.contract.contract import Contract, Signal
from testudo_deploy.contract.messages import EnvelopeError, TaskMessage, Vector, is_recent
from testudo_deploy.contract.task_values import arrays_for, packed
from testudo_deploy.control.sensed_signals import SensedSignals

OLDEST_TASK_S = 0.4
"""Oldest age of any signal of the task [s], also where the contract names a longer one or none: the station renews all
values many times in this time, and one that does not has failed."""


def oldest_task_s(signals: Sequence[Signal]) -> float:
    """Return the oldest age of the values of the task [s]: they come in one message, so the strictest signal counts."""
    return min([OLDEST_TASK_S, *(one.max_age_s for one in signals if one.max_age_s is not None)])


@dataclass(frozen=True)
class TaskReading:
    """The newest values of the task."""

    arrays: Mapping[str, np.ndarray]  # by signal, component first: (C,), (C, K), neighbours by slot
    bound_s: float  # robot's clock: no value is older than now - bound_s
    epoch: str
    sequence: int
    contract: str
    sensed_stamp_s: Mapping[str, float] = field(default_factory=dict[str, float])  # of the values of sensors, by signal
    hold_within_m: float = 0.0  # see `TaskMessage`
    paused: bool = False

    @property
    def values(self) -> dict[str, Vector]:
        """Return the numbers by signal, as in `TaskMessage`, neighbours by slot."""
        return {name: packed(array) for name, array in self.arrays.items()}


class TaskReceiver:
    """Takes the task messages for one robot."""

    def __init__(
        self,
        signals: Sequence[Signal],
        contract: str,
        *,
        robot: str,
        epoch: str,
        peers: Sequence[str],
        sensed: Collection[str] = (),
    ) -> None:
        """Begin without a message.

        Args:
            signals: of the task; without any that is not sensed it needs no message.
            contract: `Contract.task_hash` of its policy.
            robot: its name.
            epoch: of its announcements.
            peers: by slot.
            sensed: names of the signals that a sensor of the robot sends.

        Raises:
            TestudoError: a sensor sends a signal of peers.
        """
        self._sent = tuple(signals)
        self.signals = tuple(signal for signal in self._sent if signal.name not in sensed)
        """Taken from the messages of the task node."""
        self.sensors = SensedSignals({one: oldest_task_s([one]) for one in self._sent if one.name in sensed})
        self._contract, self._robot, self._epoch, self._peers = contract, robot, epoch, tuple(peers)
        self.limit_s = oldest_task_s(self.signals)
        """Oldest age of the values [s]."""
        self._reading: TaskReading | None = None
        self._last: tuple[str, int] | None = None  # epoch and sequence of the newest message
        self._retired: set[str] = set()
        self._fault = ""
        self.refused = 0
        """Number of refused messages."""

    @classmethod
    def of(cls, contract: Contract, *, robot: str, epoch: str, peers: Sequence[str]) -> Self:
        """Return the receiver of all signals of a contract that a robot does not have by itself."""
        return cls(contract.task_signals, contract.task_hash, robot=robot, epoch=epoch, peers=peers)

    @property
    def reading(self) -> TaskReading | None:
        """Return the newest values, however old; None if there are none to use."""
        if not self.sensors.names:
            return self._reading
        arrays, stamps = self.sensors.arrays, dict(self.sensors.stamps_s)
        if arrays is None or (self.signals and self._reading is None):
            return None
        base = self._reading or TaskReading({}, min(stamps.values()), "", -1, self._contract)
        return replace(base, arrays={**base.arrays, **arrays}, sensed_stamp_s=stamps)

    def hear(self, message: TaskMessage, received_s: float) -> bool:
        """Take a message; False if it is refused. Another contract or wrong values also end the use of the last one."""
        if not self.signals or message.robot != self._robot:
            return self._refuse()
        if message.contract != self._contract:
            return self._refuse(
                f"task_contract: found {message.contract[:12]} at the task node, expected {self._contract[:12]}"
            )
        if not self._is_next(message, received_s):
            return self._refuse()
        try:
            arrays = arrays_for(self._sent, message, self._peers)
        except EnvelopeError as error:
            return self._refuse(f"task_stale: {error}")
        if self._last is not None and self._last[0] != message.epoch:
            self._retired.add(self._last[0])
        self._last, self._fault = (message.epoch, message.sequence), ""
        self._reading = TaskReading(
            {signal.name: arrays[signal.name] for signal in self.signals},
            message.echo[1] - message.sample_age_s,
            message.epoch,
            message.sequence,
            message.contract,
            hold_within_m=message.hold_within_m,
            paused=message.paused,
        )
        return True

    def _is_next(self, message: TaskMessage, received_s: float) -> bool:
        """Return whether a message answers a recent announcement and is newer than the last one.

        A new process of the task node may begin only once the values of the present one are too old.
        """
        if message.echo[0] != self._epoch or not is_recent(message.echo, received_s):
            return False
        if self._last is None:
            return True
        if message.epoch == self._last[0]:
            return message.sequence > self._last[1]
        return message.epoch not in self._retired and bool(self._message_fault(received_s))

    def _refuse(self, fault: str = "") -> bool:
        self.refused += 1
        if fault:
            self._fault, self._reading = fault, None
        return False

    def forget(self) -> None:
        """Forget the values, whose times are of another clock."""
        self._reading = None
        self.sensors.forget()

    def age_s(self, now_s: float) -> float | None:
        """Return the upper bound of the age of the values of the task node [s]; None if there are none to use."""
        return None if self._reading is None else now_s - self._reading.bound_s

    def fault(self, now_s: float) -> str:
        """Return why the robot must brake, ``code: details``; empty if it may use the values or needs none."""
        return self._message_fault(now_s) or self.sensors.fault(now_s)

    def _message_fault(self, now_s: float) -> str:
        if not self.signals or self._fault:
            return self._fault
        age_s = self.age_s(now_s)
        if age_s is None:
            return "task_stale: no message of the task node has been received"
        if not 0 <= age_s <= self.limit_s:
            return f"task_stale: the values of the task are {age_s:.2f} s old, at most {self.limit_s:g} s"
        return ""
