"""How a vehicle follows a velocity: as a point, or by the firmware's cascade and the attitude response of its file."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from testudo_hardware.arrays import Array
from testudo_hardware.motion import LagResponse, MotionState
from testudo_hardware.motion.attitude_drone import AnglesState, AttitudeDroneParameters, AttitudeResponse, advance
from testudo_hardware.motion.motion_model import effective_command
from testudo_hardware.motion.velocity_cascade import CascadeParameters, settled, velocity_control
from testudo_hardware.motion.velocity_point import VelocityPoint
from testudo_hardware.quaternions import from_angles
from testudo_hardware.spec import RobotSpec


@dataclass(frozen=True)
class FlightBody:
    """Where a vehicle is and how it moves."""

    position: Array
    """(3,) [m], in the world."""
    velocity: Array
    """(3,) [m/s], in the world."""
    angles: Array
    """(3,) [rad]: roll, pitch, yaw."""

    @property
    def quaternion_xyzw(self) -> tuple[float, ...]:
        """Return the attitude."""
        return tuple(float(value) for value in from_angles(self.angles))


class FlightModel(Protocol):
    """Moves a vehicle whose motors turn by one step."""

    def begin(self) -> None:
        """Forget everything: the motors begin to turn."""

    def move(self, body: FlightBody, wanted: Array, yaw: float, *, level: bool) -> FlightBody:
        """Return the body after one step.

        Args:
            body: now.
            wanted: velocity (3,) [m/s] in the world.
            yaw: [rad], to face.
            level: no tilt is asked for, so that it coasts; its climb rate is kept.
        """


class PointFlight:
    """A point that follows velocities with lag, delay and a limit, always upright."""

    def __init__(self, spec: RobotSpec, step_s: float) -> None:
        """Prepare for steps of one length."""
        self._model, self._step_s = VelocityPoint(spec), step_s
        self._response = LagResponse.create(np.asarray(step_s), np.asarray(spec.velocity_lag_s))
        self._ticks = round(spec.command_delay_s / step_s)
        drag = spec.rotors.get("rotors.drag_across")
        self._coasts = math.exp(-step_s * drag.value / spec.mass_kg) if drag is not None else 1.0
        self.begin()

    def begin(self) -> None:
        """See `FlightModel.begin`."""
        self._delayed = deque([np.zeros(3)] * self._ticks)

    def move(self, body: FlightBody, wanted: Array, yaw: float, *, level: bool) -> FlightBody:
        """See `FlightModel.move`."""
        self._delayed.append(wanted)
        effective = effective_command(self._model, self._delayed.popleft())
        state = MotionState(body.position, np.asarray(yaw), body.velocity)
        after = self._model.step(state, effective, self._response)
        angles = np.array([0.0, 0.0, yaw])
        if not level:
            return FlightBody(after.position_world, after.velocity, angles)
        along = self._coasts * body.velocity[:2]
        return FlightBody(
            np.append(body.position[:2] + self._step_s * along, after.position_world[2]),
            np.append(along, after.velocity[2]),
            angles,
        )


class AttitudeFlight:
    """The velocity controller of the firmware above the attitude response of the robot file."""

    def __init__(self, spec: RobotSpec, step_s: float) -> None:
        """Prepare for steps of one length, which is also the controller's."""
        self._body, self._cascade = AttitudeDroneParameters.from_spec(spec), CascadeParameters.from_spec(spec)
        self._step_s = step_s
        self._response = AttitudeResponse.create(self._body, np.asarray(step_s), np.asarray(0.0))
        self.begin()

    def begin(self) -> None:
        """See `FlightModel.begin`; the controller carries the weight: its base thrust is tuned to the vehicle."""
        self._integral = settled(self._cascade, self._body.hover_thrust_n, np.asarray(0.0)).integral
        self._rates, self._thrust = np.zeros(3), np.asarray(0.0)

    def move(self, body: FlightBody, wanted: Array, yaw: float, *, level: bool) -> FlightBody:
        """See `FlightModel.move`."""
        (roll, pitch, thrust), integral = velocity_control(
            self._cascade, body.velocity, body.angles[2], self._integral, wanted, self._step_s
        )
        if level:  # the loops in the plane do not run
            roll, pitch, integral = 0.0, 0.0, np.append(self._integral[:2], integral[2])
        self._integral = integral
        turn = body.angles[2] + math.remainder(yaw - body.angles[2], 2 * math.pi)
        state = AnglesState(body.position, body.angles, body.velocity, self._rates, self._thrust)
        after = advance(self._body, self._response, state, np.array([roll, pitch, turn, thrust], float))
        self._rates, self._thrust = after.rates, after.thrust
        return FlightBody(after.position_world, after.velocity_world, after.angles)


def flight_model(spec: RobotSpec, step_s: float) -> FlightModel:
    """Return the best model that a robot file has the numbers for."""
    return AttitudeFlight(spec, step_s) if spec.attitude else PointFlight(spec, step_s)


def grounded(body: FlightBody) -> FlightBody:
    """Return a body that the ground holds."""
    if body.position[2] > 0.0:
        return body
    return replace(
        body,
        position=np.append(body.position[:2], 0.0),
        velocity=np.append(body.velocity[:2], max(body.velocity[2], 0.0)),
    )
