"""The monitors of one robot's motion: its brakes, and whether it follows its commands."""

from __future__ import annotations

import math

import numpy as np

from testudo_deploy.control.state_prediction import PendingCommands
from testudo_deploy.monitoring.actuation_monitor import (
    actuation_limits,
    actuation_shortfall_text,
    begin_actuation_monitor,
    update_actuation_monitor,
)
from testudo_deploy.monitoring.brake_monitor import begin_brake_monitor, update_brake_monitor, weak_brakes_text
from testudo_hardware.motion import MotionState
from testudo_hardware.spec import RobotSpec

_FORGET_S = 0.5
"""After a gap this long between two poses the commands of the time between are not all kept."""
_GUARD_FRESH_S = 0.15
"""After a longer silence the guard, which reports ten times a second, may be gone and the robot braked."""


class MotionMonitor:
    """Compares one robot's poses with the commands it was sent; times on the steady clock [s]."""

    def __init__(self, spec: RobotSpec, sent: PendingCommands) -> None:
        """Begin without a pose; the caller adds to the commands ``sent`` at every tick."""
        self._spec, self._sent = spec, sent
        delay = spec.quantities["dynamics.command_delay"]
        self._delays_s, self._zero = (delay.low, delay.high), np.zeros(spec.dimension)
        self._limits = actuation_limits(spec, np.array(0.0))
        self._passes, self._guard_s, self._vehicle_passes = True, math.inf, True
        self.weak = self.unresponsive = ""
        """The finding, ``code: details``; it is permanent, so that only a new process drives again."""

    @property
    def finding(self) -> str:
        """Return why the robot must not drive; empty if nothing was found."""
        return self.weak or self.unresponsive

    def hear_guard(self, *, passes: bool, received_s: float) -> None:
        """Take whether the guard passes commands on; otherwise the robot brakes whatever is sent."""
        self._passes, self._guard_s = passes, received_s

    def hear_vehicle(self, *, passes: bool) -> None:
        """Take whether the driver behind the guard passes commands on."""
        self._vehicle_passes = passes

    def begin(self, measured: MotionState) -> None:
        """Take the first pose."""
        self._braking = begin_brake_monitor(self._spec, measured, np.array(True))
        self._response = begin_actuation_monitor(self._limits, measured, np.array(True))

    def follow(self, measured: MotionState, located: bool, before_s: float, stamp_s: float, received_s: float) -> None:
        """Take a pose, whether it is valid, its stamp, and the stamp of the pose before."""
        acting = self._sent.may_act(before_s, stamp_s, self._delays_s, self._zero)
        elapsed_s, valid = np.array(stamp_s - before_s), np.array(located)
        self._braking, excess_m = update_brake_monitor(self._spec, self._braking, measured, valid, acting, elapsed_s)
        if excess_m > 0 and not self.weak:
            self.weak = weak_brakes_text(self._spec, self._braking, float(excess_m))
        if not (self._passes and self._vehicle_passes) or elapsed_s > _FORGET_S:
            self._response = begin_actuation_monitor(self._limits, measured, valid)
            return
        commands = list({id(command): command for _, piece in acting for command in piece}.values())
        self._response, excess = update_actuation_monitor(
            self._limits, self._response, measured, valid, commands, elapsed_s
        )
        if excess.max() > 0 and not self.unresponsive and received_s - self._guard_s <= _GUARD_FRESH_S:
            self.unresponsive = actuation_shortfall_text(self._spec, self._response, excess)
