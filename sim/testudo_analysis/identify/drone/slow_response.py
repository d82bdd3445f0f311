"""The effective part of a drone's response beside the rigid body: tilt stiffness and balances, see `fitted_model`."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from testudo_hardware.frames import rotate_back
from testudo_hardware.motion.rotor_drone import (
    GRAVITY_M_S2,
    PITCH_SIGNS,
    ROLL_SIGNS,
    YAW_SIGNS,
    Disturbance,
    RotorDroneParameters,
    RotorDroneState,
    step,
)


@dataclass(frozen=True)
class Balances:
    """What the balances add now."""

    torque: np.ndarray  # (3, ...) [rad/s²]
    lift: np.ndarray  # (...) [m/s²]


@dataclass(frozen=True)
class SlowResponse:
    """The effective part of the response, beside the rigid body: tilt stiffness and balances."""

    tilt_stiffness: Any  # [1/s²]
    balance_share: Any
    balance_memory: Any  # [s]
    lift_share: Any
    lift_memory: Any  # [s]

    @classmethod
    def create(cls, value: Mapping[str, Any]) -> "SlowResponse":
        """Return that of parameters by name."""
        return cls(*(value[each.name] for each in fields(cls)))

    def step(
        self,
        parameters: RotorDroneParameters,
        state: RotorDroneState,
        now: Balances,
        wanted: np.ndarray,
        duration_s: np.ndarray,
        force: np.ndarray,
        turning: np.ndarray | float = 0.0,
    ) -> tuple[RotorDroneState, Balances]:
        """Return state and balances after a time under thrusts (4, ...) [N] and accelerations (3, ...) beside them."""
        ratio = duration_s / parameters.thrust_lag_s
        mean = wanted - np.expm1(-ratio) / ratio * (state.thrust - wanted)
        pushed = torque_acceleration(parameters, mean)
        lifted = -np.expm1(-duration_s / self.lift_memory) * (
            -self.lift_share * excess_lift(parameters, mean) - now.lift
        )
        change = -np.expm1(-duration_s / self.balance_memory) * (-self.balance_share * pushed - now.torque)
        force = force + np.stack([0 * lifted, 0 * lifted, now.lift + lifted / 2])
        turning = turning + righting(state.quaternion_xyzw, self.tilt_stiffness) + now.torque + change / 2
        after = step(parameters, state, wanted, duration_s, Disturbance(force, turning))
        return after, Balances(now.torque + change, now.lift + lifted)


def torque_acceleration(parameters: RotorDroneParameters, thrust: np.ndarray) -> np.ndarray:
    """Return the angular acceleration (3, ...) [rad/s²] of rotor thrusts (4, ...), without the constant offset."""
    levers = (*parameters.arm_m, parameters.torque_per_thrust_m)
    return np.stack(
        [
            parameters.thrust_scale * lever / inertia * sum(sign * thrust[k] for k, sign in enumerate(signs))
            for signs, lever, inertia in zip(
                (ROLL_SIGNS, PITCH_SIGNS, YAW_SIGNS), levers, parameters.inertia_kg_m2, strict=True
            )
        ]
    )


def excess_lift(parameters: RotorDroneParameters, thrust: np.ndarray) -> np.ndarray:
    """Return the acceleration (...) [m/s²] by which rotor thrusts (4, ...) [N] exceed the weight."""
    return parameters.thrust_scale / parameters.mass_kg * thrust.sum(axis=0) - GRAVITY_M_S2


def righting(quaternion_xyzw: np.ndarray, stiffness: np.ndarray) -> np.ndarray:
    """Return the angular acceleration (3, ...) [rad/s²] of a tilt stiffness [1/s²] against the tilt."""
    zero = np.zeros_like(quaternion_xyzw[:3])
    zero[2] = 1
    up = rotate_back(quaternion_xyzw, zero)
    return np.stack([-stiffness * up[1], stiffness * up[0], 0 * up[2]])
