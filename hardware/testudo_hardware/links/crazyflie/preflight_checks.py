"""What has to be right before a Crazyflie may be flown by velocities over its radio; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from testudo_hardware.links.crazyflie.telemetry import PERIOD_MS

CONTROLLERS = {1: "pid", 2: "mellinger", 3: "indi", 4: "brescianini", 5: "lee"}
ESTIMATORS = {1: "complementary", 2: "kalman", 3: "ukf"}
CONTROLLER, ESTIMATOR = "stabilizer.controller", "stabilizer.estimator"
_RATE_SHARE = 0.8
MOST_TRIP_S = 0.1
"""A round trip by radio that takes longer leaves the shield too little time."""


@dataclass(frozen=True)
class MeasuredSettings:
    """How good the radio is, measured before the first flight."""

    rate_hz: float
    """At which packets of the log block arrive."""
    least_trip_s: float | None
    """The shortest round trip; None if no echo came back."""


def parameter_faults(values: Mapping[str, float]) -> list[str]:
    """Return what is wrong with the parameters of a vehicle, each as one sentence that says what to change."""
    faults = []
    controller, estimator = (int(values.get(name, 0)) for name in (CONTROLLER, ESTIMATOR))
    if controller != 1:
        faults.append(
            f"{CONTROLLER}: found {controller} ({CONTROLLERS.get(controller, 'unknown')}), expected 1 (pid): "
            "other controllers do not follow velocity set-points as the robot file describes"
        )
    if estimator != 2:
        faults.append(
            f"{ESTIMATOR}: found {estimator} ({ESTIMATORS.get(estimator, 'unknown')}), expected 2 (kalman): "
            "others do not know where the drone is"
        )
    return faults


def radio_faults(measured: MeasuredSettings) -> list[str]:
    """Return what is wrong with the radio, each as one sentence that says what to change."""
    faults, expected_hz = [], 1000 / PERIOD_MS
    if measured.rate_hz < _RATE_SHARE * expected_hz:
        faults.append(
            f"log block: found {measured.rate_hz:.0f} Hz, expected {_RATE_SHARE * expected_hz:.0f} to "
            f"{expected_hz:.0f} Hz: use a channel of its own at 2M, or fewer drones on one Crazyradio"
        )
    if measured.least_trip_s is None or measured.least_trip_s > MOST_TRIP_S:
        found = "no echo" if measured.least_trip_s is None else f"{1000 * measured.least_trip_s:.0f} ms"
        faults.append(f"radio: found {found} for a round trip, expected at most {1000 * MOST_TRIP_S:.0f} ms")
    return faults
