"""The fitted model of a quadrotor, and its open-loop prediction from logged motor signals.

The rotor model of `testudo_hardware.motion.rotor_drone` with the torques as accelerations: a gain of each axis
[rad/s² per N of thrust difference], damping of the rates, stiffness of the tilt, an offset, and a balance::

    dw/dt = g u - d w - k (tilt) + b + balance,    T d(balance)/dt = -(share g u + balance)

For a rigid body in still air and a log of every motor command, damping, stiffness and balance are about zero and the
gain is arm over inertia. In flight most of the slow torque of the motors, and of their lift beyond the weight, reacts
to effects outside the model (gusts, downwash, trim): the balances remove that share. A log at a fifth of the
controller's rate lacks most commands; damping and stiffness represent those. All of these are *effective*: they
predict from such a log, and are not properties of the drone alone.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any

import numpy as np
from scipy.signal import lfilter

from testudo_analysis.identify.drone.flight_segments import FlightRecord, FlightSamples
from testudo_hardware.frames import conjugate, multiply, rotate_back, rotation_vector
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


def predict(
    model: DroneModel,
    samples: FlightSamples,
    vectors: np.ndarray,
    marks: tuple[int, ...],
    push: Callable[[int, np.ndarray], tuple[np.ndarray, np.ndarray]] | None = None,
) -> dict[int, RotorDroneState]:
    """Return the states (.., K, S) at numbers of samples after the starts.

    ``samples`` have S starts, ``vectors`` (P, K) are parameters, ``marks`` numbers of samples, at most
    ``samples.steps``. ``push`` gives accelerations (3, K, S) of place and rotation, of the number of a sample after the
    starts and the time (S,) [s] for which they act, in order.
    """
    parameters = model.parameters(vectors)
    signals = _Signals.create(model, samples, vectors)
    count = vectors.shape[1]
    state = RotorDroneState(
        *(
            np.repeat(samples.at(name)[:, None], count, axis=1)
            for name in ("position_world", "quaternion_xyzw", "velocity_world", "rates_body")
        ),
        thrust=signals.thrust(0, 0),
    )
    slow = SlowResponse.create(dict(zip(NAMES, vectors[..., None], strict=True)))
    balances_now, elapsed, found = Balances(signals.balance, signals.lift), 0.0, {}
    for k, part in product(range(max(marks)), range(model.parts)):
        duration, wanted = samples.durations(k) / model.parts, signals.command(k, part)
        state = replace(state, thrust=signals.thrust(k, part))
        force, turning = signals.force(elapsed + duration / 2), 0.0
        if push is not None:
            more, turning = push(k, duration)
            force = force + more
        state, balances_now = slow.step(parameters, state, balances_now, wanted, duration, force, turning)
        elapsed = elapsed + duration
        if k + 1 in marks and part == model.parts - 1:
            found[k + 1] = state
    return found


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


def errors(samples: FlightSamples, mark: int, state: RotorDroneState) -> tuple[np.ndarray, np.ndarray]:
    """Return position errors (3, K, S) [m] and rotation vectors (3, K, S) [rad] from the prediction to the log."""
    position = state.position_world - samples.at("position_world", mark)[:, None]
    logged = np.broadcast_to(samples.at("quaternion_xyzw", mark)[:, None], state.quaternion_xyzw.shape)
    return position, rotation_vector(multiply(conjugate(state.quaternion_xyzw), logged))


@dataclass(frozen=True)
class _Signals:
    """Inputs of a prediction: commands, thrust, and the causal estimates."""

    samples: FlightSamples
    driven: list[list[tuple[np.ndarray, np.ndarray]]]  # by candidate and flight: command and thrust (F, 4, T)
    balance: np.ndarray  # (3, K, S) [rad/s²]: at the starts
    lift: np.ndarray  # (K, S) [m/s²]: the same of the lift
    force_start: np.ndarray | None  # (3, K, S) [m/s²]; None without an estimate
    force_decay: np.ndarray  # (K, 1) [s]

    @classmethod
    def create(cls, model: DroneModel, samples: FlightSamples, vectors: np.ndarray) -> "_Signals":
        series: dict[bytes, list[tuple[np.ndarray, np.ndarray]]] = {}
        driving = [NAMES.index(name) for name in ("thrust_lag", "thrust_delay", "thrust_most")]
        used = []
        for vector in vectors.T:
            key = vector[driving].tobytes()
            if key not in series:
                series[key] = [model.driven(flight, vector) for flight in samples.flights]
            used.append(series[key])
        thrusts = [[thrust[0] for _, thrust in one] for one in used]
        slow = [
            [balances(model, flight, vector, thrust) for flight, thrust in zip(samples.flights, one, strict=True)]
            for vector, one in zip(vectors.T, thrusts, strict=True)
        ]
        balance, lift = (
            np.stack([samples.gather([each[part] for each in one]) for one in slow], axis=-2) for part in (0, 1)
        )
        force = None
        if model.causal:
            pairs = zip(vectors.T, thrusts, strict=True)
            force = np.stack([held_force(model, samples, vector, one) for vector, one in pairs], axis=1)
        return cls(samples, used, balance, lift, force, vectors[NAMES.index("force_decay")][:, None])

    def command(self, shift: int, part: int) -> np.ndarray:
        """Return the command (4, K, S) in a part of the sample ``shift`` samples after the starts."""
        return self._gathered(0, shift, part)

    def thrust(self, shift: int, part: int) -> np.ndarray:
        """Return the thrust (4, K, S) at the beginning of that part."""
        return self._gathered(1, shift, part)

    def _gathered(self, which: int, shift: int, part: int) -> np.ndarray:
        known: dict[int, np.ndarray] = {}
        for driven in self.driven:
            if id(driven) not in known:
                known[id(driven)] = self.samples.gather([each[which][part] for each in driven], shift)
        return np.stack([known[id(driven)] for driven in self.driven], axis=1)

    def force(self, elapsed_s: np.ndarray) -> np.ndarray:
        """Return the acceleration (3, K, S) [m/s²] of the disturbance, a time (S,) after the starts."""
        if self.force_start is None:
            return np.zeros((3, *self.balance.shape[1:]))
        return self.force_start * np.exp(-elapsed_s / self.force_decay)


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
