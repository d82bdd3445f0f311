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

from testudo_analysis.identify.drone.flight_segments import FlightRecord
from testudo_hardware.motion.rotor_drone import PITCH_SIGNS, ROLL_SIGNS, YAW_SIGNS

_BAND_HZ = (5.0, 25.0)
_PIECE_S, _SHORTEST_S = 3.0, 1.0
"""Length of the pieces that draws are made of, and of the shortest stretch without a gap that is used."""
_EDGE_S = 0.4
"""Time at either end of a stretch in which the filter and the lag still hold what they began with: with 0.15 s lags
came out up to 3.6 ms too short, and delays 0.5 ms too long."""
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


def fast_responses(
    flights: Sequence[FlightRecord], commands: Sequence[np.ndarray], draws: int = 0
) -> list[FastResponse]:
    """Return the response of all flights, and of ``draws`` draws of their pieces with replacement, for intervals.

    Args:
        flights: at one rate, at least 60 Hz.
        commands: of each, (4, T) [N], clipped to what the rotors can do.
        draws: how many.
    """
    sums = np.concatenate(
        [
            _sums(stretch)
            for flight, command in zip(flights, commands, strict=True)
            for stretch in _stretches(flight, command)
        ]
    )
    rng = np.random.default_rng(0)
    count = len(sums)
    times = [np.ones(count), *(rng.multinomial(count, np.full(count, 1 / count)) for _ in range(draws))]
    return [replace(_best(np.tensordot(each, sums, 1)), pieces=count) for each in times]


@dataclass(frozen=True)
class _Stretch:
    """Samples without gaps, and the pieces that they are cut into; each is filtered as a whole."""

    period_s: float
    rates: np.ndarray
    """(3, T) [rad/s], filtered to the band."""
    mixed: np.ndarray
    """(3, T) [N]: thrust differences as commanded, filtered to the band."""
    pieces: list[np.ndarray]
    """Samples of each, none of which the ends of the filter spoil."""


def _stretches(flight: FlightRecord, command: np.ndarray) -> list[_Stretch]:
    period = flight.period_s
    breaks = np.flatnonzero(np.diff(flight.stamp_s) > 1.25 * period) + 1
    found = []
    for stretch in np.split(np.arange(len(flight.stamp_s)), breaks):
        length_s = len(stretch) * period
        if length_s < _SHORTEST_S:
            continue
        edge = round(min(_EDGE_S, length_s / 4) / period)
        inside = np.arange(edge, len(stretch) - edge)
        pieces = np.array_split(inside, max(1, round(len(inside) * period / _PIECE_S)))
        rates, mixed = (_band(values[:, stretch], period) for values in (flight.rates_body, _MIX @ command))
        found.append(_Stretch(period, rates, mixed, pieces))
    return found


def _band(values: np.ndarray, period_s: float) -> np.ndarray:
    high = min(_BAND_HZ[1], 0.4 / period_s)
    return sosfiltfilt(butter(2, (_BAND_HZ[0], high), "bandpass", fs=1 / period_s, output="sos"), values, axis=1)


def _sums(stretch: _Stretch) -> np.ndarray:
    """Return sums of products of each piece (pieces, lags, delays, 3, 3 axes).

    Products: driven and rates, driven twice, rates twice.
    """
    found = np.empty((len(stretch.pieces), len(_LAGS_S), len(_DELAYS_S), 3, 3))
    rates, mixed, period = stretch.rates, stretch.mixed, stretch.period_s
    for i, lag in enumerate(_LAGS_S):
        gain = 1 - np.exp(-period / lag)
        after = lfilter([gain], [1, gain - 1], mixed, axis=1)
        before = np.concatenate([0 * after[:, :1], after[:, :-1]], axis=1)
        # exact mean of the lagged command over each step, then its integral at the samples
        mean = mixed + (before - after) * lag / period
        total = np.concatenate([np.zeros((3, 1)), np.cumsum(mean, axis=1)[:, :-1]], axis=1) * period
        for j, delay in enumerate(_DELAYS_S):
            # and between them, where a delayed sample lies: so long after the sample that many before
            back = int(np.ceil(delay / period - 1e-9))
            late = back * period - delay
            between = total + mixed * late - (before - mixed) * lag * np.expm1(-late / lag)
            driven = np.concatenate([np.zeros((3, back)), between[:, : between.shape[1] - back]], axis=1)
            for k, piece in enumerate(stretch.pieces):
                mine, theirs = (values[:, piece] for values in (driven, rates))
                mine = mine - mine.mean(axis=1, keepdims=True)
                found[k, i, j] = (mine * theirs).sum(axis=1), (mine**2).sum(axis=1), (theirs**2).sum(axis=1)
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
    gains, explained = (
        tuple(float(RectBivariateSpline(*place, values[:, :, k])(lag, delay)[0, 0]) for k in range(3))
        for values in (ratios, shares)
    )
    return FastResponse(float(np.exp(lag)), float(delay), gains, explained)


def _around(axis: np.ndarray, at: int) -> np.ndarray:
    """Return points between the neighbours of one point of an axis."""
    return np.linspace(axis[max(at - 1, 0)], axis[min(at + 1, len(axis) - 1)], 2 * _FINER + 1)
