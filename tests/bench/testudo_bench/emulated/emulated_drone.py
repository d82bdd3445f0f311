"""Policy, guard and vehicle of one emulated drone, connected as the nodes connect them, without ROS.

`EmulatedRobot` and the flight part of its guard: orders of the policy, requests to the vehicle, and its reports, which
come as often as the link profile says. Set-points go to the vehicle only while the guard sends them.
"""

from dataclasses import replace
from typing import Any

from testudo_bench.emulated.emulated_robot import EmulatedRobot, Vector
from testudo_deploy.guard.flight_guard import FlightGuard

_ORDER_S, _STEP_S = 0.1, 0.1  # of the policy's orders, and of the flight guard


class EmulatedDrone(EmulatedRobot):
    """One drone of a fleet, which stands on the floor at first."""

    def __init__(self, *arguments: Any) -> None:
        """Load the policy; see `EmulatedRobot`."""
        super().__init__(*arguments)
        self.flight = FlightGuard()
        self._landed_s = -float("inf")

    def step(self, now_s: float) -> None:
        """Take what the plant measured and the vehicle reports, and do what is due."""
        vehicle = (self._link.status_s, self._hear_vehicle)
        self._do_due(now_s, vehicle, (_ORDER_S, self._order), (_STEP_S, self._fly))
        super().step(now_s)

    def _hear_vehicle(self, here_s: float) -> None:
        state = self._plant.vehicle(self.name, tells_planner=True)
        state = replace(state, stamp_s=self.clock_s(state.stamp_s))
        if self.guard_lives:
            self.flight.hear_vehicle(state, here_s)
        if self.policy_lives:
            self.robot.hear_vehicle(state, here_s)

    def _order(self, here_s: float) -> None:
        if self.policy_lives and self.guard_lives:
            self.flight.hear_order(self.robot.flight_order(here_s), here_s)

    def _fly(self, here_s: float) -> None:
        """Advance the flight; if set-points begin, send the first one immediately."""
        if not self.guard_lives:
            return
        streamed = self.flight.streams
        for request in self.flight.step(here_s, stopped=not self.guard.may_take_off):
            self._plant.ask(self.name, request)
        if self.flight.streams and not streamed:
            self._brake(here_s)

    def _on_command(self, stamp_s: float, values: Vector, here_s: float) -> None:
        lands = self.flight.may_descend(values, here_s)
        refusal = self._checks.refusal(values, here_s, descends=lands)
        if self.guard.command(stamp_s, values, here_s, lands=lands, refusal=refusal):
            if self.guard.code:
                self._landed_s = here_s
            self._send(stamp_s, values, here_s)
        elif self.guard.watch(here_s):
            self._brake(here_s)

    def _brake(self, here_s: float) -> None:
        if here_s - self._landed_s >= self.guard.silent_after_s:  # else commands that let it descend are passed on
            super()._brake(here_s)

    def _send(self, stamp_s: float, values: Vector, here_s: float) -> None:
        if self.flight.streams:
            super()._send(stamp_s, values, here_s)

    def _flight_phase(self) -> str:
        return str(self.flight.phase)
