"""How the simulated vehicle moves: the motion model of a commanded velocity, levelling out, falling, and its battery.

The vehicle stays upright unless it is tumbled by hand. Set-points of attitude and thrust are flown level: only what
velocities and places need is modelled.
"""

from __future__ import annotations

import math
from collections import deque

import numpy as np

from testudo_hardware.arrays import Array
from testudo_hardware.motion import LagResponse, MotionState
from testudo_hardware.motion.model import effective_command
from testudo_hardware.motion.velocity_point import VelocityPoint
from testudo_hardware.spec import RobotSpec
from testudo_sim.crazyflie.set_points import SetPoint

GRAVITY_M_S2 = 9.81
_PULL_PER_S = 2.0
"""Velocity per distance from a commanded place."""
_SAG_V, _DRAIN_V_S = 0.15, 0.0015
"""The battery gives so much less while the motors turn, and loses so much in each second of it."""
_FULL_V = 4.1


class Vehicle:
    """Position, velocity and battery of one vehicle."""

    def __init__(self, spec: RobotSpec, step_s: float, position_world: tuple[float, float, float] = (0.0, 0.0, 0.0),
                 yaw: float = 0.0) -> None:
        """Stand at a place (3,) [m]; ``step_s`` is the length of each step."""
        self.position, self.velocity, self.yaw = np.array(position_world, float), np.zeros(3), yaw
        self.motors_on = False
        self.upside_down = False
        """Set by hand, as by a hit."""
        self.charge_v = _FULL_V
        """Voltage of the battery at rest."""
        self._model = VelocityPoint(spec)
        self._step_s = step_s
        self._response = LagResponse.create(np.asarray(step_s), np.asarray(spec.velocity_lag_s))
        self._delayed = deque([np.zeros(3)] * round(spec.command_delay_s / step_s))
        drag = spec.rotors.get("rotors.drag_across")
        self._coasting_per_s = drag.value / spec.mass_kg if drag is not None else 0.0

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
    def quaternion_xyzw(self) -> tuple[float, float, float, float]:
        """Return the attitude."""
        if self.upside_down:
            return (math.cos(self.yaw / 2), math.sin(self.yaw / 2), 0.0, 0.0)
        return (0.0, 0.0, math.sin(self.yaw / 2), math.cos(self.yaw / 2))

    def step(self, set_point: SetPoint, *, level: bool, follows: bool) -> None:
        """Move on by one step.

        Args:
            set_point: what the vehicle is to do.
            level: the supervisor lets it fly level: it keeps its climb and coasts along.
            follows: the controller follows velocities; one that does not flies level.
        """
        self.motors_on = set_point.kind != "off"
        if not self.motors_on or self.upside_down:
            self._fall()
        else:
            self._fly(set_point, level=level or set_point.kind == "attitude" or not follows)
        if self.motors_on:
            self.charge_v -= _DRAIN_V_S * self._step_s

    def _fly(self, set_point: SetPoint, *, level: bool) -> None:
        self.yaw += set_point.yaw_rate * self._step_s
        self._delayed.append(self._wanted(set_point))
        wanted = self._delayed.popleft()
        state = MotionState(self.position, np.asarray(self.yaw), self.velocity)
        after = self._model.step(state, effective_command(self._model, wanted), self._response)
        if level:
            share = math.exp(-self._coasting_per_s * self._step_s)
            along = self.velocity[:2] * share
            self.position = np.append(self.position[:2] + self._step_s * along, after.position_world[2])
            self.velocity = np.append(along, after.velocity[2])
        else:
            self.position, self.velocity = after.position_world, after.velocity
        self._touch()

    def _wanted(self, set_point: SetPoint) -> Array:
        velocity = np.array(set_point.velocity)
        if set_point.kind == "velocity":
            return velocity
        pull = _PULL_PER_S * (np.array(set_point.position_world) - self.position)
        if set_point.kind == "place":
            self.yaw += math.remainder(set_point.yaw - self.yaw, 2 * math.pi) * min(1.0, _PULL_PER_S * self._step_s)
            return velocity + pull
        cosine, sine = math.cos(self.yaw), math.sin(self.yaw)
        return np.array([cosine * velocity[0] - sine * velocity[1], sine * velocity[0] + cosine * velocity[1],
                         np.clip(pull[2], -1.0, 1.0)])

    def _fall(self) -> None:
        if self.position[2] > 0.0:
            self.velocity = self.velocity - np.array([0.0, 0.0, GRAVITY_M_S2 * self._step_s])
            self.position = self.position + self._step_s * self.velocity
        self._touch()
        if self.position[2] <= 0.0:
            self.velocity = np.zeros(3)

    def _touch(self) -> None:
        """Keep the ground."""
        if self.position[2] <= 0.0:
            self.position = np.append(self.position[:2], 0.0)
            self.velocity = np.append(self.velocity[:2], max(self.velocity[2], 0.0))
