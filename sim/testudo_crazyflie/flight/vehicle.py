"""The simulated vehicle: what set-points ask of its flight model, falling, the ground, and its battery.

The vehicle does not tumble unless it is tumbled by hand. Set-points of attitude and thrust are flown level: only what
velocities and places need is modelled.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from testudo_crazyflie.flight.flight_models import FlightBody, FlightModel, grounded
from testudo_crazyflie.flight.low_level_commander import SetPoint
from testudo_hardware.arrays import Array

GRAVITY_M_S2 = 9.81
_PULL_PER_S, _CLIMB_M_S = 2.0, 1.0
"""Velocity per distance from a commanded place, as the firmware's position controller has it, and its limit."""
_SAG_V, _DRAIN_V_S = 0.15, 0.0015
"""The battery gives so much less while the motors turn, and loses so much in each second of it."""
_FULL_V = 4.1


class Vehicle:
    """One vehicle."""

    def __init__(
        self,
        model: FlightModel,
        step_s: float,
        position_world: tuple[float, float, float] = (0.0, 0.0, 0.0),
        yaw: float = 0.0,
    ) -> None:
        """Stand at a place (3,) [m]; ``step_s`` is the length of each step."""
        self.body = FlightBody(np.array(position_world, float), np.zeros(3), np.array([0.0, 0.0, yaw]))
        self.motors_on = False
        self.upside_down = False
        """Set by hand, as by a hit."""
        self.charge_v = _FULL_V
        """Voltage of the battery at rest."""
        self._model, self._step_s = model, step_s
        self._faces = yaw

    @property
    def position(self) -> Array:
        """Return where it is (3,) [m]."""
        return self.body.position

    @property
    def velocity(self) -> Array:
        """Return how fast it is (3,) [m/s]."""
        return self.body.velocity

    @property
    def yaw(self) -> float:
        """Return where it faces [rad]."""
        return float(self.body.angles[2])

    @property
    def battery_v(self) -> float:
        """Return the voltage that is measured."""
        return self.charge_v - (_SAG_V if self.motors_on else 0.0)

    @property
    def up(self) -> float:
        """Return the acceleration that is felt along the body's z axis, in units of gravity."""
        if not self.motors_on and self.position[2] > 0.0:
            return 0.0
        return -1.0 if self.upside_down else 1.0

    @property
    def quaternion_xyzw(self) -> tuple[float, ...]:
        """Return the attitude."""
        if self.upside_down:
            return (math.cos(self.yaw / 2), math.sin(self.yaw / 2), 0.0, 0.0)
        return self.body.quaternion_xyzw

    def step(self, set_point: SetPoint, *, level: bool, follows: bool) -> None:
        """Move on by one step.

        Args:
            set_point: what the vehicle is to do.
            level: the supervisor lets it fly level: it keeps its climb and coasts along.
            follows: the controller follows velocities; one that does not flies level.
        """
        ran, self.motors_on = self.motors_on, set_point.kind != "off"
        if not self.motors_on or self.upside_down:
            self.body = self._fallen()
        else:
            if not ran:
                self._model.begin()
                self._faces = self.yaw
            if level:
                set_point = replace(set_point, yaw_rate=0.0)
            level |= set_point.kind == "attitude" or not follows
            wanted = self._wanted(set_point)
            self.body = grounded(self._model.move(self.body, wanted, self._faces, level=level))
        if self.motors_on:
            self.charge_v -= _DRAIN_V_S * self._step_s

    def _wanted(self, set_point: SetPoint) -> Array:
        """Return the velocity (3,) [m/s] that is asked for, and turn to where it is to face."""
        self._faces += set_point.yaw_rate * self._step_s
        velocity = np.array(set_point.velocity)
        if set_point.kind == "velocity":
            return velocity
        pull = _PULL_PER_S * (np.array(set_point.position_world) - self.position)
        if set_point.kind == "place":
            turn = math.remainder(set_point.yaw - self._faces, 2 * math.pi)
            self._faces += turn * min(1.0, _PULL_PER_S * self._step_s)
            return velocity + pull
        cosine, sine = math.cos(self.yaw), math.sin(self.yaw)
        return np.array(
            [
                cosine * velocity[0] - sine * velocity[1],
                sine * velocity[0] + cosine * velocity[1],
                np.clip(pull[2], -_CLIMB_M_S, _CLIMB_M_S),
            ]
        )

    def _fallen(self) -> FlightBody:
        body = self.body
        if body.position[2] > 0.0:
            velocity = body.velocity - np.array([0.0, 0.0, GRAVITY_M_S2 * self._step_s])
            body = grounded(FlightBody(body.position + self._step_s * velocity, velocity, body.angles))
        if body.position[2] > 0.0:
            return body
        return FlightBody(body.position, np.zeros(3), np.array([0.0, 0.0, self.yaw]))
