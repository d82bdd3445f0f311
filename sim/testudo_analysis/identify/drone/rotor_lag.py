"""Delay and lag of the rotors from the fast part of the response, which the motors cause and not disturbances.

At low frequencies the flight controller reacts to disturbances (gusts, downwash, its own trim), so the controller
relates torque and rotation, not the drone. At high frequencies the rates follow the thrust differences; both are
filtered to a band, and delay, lag and gains explain as much of the rates as possible.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.interpolate import RectBivariateSpline
from scipy.signal import butter, lfilter, sosfiltfilt

from testudo_analysis.identify.drone.flight_segments import FlightRecord
from testudo_hardware.motion.rotor_drone import PITCH_SIGNS, ROLL_SIGNS, YAW_SIGNS

_BAND_HZ = (5.0, 25.0)
_PIECE_S, _SHORTEST_S = 3.0, 1.0  # length of the drawn pieces, and of the shortest used stretch without a gap
_EDGE_S = 0.4
"""Transient of filter and lag at both ends of a stretch: with 0.15 s, lags were up to 3.6 ms too short and delays
0.5 ms too long."""
_LAGS_S = np.geomspace(0.01, 0.25, 15)
_DELAYS_S = np.linspace(0.0, 0.05, 21)
_FINER = 20  # interpolated points between two grid points; again about the best of them
_ZOOMS = 2
_MIX = np.array([ROLL_SIGNS, PITCH_SIGNS, YAW_SIGNS])


@dataclass(frozen=True)
class FastResponse:
    """Parameters of the fast response."""

    lag_s: float
    delay_s: float
    gains: tuple[float, float, float]  # of roll, pitch, yaw [rad/s² per N]: arm, and drag torque ratio, over inertia
    explained: tuple[float, float, float]  # share of the power of each rate in the band that the motors explain
    pieces: int = 0  # number of pieces of the flights

    @property
    def inside(self) -> bool:
        """Return whether lag and delay are inside the search range."""
        return bool(1.02 * _LAGS_S[0] < self.lag_s < 0.98 * _LAGS_S[-1] and self.delay_s < 0.98 * _DELAYS_S[-1])


def fast_responses(
    flights: Sequence[FlightRecord], commands: Sequence[np.ndarray], draws: int = 0
) -> list[FastResponse]:
    """Return the response of all flights, and of ``draws`` draws of their pieces with replacement for intervals.

    ``flights`` are at one rate, at least 60 Hz; ``commands`` of each, (4, T) [N], are clipped to the rotor limits.
    """
    pairs = zip(flights, commands, strict=True)
    sums = np.concatenate([_sums(stretch) for pair in pairs for stretch in _stretches(*pair)])
    rng = np.random.default_rng(0)
    count = len(sums)
    times = [np.ones(count), *(rng.multinomial(count, np.full(count, 1 / count)) for _ in range(draws))]
    return [replace(_best(np.tensordot(each, sums, 1)), pieces=count) for each in times]


@dataclass(frozen=True)
class _Stretch:
    """A stretch without gaps, filtered as a whole, and its pieces."""

    period_s: float
    rates: np.ndarray  # (3, T) [rad/s], filtered to the band
    mixed: np.ndarray  # (3, T) [N]: thrust differences as commanded, filtered to the band
    pieces: list[np.ndarray]  # samples of each piece, without the transients of the filter


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
        after = np.asarray(lfilter([gain], [1, gain - 1], mixed, axis=1))
        before = np.concatenate([0 * after[:, :1], after[:, :-1]], axis=1)
        # exact mean of the lagged command over each step, and its integral at the samples
        mean = mixed + (before - after) * lag / period
        total = np.concatenate([np.zeros((3, 1)), np.cumsum(mean, axis=1)[:, :-1]], axis=1) * period
        for j, delay in enumerate(_DELAYS_S):
            # a delayed sample is between them
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
        i, j = (int(k) for k in np.unravel_index(np.argmax(fine), fine.shape))
        lag, delay = lags[i], delays[j]
        lags, delays = _around(lags, i), _around(delays, j)

    def at_best(values: np.ndarray) -> tuple[float, float, float]:
        roll, pitch, yaw = (float(RectBivariateSpline(*place, values[:, :, k])(lag, delay)[0, 0]) for k in range(3))
        return roll, pitch, yaw

    return FastResponse(float(np.exp(lag)), float(delay), at_best(ratios), at_best(shares))


def _around(axis: np.ndarray, at: int) -> np.ndarray:
    """Return points between the neighbours of a point of an axis."""
    return np.linspace(axis[max(at - 1, 0)], axis[min(at + 1, len(axis) - 1)], 2 * _FINER + 1)
