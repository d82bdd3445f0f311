"""Simulates the flight of the vehicle: flight models under set-points, falling, the ground, and the battery.

The vehicle tumbles only if a test sets it. Set-points of attitude and thrust are flown level: only velocity and
position set-points are modelled.
"""

import math
from collections import deque
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from testudo_crazyflie.firmware.commanders import SetPoint
from testudo_hardware.arrays import Array
from testudo_hardware.frames import from_angles
from testudo_hardware.motion import LagResponse, MotionState
from testudo_hardware.motion.attitude_drone import AnglesState, AttitudeDroneParameters, AttitudeResponse, advance
from testudo_hardware.motion.firmware_controllers import CascadeParameters, settled, velocity_control
from testudo_hardware.motion.motion_model import effective_command, motion_model
from testudo_hardware.spec import RobotSpec


@dataclass(frozen=True)
class FlightBody:
    """Motion state of a vehicle."""

    position: Array  # (3,) [m], in the world
    velocity: Array  # (3,) [m/s], in the world
    angles: Array  # (3,) [rad]: roll, pitch, yaw

    @property
    def quaternion_xyzw(self) -> tuple[float, ...]:
        """Return the attitude."""
        return tuple(float(value) for value in from_angles(self.angles))


class FlightModel(Protocol):
    """Motion of a vehicle with running motors."""

    def begin(self) -> None:
        """Reset the state at motor start."""

    def move(self, body: FlightBody, wanted: Array, yaw: float, *, level: bool) -> FlightBody:
        """Return the body after one step for a velocity ``wanted`` (3,) [m/s] in the world and a heading [rad].

        A ``level`` vehicle coasts at constant climb rate.
        """
        ...


class PointFlight:
    """A point that follows velocities with lag, delay and a limit, always upright."""

    def __init__(self, spec: RobotSpec, step_s: float) -> None:
        """Prepare for steps of one length."""
        self._model, self._step_s = motion_model(spec), step_s
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
        if level:  # the horizontal loops do not run
            roll, pitch, integral = 0.0, 0.0, np.append(self._integral[:2], integral[2])
        self._integral = integral
        turn = body.angles[2] + math.remainder(yaw - body.angles[2], 2 * math.pi)
        state = AnglesState(body.position, body.angles, body.velocity, self._rates, self._thrust)
        after = advance(self._body, self._response, state, np.array([roll, pitch, turn, thrust], float))
        self._rates, self._thrust = after.rates, after.thrust
        return FlightBody(after.position_world, after.velocity_world, after.angles)


def grounded(body: FlightBody) -> FlightBody:
    """Return a body limited by the ground."""
    if body.position[2] > 0.0:
        return body
    return replace(
        body,
        position=np.append(body.position[:2], 0.0),
        velocity=np.append(body.velocity[:2], max(body.velocity[2], 0.0)),
    )


GRAVITY_M_S2 = 9.81
_PULL_PER_S, _CLIMB_M_S = 2.0, 1.0  # gain [1/s] and climb limit of the position controller, as in the firmware
_SAG_V, _DRAIN_V_S = 0.15, 0.0015  # voltage drop under load, and discharge rate, with running motors
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
        """Set by tests."""
        self.charge_v = _FULL_V
        """Voltage of the battery at rest."""
        self._model, self._step_s = model, step_s
        self._faces = yaw

    @property
    def position(self) -> Array:
        """Return the position (3,) [m]."""
        return self.body.position

    @property
    def velocity(self) -> Array:
        """Return the velocity (3,) [m/s]."""
        return self.body.velocity

    @property
    def yaw(self) -> float:
        """Return the heading [rad]."""
        return float(self.body.angles[2])

    @property
    def battery_v(self) -> float:
        """Return the measured voltage."""
        return self.charge_v - (_SAG_V if self.motors_on else 0.0)

    @property
    def up(self) -> float:
        """Return the specific force along the z axis of the body, in units of gravity."""
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
        """Advance by one step; a ``level`` vehicle coasts, as does one whose controller does not follow velocities."""
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
        """Return the commanded velocity (3,) [m/s], and update the commanded heading."""
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
