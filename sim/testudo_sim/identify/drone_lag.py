"""Delay and lag of the rotors from the fast part of the response, where the motors and not disturbances move the body.

Below some hertz a flight controller answers disturbances (gusts, downwash of others, its own trim), so that torque
and rotation are related by the controller rather than by the drone. Above, the rates follow the thrust differences;
both are filtered to a band, and delay, lag and gains are those that leave the least of the rates unexplained.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.interpolate import RectBivariateSpline
from scipy.signal import butter, lfilter, sosfiltfilt

from testudo_hardware.motion.rotor_drone import PITCH_SIGNS, ROLL_SIGNS, YAW_SIGNS
from testudo_sim.identify.drone_flights import Flight

_BAND_HZ = (5.0, 25.0)
_LAGS_S = np.geomspace(0.01, 0.25, 15)
_DELAYS_S = np.linspace(0.0, 0.05, 21)
_FINER = 20
"""The surface of what is explained is interpolated to so many points between two of the grid, and about the best of
them again."""
_ZOOMS = 2
_MIX = np.array([ROLL_SIGNS, PITCH_SIGNS, YAW_SIGNS])


@dataclass(frozen=True)
class FastResponse:
    """What the fast part of the flights says."""

    lag_s: float
    delay_s: float
    gains: tuple[float, float, float]
    """Of roll, pitch, yaw [rad/s² per N]: arm, and drag torque ratio, over inertia."""
    explained: tuple[float, float, float]
    """Share of the power of each rate in the band that the motors explain."""
    pieces: int = 0
    """How many the flights were cut into."""

    @property
    def inside(self) -> bool:
        """Return whether lag and delay are not at the end of what was searched."""
        return bool(1.02 * _LAGS_S[0] < self.lag_s < 0.98 * _LAGS_S[-1] and self.delay_s < 0.98 * _DELAYS_S[-1])


def fast_responses(flights: Sequence[Flight], commands: Sequence[np.ndarray], draws: int = 0
                   ) -> list[FastResponse]:
    """Return the response of all flights, and of ``draws`` draws of their pieces with replacement, for intervals.

    Args:
        flights: at one rate, at least 60 Hz.
        commands: of each, (4, T) [N], clipped to what the rotors can do.
        draws: how many.
    """
    sums = np.array([_sums(piece) for flight, command in zip(flights, commands, strict=True)
                     for piece in _pieces(flight, command)])
    rng = np.random.default_rng(0)
    count = len(sums)
    times = [np.ones(count), *(rng.multinomial(count, np.full(count, 1 / count)) for _ in range(draws))]
    return [replace(_best(np.tensordot(each, sums, 1)), pieces=count) for each in times]


@dataclass(frozen=True)
class _Piece:
    """A stretch without gaps."""

    period_s: float
    rates: np.ndarray
    """(3, T) [rad/s], filtered to the band."""
    mixed: np.ndarray
    """(3, T) [N]: thrust differences as commanded, filtered to the band."""
    edge: int
    """Samples at either end that the filter spoils."""


def _pieces(flight: Flight, command: np.ndarray, length_s: float = 3.0) -> list[_Piece]:
    period = flight.period_s
    breaks = np.flatnonzero(np.diff(flight.stamp_s) > 1.25 * period) + 1
    found = []
    for stretch in np.split(np.arange(len(flight.stamp_s)), breaks):
        parts = max(1, round(len(stretch) * period / length_s))
        for part in np.array_split(stretch, parts):
            if len(part) * period < 1.0:
                continue
            rates, mixed = (_band(values[:, part], period) for values in (flight.rates_body, _MIX @ command))
            found.append(_Piece(period, rates, mixed, round(0.15 / period)))
    return found


def _band(values: np.ndarray, period_s: float) -> np.ndarray:
    high = min(_BAND_HZ[1], 0.4 / period_s)
    return sosfiltfilt(butter(2, (_BAND_HZ[0], high), "bandpass", fs=1 / period_s, output="sos"), values, axis=1)


def _sums(piece: _Piece) -> np.ndarray:
    """Return sums of products (lags, delays, 3 products, 3 axes): driven and rates, driven twice, rates twice."""
    inside = slice(piece.edge, -piece.edge)
    found = np.empty((len(_LAGS_S), len(_DELAYS_S), 3, 3))
    rates = piece.rates[:, inside]
    for i, lag in enumerate(_LAGS_S):
        gain = 1 - np.exp(-piece.period_s / lag)
        after = lfilter([gain], [1, gain - 1], piece.mixed, axis=1)
        before = np.concatenate([0 * after[:, :1], after[:, :-1]], axis=1)
        # exact mean of the lagged command over each step, then its integral at the samples
        mean = piece.mixed + (before - after) * lag / piece.period_s
        total = np.concatenate([np.zeros((3, 1)), np.cumsum(mean, axis=1)[:, :-1]], axis=1) * piece.period_s
        for j, delay in enumerate(_DELAYS_S):
            # and between them, where a delayed sample lies: so long after the sample that many before
            back = int(np.ceil(delay / piece.period_s - 1e-9))
            late = back * piece.period_s - delay
            between = total + piece.mixed * late - (before - piece.mixed) * lag * np.expm1(-late / lag)
            driven = np.concatenate([np.zeros((3, back)), between[:, :between.shape[1] - back]], axis=1)[:, inside]
            driven = driven - driven.mean(axis=1, keepdims=True)
            found[i, j] = (driven * rates).sum(axis=1), (driven**2).sum(axis=1), (rates**2).sum(axis=1)
    return found


def _best(sums: np.ndarray) -> FastResponse:
    """Return the response that explains most of roll and pitch, from the grid of sums, interpolated."""
    shares = sums[:, :, 0] ** 2 / np.maximum(sums[:, :, 1] * sums[:, :, 2], 1e-30)
    ratios = sums[:, :, 0] / np.maximum(sums[:, :, 1], 1e-30)
    weight = sums[0, 0, 2, :2]
    place = np.log(_LAGS_S), _DELAYS_S
    surface = RectBivariateSpline(*place, (shares[:, :, :2] * weight).sum(axis=-1) / weight.sum())
    lags, delays = (np.linspace(axis[0], axis[-1], _FINER * (len(axis) - 1) + 1) for axis in place)
    for _ in range(_ZOOMS):
        fine = surface(lags, delays)
        i, j = np.unravel_index(np.argmax(fine), fine.shape)
        lag, delay = lags[i], delays[j]
        lags, delays = _around(lags, i), _around(delays, j)
    gains, explained = (tuple(float(RectBivariateSpline(*place, values[:, :, k])(lag, delay)[0, 0]) for k in range(3))
                        for values in (ratios, shares))
    return FastResponse(float(np.exp(lag)), float(delay), gains, explained)


def _around(axis: np.ndarray, at: int) -> np.ndarray:
    """Return points between the neighbours of one point of an axis."""
    return np.linspace(axis[max(at - 1, 0)], axis[min(at + 1, len(axis) - 1)], 2 * _FINER + 1)
