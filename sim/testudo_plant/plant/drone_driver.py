"""Simulates the driver of a drone: radio, command delay and firmware of a Crazyflie, in place of a dead-man brake."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Sequence

import numpy as np

from testudo_hardware.links.flight_link import FlightRequest
from testudo_hardware.motion import motion_model
from testudo_hardware.spec import RobotSpec
from testudo_plant.plant.driver import AppliedCommand, CommandVerdict, DriverReason, is_clipped
from testudo_plant.plant.flight_firmware import CrazyflieFirmware, FlightCommand, FlightPhase

_REASONS = {
    FlightPhase.OFF: (DriverReason.MOTORS_OFF, "its motors stand still"),
    FlightPhase.PLANNER: (DriverReason.PLANNER, "its own planner leads"),
    FlightPhase.SET_POINT: (DriverReason.COMMAND, "the command"),
    FlightPhase.HELD: (DriverReason.HELD, "no set-point came: it holds the last one"),
    FlightPhase.LEVEL: (DriverReason.LEVELLED, "silence: it levels out and drifts"),
    FlightPhase.BRAKE: (DriverReason.ONBOARD_BRAKE, "silence: the app on board brakes"),
    FlightPhase.LOCKED: (DriverReason.LOCKED, "motors cut and locked"),
}
_LATE_TICKS = 2.0
"""A set-point older than this many ticks counts as held."""


class FlyingDriver:
    """Radio, delay and firmware of one drone, with the interface of `Driver`; every time is an argument."""

    def __init__(
        self,
        spec: RobotSpec,
        command_delay_s: float,
        start_s: float,
        vehicle: CrazyflieFirmware,
        carry: Callable[[float], float | None],
    ) -> None:
        """Start; ``carry`` returns the additional delay [s] of a set-point sent at a time [s], None if it is lost."""
        self._model, self._spec = motion_model(spec), spec
        self._delay_s, self.vehicle, self._carry = command_delay_s, vehicle, carry
        self._queue: deque[tuple[float, tuple[float, ...], float, bool]] = deque()
        """Due time [s], velocity [m/s], yaw rate [rad/s], and whether they were clipped."""
        self._requests: deque[tuple[float, FlightRequest]] = deque()
        self._last_stamp_s, self._clipped = -math.inf, False
        self.verdicts: Counter[CommandVerdict] = Counter()
        self.order = vehicle.command(start_s, math.inf)
        self.applied = self._applied(start_s)

    def receive(
        self, values: Sequence[float], stamp_s: float, received_s: float, yaw_rate: float = 0.0
    ) -> CommandVerdict:
        """Send a command (3,) [m/s] with a yaw rate [rad/s] by radio; the station has it at ``received_s`` [s]."""
        verdict = self._judge(values, yaw_rate, stamp_s, received_s)
        self.verdicts[verdict] += 1
        return verdict

    def ask(self, request: FlightRequest, now_s: float) -> None:
        """Send a request and repeat it until the radio delivers it; it overtakes no set-point."""
        self._requests.append((now_s + self._delay_s, request))

    def advance(self, now_s: float, *, dark: bool = False) -> AppliedCommand:
        """Return the command at ``now_s`` [s], never decreasing; requests wait while the radio is ``dark``."""
        while self._requests and self._requests[0][0] <= now_s and not dark:
            asked_s, request = self._requests.popleft()
            self._deliver_until(asked_s)
            self.vehicle.ask(request, now_s)
        self._deliver_until(now_s)
        order = self.vehicle.command(now_s, _LATE_TICKS * self._spec.control_period_s)
        reason = self._reason()
        if (order, reason) != (self.order, self.applied.reason):
            self.order = order
            self.applied = self._applied(now_s)
        return self.applied

    def _deliver_until(self, now_s: float) -> None:
        while self._queue and self._queue[0][0] <= now_s:
            due_s, values, yaw_rate, self._clipped = self._queue.popleft()
            self.vehicle.hear(values, due_s, yaw_rate)

    def _judge(self, values: Sequence[float], yaw_rate: float, stamp_s: float, received_s: float) -> CommandVerdict:
        if len(values) != self._spec.dimension or not all(math.isfinite(value) for value in (*values, yaw_rate)):
            return CommandVerdict.REFUSED_NON_FINITE
        if not abs(received_s - stamp_s) <= self._spec.dead_man_s:  # also true for NaN
            return CommandVerdict.DROPPED_OLD
        if stamp_s <= self._last_stamp_s:
            return CommandVerdict.DROPPED_NOT_NEWER
        self._last_stamp_s = stamp_s
        late_s = self._carry(received_s)
        if late_s is None:
            return CommandVerdict.LOST
        limited = self._model.limit_command(np.array(values, dtype=float)).tolist()
        most = self._spec.yaw_rate_limit_rad_s
        turn = min(max(float(yaw_rate), -most), most)
        clipped = is_clipped((*limited, turn), (*values, yaw_rate))
        due_s = received_s + self._delay_s + late_s
        if not self._queue or due_s >= self._queue[-1][0]:  # set-points never overtake each other
            self._queue.append((due_s, tuple(limited), turn, clipped))
        return CommandVerdict.CLIPPED if clipped else CommandVerdict.ACCEPTED

    def _reason(self) -> DriverReason:
        reason = _REASONS[self.vehicle.phase][0]
        return DriverReason.CLIPPED if reason is DriverReason.COMMAND and self._clipped else reason

    def _applied(self, since_s: float) -> AppliedCommand:
        order: FlightCommand = self.order
        sentence = _REASONS[self.vehicle.phase][1] + (", clipped to the limits" if self._clipped else "")
        return AppliedCommand(order.velocity_world, self._reason(), since_s, sentence, order.yaw_rate)
