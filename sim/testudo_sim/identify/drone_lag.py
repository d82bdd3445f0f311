"""Delay and lag of the rotors from the fast part of the response, where the motors and not disturbances move the body.

Below some hertz a flight controller answers disturbances (gusts, downwash of others, its own trim), so that torque
and rotation are related by the controller rather than by the drone. Above, the rates follow the thrust differences;
both are filtered to a band, and delay, lag and gains are those that leave the least of the rates unexplained.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.interpolate import RectBivariateSpline
from scipy.signal import butter, lfilter, sosfiltfilt

from testudo_hardware.motion.rotor_drone import PITCH_SIGNS, ROLL_SIGNS, YAW_SIGNS
from testudo_sim.identify.drone_flights import Flight

_BAND_HZ = (5.0, 25.0)
_LAGS_S = np.geomspace(0.01, 0.25, 15)
_DELAYS_S = np.linspace(0.0, 0.05, 11)
_FINER = 20
"""The surface of what stays unexplained is interpolated to so many points between two of the grid."""
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
    return [_best(np.tensordot(each, sums, 1)) for each in times]


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
    stamps = np.arange(piece.mixed.shape[1]) * piece.period_s
    found = np.empty((len(_LAGS_S), len(_DELAYS_S), 3, 3))
    for i, lag in enumerate(_LAGS_S):
        gain = 1 - np.exp(-piece.period_s / lag)
        after = lfilter([gain], [1, gain - 1], piece.mixed, axis=1)
        before = np.concatenate([0 * after[:, :1], after[:, :-1]], axis=1)
        # exact mean of the lagged command over each step, then its integral at the samples
        mean = piece.mixed + (before - after) * lag / piece.period_s
        total = np.concatenate([np.zeros((3, 1)), np.cumsum(mean, axis=1)[:, :-1]], axis=1) * piece.period_s
        rates = piece.rates[:, inside]
        for j, delay in enumerate(_DELAYS_S):
            driven = np.stack([np.interp(stamps - delay, stamps, row) for row in total])[:, inside]
            driven = driven - driven.mean(axis=1, keepdims=True)
            found[i, j] = (driven * rates).sum(axis=1), (driven**2).sum(axis=1), (rates**2).sum(axis=1)
    return found


def _best(sums: np.ndarray) -> FastResponse:
    """Return the response that explains most of roll and pitch, from the grid of sums, interpolated."""
    shares = sums[:, :, 0] ** 2 / np.maximum(sums[:, :, 1] * sums[:, :, 2], 1e-30)
    weight = sums[0, 0, 2, :2]
    surface = (shares[:, :, :2] * weight).sum(axis=-1) / weight.sum()
    lags = np.linspace(*np.log(_LAGS_S[[0, -1]]), _FINER * (len(_LAGS_S) - 1) + 1)
    delays = np.linspace(*_DELAYS_S[[0, -1]], _FINER * (len(_DELAYS_S) - 1) + 1)
    fine = RectBivariateSpline(np.log(_LAGS_S), _DELAYS_S, surface)(lags, delays)
    i, j = np.unravel_index(np.argmax(fine), fine.shape)
    place = np.log(_LAGS_S), _DELAYS_S
    gains = [float(RectBivariateSpline(*place, sums[:, :, 0, k] / np.maximum(sums[:, :, 1, k], 1e-30))(
        lags[i], delays[j])[0, 0]) for k in range(3)]
    explained = [float(RectBivariateSpline(*place, shares[:, :, k])(lags[i], delays[j])[0, 0]) for k in range(3)]
    return FastResponse(float(np.exp(lags[i])), float(delays[j]), tuple(gains), tuple(explained))
