"""Open-loop prediction of a fitted drone from logged motor signals."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from testudo_analysis.identify.drone.causal_estimates import balances, held_force
from testudo_analysis.identify.drone.fitted_model import NAMES, DroneModel
from testudo_analysis.identify.drone.flight_segments import FlightSamples
from testudo_analysis.identify.drone.slow_response import Balances, SlowResponse
from testudo_hardware.frames import conjugate, multiply, rotation_vector
from testudo_hardware.motion.rotor_drone import (
    RotorDroneState,
)


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
