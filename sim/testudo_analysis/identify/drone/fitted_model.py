"""The fitted model of a quadrotor for predictions from logged motor signals (`open_loop`).

The rotor model of `testudo_hardware.motion.rotor_drone` with the torques as accelerations: a gain of each axis
[rad/s² per N of thrust difference], damping of the rates, stiffness of the tilt, an offset, and a balance::

    dw/dt = g u - d w - k (tilt) + b + balance,    T d(balance)/dt = -(share g u + balance)

For a rigid body in still air and a log of every motor command, damping, stiffness and balance are about zero and the
gain is arm over inertia. In flight most of the slow torque of the motors, and of their lift beyond the weight, reacts
to effects outside the model (gusts, downwash, trim): the balances remove that share. A log at a fifth of the
controller's rate lacks most commands; damping and stiffness represent those. All of these are *effective*: they
predict from such a log, and are not properties of the drone alone.
"""

from dataclasses import dataclass

import numpy as np
from scipy.signal import lfilter

from testudo_analysis.identify.drone.flight_segments import FlightRecord
from testudo_hardware.motion.rotor_drone import (
    RotorDroneParameters,
)
from testudo_hardware.spec import RobotSpec

_PARAMETERS: dict[str, tuple[str, float | None, float, float]] = {
    "thrust_scale": ("1", None, 0.5, 2),
    "thrust_lag": ("s", None, 0.003, 0.3),
    "thrust_delay": ("s", 0.015, 0, 0.12),
    "thrust_most": ("N", None, 1.15, 4),
    "drag_across": ("kg/s", None, 0, 0.3),
    "drag_along": ("kg/s", None, 0, 0.3),
    "roll_gain": ("rad/s^2/N", 600.0, 0.5, 5000),
    "pitch_gain": ("rad/s^2/N", 600.0, 0.5, 5000),
    "yaw_gain": ("rad/s^2/N", 60.0, 0.5, 5000),
    "roll_damping": ("1/s", 10.0, 0, 200),
    "pitch_damping": ("1/s", 10.0, 0, 200),
    "yaw_damping": ("1/s", 5.0, 0, 200),
    "tilt_stiffness": ("1/s^2", 20.0, 0, 400),
    "roll_offset": ("rad/s^2", None, -30, 30),
    "pitch_offset": ("rad/s^2", None, -30, 30),
    "yaw_offset": ("rad/s^2", None, -30, 30),
    "balance_share": ("1", 0.8, 0, 1.0),
    "balance_memory": ("s", 0.1, 0.02, 2),
    "lift_share": ("1", 0.3, 0, 1.0),
    "lift_memory": ("s", 0.3, 0.02, 2),
    "force_memory": ("s", 0.05, 0.02, 1),
    "force_share": ("1", 0.8, 0, 1.2),
    "force_decay": ("s", 1.0, 0.05, 20),
}
"""Unit, initial value (None: that of the robot file) and bounds; the bounds of `thrust_most` are in hover thrusts."""
NAMES = tuple(_PARAMETERS)
UNITS = tuple(unit for unit, *_ in _PARAMETERS.values())
_AXES = ("roll", "pitch", "yaw")
RESPONSE_NAMES = NAMES[:20]
"""Parameters that a robot file holds as `[response]`."""
DISTURBANCE = NAMES[20:]
"""Parameters of the causal estimate of the disturbance; unused without it."""


@dataclass(frozen=True)
class DroneModel:
    """Maps a vector of parameters, in the order of `NAMES`, to the rotor model of a robot."""

    spec: RobotSpec
    causal: bool = False
    """Estimate a force from the samples before the start, which then decays; it does not affect the attitude."""
    parts: int = 1  # model steps in a sample

    def file_vector(self) -> np.ndarray:
        """Return the parameters (P,) of the robot file: its `[response]`, or a rigid body in still air."""
        if self.spec.response:
            known = {key.removeprefix("response."): quantity.value for key, quantity in self.spec.response.items()}
            return np.array([known.get(name, _PARAMETERS[name][1]) for name in NAMES], float)
        rotors = {key.removeprefix("rotors."): quantity.value for key, quantity in self.spec.rotors.items()}
        values = {name: rotors.get(name, 0.0) for name in NAMES}
        for axis, lever in zip(_AXES, ("arm", "arm", "torque_per_thrust"), strict=True):
            values[f"{axis}_gain"] = rotors[lever] * rotors["thrust_scale"] / rotors[f"{axis}_inertia"]
        values |= {"balance_memory": 1.0, "lift_memory": 1.0, "force_memory": 0.05, "force_decay": 1.0}
        return np.array([values[name] for name in NAMES])

    def start_vector(self) -> np.ndarray:
        """Return the initial parameters (P,) of a fit: those of the robot file, with tilt stiffness and balances."""
        starts = [start for _, start, _, _ in _PARAMETERS.values()]
        pairs = zip(starts, self.file_vector(), strict=True)
        return np.array([of_file if start is None else start for start, of_file in pairs])

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Return lower and upper bounds (P,) of a fit."""
        low, high = np.array([ends for _, _, *ends in _PARAMETERS.values()], float).T
        scale = np.where(np.array(NAMES) == "thrust_most", self.spec.mass_kg * 9.81 / 4, 1.0)
        return low * scale, high * scale

    def parameters(self, vectors: np.ndarray) -> RotorDroneParameters:
        """Return the rotor model of vectors (P, K); its batch axes are (K, 1)."""
        value = {name: vectors[k][:, None] for k, name in enumerate(NAMES)}
        roll, pitch, yaw = (self.spec.rotors[f"rotors.{axis}_inertia"].value for axis in _AXES)
        inertia = (roll, pitch, yaw)
        lever = [value[f"{axis}_gain"] * inertia[k] / value["thrust_scale"] for k, axis in enumerate(_AXES)]
        damping = [value[f"{axis}_damping"] * inertia[k] for k, axis in enumerate(_AXES)]
        offset = [value[f"{axis}_offset"] * inertia[k] for k, axis in enumerate(_AXES)]
        return RotorDroneParameters(
            mass_kg=self.spec.mass_kg,
            arm_m=(lever[0], lever[1]),
            inertia_kg_m2=inertia,
            torque_per_thrust_m=lever[2],
            thrust_scale=value["thrust_scale"],
            thrust_lag_s=value["thrust_lag"],
            drag_kg_s=(value["drag_across"], value["drag_across"], value["drag_along"]),
            rate_damping_n_m_s=(damping[0], damping[1], damping[2]),
            torque_offset_n_m=(offset[0], offset[1], offset[2]),
            # commands are clipped before they are delayed
            thrust_least_n=-np.inf,
            thrust_most_n=np.inf,
        )

    def clipped(self, flight: FlightRecord, vector: np.ndarray) -> np.ndarray:
        """Return the logged commands (4, T) [N], clipped to the rotor limits at the battery voltage."""
        most = vector[NAMES.index("thrust_most")]
        if flight.battery_v is not None:
            rotors = self.spec.rotors
            drop_v = flight.battery_v - rotors["rotors.battery"].value
            most = most + rotors["rotors.thrust_most_per_volt"].value * drop_v
        return np.clip(flight.thrust_command, 0.0, most)

    def driven(self, flight: FlightRecord, vector: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return command and thrust after clipping, delay and lag: see `driven`."""
        lag, delay = (vector[NAMES.index(name)] for name in ("thrust_lag", "thrust_delay"))
        return driven(self.clipped(flight, vector), flight.period_s, lag, delay, self.parts)


def driven(
    clipped: np.ndarray, period_s: float, lag_s: float, delay_s: float, parts: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Return command and thrust (F, 4, T) [N] after delay and lag of commands (4, T) [N], in F parts of each sample.

    With a delay of no whole number of parts, two commands act in one. The thrust at the beginning of a part is exact;
    the command is the constant one that gives the mean thrust of the part from there.
    """
    clipped, period = np.repeat(clipped, parts, axis=1), period_s / parts
    late = delay_s / period
    whole = int(late)
    share = late - whole
    index = np.arange(clipped.shape[1])
    newer, older = (clipped[:, np.maximum(index - back, 0)] for back in (whole, whole + 1))
    decay, rest = np.exp(-period / lag_s), np.exp(-(1 - share) * period / lag_s)
    after = lfilter(
        [1.0], [1.0, -decay], older * (rest - decay) + newer * (1 - rest), axis=1, zi=decay * clipped[:, :1]
    )[0]
    thrust = np.concatenate([clipped[:, :1], after[:, :-1]], axis=1)
    mean = share * older + (1 - share) * newer - (after - thrust) * lag_s / period
    kept = (1 - decay) * lag_s / period
    command = (mean - kept * thrust) / (1 - kept)
    held, begun = (np.moveaxis(values.reshape(len(values), -1, parts), 2, 0) for values in (command, thrust))
    return held, begun
