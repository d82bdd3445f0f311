"""What a fit of flights says in the words of a robot file, and what it cannot say."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from testudo_analysis.identify.drone.drone_fit import EXPLAINED, DroneFit
from testudo_analysis.identify.drone.fitted_model import DISTURBANCE, NAMES, UNITS
from testudo_analysis.identify.drone.flight_segments import FlightRecord
from testudo_analysis.identify.drone.rotor_lag import FastResponse
from testudo_analysis.identify.estimation.bootstrap_uncertainty import BootstrapSpread
from testudo_analysis.identify.estimation.identification_result import Estimate
from testudo_hardware.schema import ROTORS
from testudo_hardware.spec import RobotSpec

SEEN = 0.3
"""Share of the fast rates that the motors must explain before lag and delay count as determined."""
_SATURATED = 0.002
"""Share of commands above the largest thrust from which that shows."""
_MASS = (
    "motor signals and motion tell thrust over mass only, so that the thrust scale holds for this mass; to find "
    "it: a scale"
)
_INERTIA = (
    "the logged motor signals explain only {share:.0%} of the fast rates, so that arm over inertia is too "
    "small; to find it: log the motors at the rate of the controller, with quick steps of the {axis} rate"
)
_LAG = "the fast rates do not follow the motors; to find it: quick steps of roll and pitch rate, logged at 100 Hz"
_MOST = "the commands are hardly ever above it; to find it: a climb at full thrust, or turns at high load"
_TRADED = (
    "clipped commands and what the logged motors do not explain trade off; to find it: log the PWM, and climb "
    "at full thrust"
)
_EFFECTIVE = "effective: predicts from logs of this kind, no property of the drone alone"


def drone_estimates(fit: DroneFit, flights: Sequence[FlightRecord], spec: RobotSpec) -> tuple[Estimate, ...]:
    """Return the estimates of a fit; keys of the robot file, and `response.*` for what has no key there."""
    mass = spec.quantities["geometry.mass"]
    rows = [
        Estimate("geometry.mass", mass.value, mass.low, mass.high, "kg", False, _MASS),
        _direct(fit, "thrust_scale", note=f"for a mass of {mass.value:g} kg"),
    ]
    moving = bool(min(fit.fast[0].explained[:2]) >= SEEN and fit.fast[0].inside)
    rows += [_direct(fit, name, moving, "" if moving else _LAG) for name in ("thrust_lag", "thrust_delay")]
    rows += [_direct(fit, name) for name in ("drag_across", "drag_along")]
    above = np.mean(np.concatenate([flight.thrust_command.ravel() > fit.value("thrust_most") for flight in flights]))
    seen, explained = bool(above >= _SATURATED), bool(min(fit.fast[0].explained[:2]) >= EXPLAINED)
    note = "" if seen and explained else _TRADED if seen else _MOST
    rows.append(_direct(fit, "thrust_most", seen and explained, note))
    rows += _inertias(fit, spec)
    effective = [name for name in NAMES if f"rotors.{name}" not in ROTORS]
    rows += [
        Estimate(f"response.{name}", fit.value(name), *fit.interval(name), UNITS[NAMES.index(name)], True, _EFFECTIVE)
        for name in effective
        if name not in DISTURBANCE or fit.model.causal
    ]
    return tuple(rows)


def _direct(fit: DroneFit, name: str, determined: bool = True, note: str = "") -> Estimate:
    return Estimate(
        f"rotors.{name}", fit.value(name), *fit.interval(name), ROTORS[f"rotors.{name}"].unit, determined, note
    )


def _inertias(fit: DroneFit, spec: RobotSpec) -> list[Estimate]:
    """Return inertias, and for yaw the torque ratio, from the gains of the fast response."""
    rotors, scale = spec.rotors, fit.value("thrust_scale")
    gains = np.array([each.gains for each in fit.fast])
    found = []
    for k, axis in enumerate(("roll", "pitch")):
        values = rotors["rotors.arm"].value * scale / np.maximum(gains[:, k], 1e-9)
        found.append(_from_draws(f"rotors.{axis}_inertia", values, fit.fast[0], fit.fast[0].explained[k], axis))
    ratio = np.maximum(gains[:, 2], 0) * rotors["rotors.yaw_inertia"].value / scale
    return [*found, _from_draws("rotors.torque_per_thrust", ratio, fit.fast[0], fit.fast[0].explained[2], "yaw")]


def _from_draws(key: str, values: np.ndarray, fast: FastResponse, explained: float, axis: str) -> Estimate:
    value = values[0]
    low = high = value
    if len(values) > 1:
        low, high = (float(end[0]) for end in BootstrapSpread(values[1:, None], fast.pieces, 1).interval(values[:1]))
    note = _INERTIA.format(share=max(explained, 0.0), axis=axis) if explained < EXPLAINED else ""
    return Estimate(
        key,
        float(value),
        float(max(min(low, value), 0.0)),
        float(max(high, value)),
        ROTORS[key].unit,
        bool(explained >= EXPLAINED),
        note,
    )
