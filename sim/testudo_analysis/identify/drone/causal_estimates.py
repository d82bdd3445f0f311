"""What a prediction knows at its start from the log before it: balances and the force that the model lacks."""

from typing import Any

import numpy as np
from scipy.signal import lfilter

from testudo_analysis.identify.drone.fitted_model import NAMES, DroneModel
from testudo_analysis.identify.drone.flight_segments import FlightRecord, FlightSamples
from testudo_analysis.identify.drone.slow_response import excess_lift, torque_acceleration
from testudo_hardware.motion.rotor_drone import (
    RotorDroneParameters,
    RotorDroneState,
    step,
)


def balances(
    model: DroneModel, flight: FlightRecord, vector: np.ndarray, lagged: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the balances after the commands so far: torque (3, T) [rad/s²] and lift (T,) [m/s²]."""
    value = dict(zip(NAMES, vector, strict=True))
    parameters = flat_parameters(model.parameters(vector[:, None]))
    found = []
    for name, pushed in (
        ("balance", torque_acceleration(parameters, lagged)),
        ("lift", excess_lift(parameters, lagged)[None]),
    ):
        gain = -np.expm1(-flight.period_s / value[f"{name}_memory"])
        target = -value[f"{name}_share"] * pushed
        found.append(lfilter([gain], [1, gain - 1], target, axis=1, zi=(1 - gain) * target[:, :1])[0])
    return found[0], found[1][0]


def held_force(model: DroneModel, samples: FlightSamples, vector: np.ndarray, lagged: list[np.ndarray]) -> np.ndarray:
    """Return the world acceleration (3, S) [m/s²] that the model lacks at the starts.

    Causal: the slope, over the memory before the start, of the logged velocity less the integral of the model's
    acceleration at the logged states.
    """
    value = dict(zip(NAMES, vector, strict=True))
    parameters = flat_parameters(model.parameters(vector[:, None]))
    forces = []
    for flight, thrust in zip(samples.flights, lagged, strict=True):
        short = 1e-4
        state = RotorDroneState(
            flight.position_world, flight.quaternion_xyzw, flight.velocity_world, flight.rates_body, thrust
        )
        rate = (step(parameters, state, thrust, short).velocity_world - state.velocity_world) / short
        rate[2] += balances(model, flight, vector, thrust)[1]
        forces.append(value["force_share"] * _slope(flight, flight.velocity_world, rate, value["force_memory"]))
    return samples.gather(forces)


def flat_parameters(parameters: RotorDroneParameters) -> RotorDroneParameters:
    """Return the parameters of a single vector as plain numbers."""
    return RotorDroneParameters(**{name: _flat(value) for name, value in vars(parameters).items()})


def _flat(value: Any) -> Any:
    flat = value[0, 0] if isinstance(value, np.ndarray) else value
    return tuple(map(_flat, value)) if isinstance(value, tuple) else flat


def _slope(flight: FlightRecord, logged: np.ndarray, rate: np.ndarray, memory_s: float) -> np.ndarray:
    """Return the slope (3, T) of logged values less the integral of a rate, by a critically damped tracker."""
    period = flight.period_s
    steps = (rate[:, 1:] + rate[:, :-1]) / 2 * np.diff(flight.stamp_s)
    rest = logged - np.concatenate([np.zeros((len(rate), 1)), np.cumsum(steps, axis=1)], axis=1)
    pole = np.exp(-period / memory_s)
    level, slope = 1 - pole**2, (1 - pole) ** 2
    poles = [1, level + slope - 2, 1 - level]
    return np.asarray(lfilter([slope / period, -slope / period], poles, rest - rest[:, :1], axis=1))
