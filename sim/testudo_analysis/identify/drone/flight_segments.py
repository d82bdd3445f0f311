"""Flights of quadrotors, each on one clock, and the starts of predictions."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from testudo_hardware.frames import normalised, rotate
from testudo_runs.recording.recording import RecordingError, RobotRecording, Series

_GAP_RATIO = 1.25  # a step longer than so many median steps is a gap


@dataclass(frozen=True)
class FlightRecord:
    """One drone's flight at the stamps of its odometry; T samples."""

    name: str
    robot: str
    stamp_s: np.ndarray  # (T,), rising
    position_world: np.ndarray = field(repr=False)  # (3, T) [m]
    quaternion_xyzw: np.ndarray = field(repr=False)  # (4, T): body to world
    velocity_world: np.ndarray = field(repr=False)  # (3, T) [m/s]
    rates_body: np.ndarray = field(repr=False)  # (3, T) [rad/s]
    thrust_command: np.ndarray = field(repr=False)  # (4, T) [N]: as logged, held until the next sample
    battery_v: np.ndarray | None = field(default=None, repr=False)  # (T,) [V]; None if not recorded

    @property
    def period_s(self) -> float:
        """Return the median time between samples."""
        return float(np.median(np.diff(self.stamp_s)))


def flight_of(recording: RobotRecording, name: str = "") -> FlightRecord:
    """Return the flight of a robot with recorded odometry and motors.

    Raises:
        RecordingError: a role is missing, or fewer than a hundred samples remain.
    """
    odometry, motors = _rising(recording.find("odometry")), _rising(recording.find("motors"))
    inside = (odometry.stamp_s >= motors.stamp_s[0]) & (odometry.stamp_s <= motors.stamp_s[-1])
    stamp, values = odometry.stamp_s[inside], odometry.values[inside].T
    if len(stamp) < 100:
        raise RecordingError(
            f"{recording.name}: found {len(stamp)} samples with odometry and motors, expected at least 100"
        )
    quaternion = normalised(values[3:7])
    latest = np.searchsorted(motors.stamp_s, stamp + 1e-6, side="right") - 1
    battery = recording.series.get("battery")
    voltage = None
    if battery is not None and len(battery):
        battery = _rising(battery)
        voltage = np.interp(stamp, battery.stamp_s, battery.values[:, 0])
    state = values[:3], quaternion, rotate(quaternion, values[7:10]), values[10:13]
    return FlightRecord(name or recording.name, recording.name, stamp, *state, motors.values[latest].T, voltage)


def _rising(series: Series) -> Series:
    """Return the finite samples with rising stamps."""
    sound = np.isfinite(series.stamp_s) & np.isfinite(series.values).all(axis=1)
    stamp, values = series.stamp_s[sound], series.values[sound]
    if not len(stamp):
        raise RecordingError("a series has no finite sample")
    newest = np.maximum.accumulate(stamp)
    later = np.concatenate([[True], stamp[1:] > newest[:-1]])
    return Series(stamp[later], values[later])


def piece_of(flight: FlightRecord, begin: float, end: float) -> FlightRecord:
    """Return the part of a flight between two fractions of its samples."""
    part = slice(round(begin * len(flight.stamp_s)), round(end * len(flight.stamp_s)))
    return replace(
        flight,
        stamp_s=flight.stamp_s[part],
        **{
            name: getattr(flight, name)[..., part]
            for name in ("position_world", "quaternion_xyzw", "velocity_world", "rates_body", "thrust_command")
        },
        battery_v=None if flight.battery_v is None else flight.battery_v[part],
    )


@dataclass(frozen=True)
class PredictionWindows:
    """Starts and horizon of predictions."""

    horizon_s: float = 0.5
    spacing_s: float = 0.05
    history_s: float = 0.5  # time before a start without a gap
    least_height_m: float = 0.25  # lower starts are on the floor or in ground effect

    def starts(self, flight: FlightRecord) -> np.ndarray:
        """Return the samples (S,) from which a prediction can start."""
        period = flight.period_s
        ahead, before = round(self.horizon_s / period) + 1, round(self.history_s / period)
        candidates = np.arange(before, len(flight.stamp_s) - ahead - 1, max(1, round(self.spacing_s / period)))
        late = np.concatenate([[0], np.cumsum(np.diff(flight.stamp_s) > _GAP_RATIO * period), [0]])
        whole = late[candidates + ahead] == late[candidates - before]
        return candidates[whole & (flight.position_world[2, candidates] > self.least_height_m)]


@dataclass(frozen=True)
class FlightSamples:
    """S starts of predictions in several flights."""

    flights: tuple[FlightRecord, ...]
    flight: np.ndarray  # (S,): which flight
    start: np.ndarray  # (S,): sample in that flight
    steps: int  # samples of the longest horizon

    @classmethod
    def create(cls, flights: Sequence[FlightRecord], windows: PredictionWindows) -> "FlightSamples":
        """Return all starts of some flights.

        Raises:
            RecordingError: there is none, or the flights have different rates.
        """
        periods = [flight.period_s for flight in flights]
        if not flights or max(periods) > 1.1 * min(periods):
            raise RecordingError(f"flights: found rates of {[round(1 / p) for p in periods]} Hz, expected one rate")
        starts = [windows.starts(flight) for flight in flights]
        if not sum(map(len, starts)):
            raise RecordingError(
                f"flights: found no start with {windows.history_s + windows.horizon_s:g} s without a gap "
                f"above {windows.least_height_m:g} m"
            )
        which = np.concatenate([np.full(len(s), k) for k, s in enumerate(starts)])
        return cls(tuple(flights), which, np.concatenate(starts), round(windows.horizon_s / float(np.median(periods))))

    def mark(self, horizon_s: float) -> int:
        """Return the number of samples of a horizon."""
        return round(horizon_s / self.flights[0].period_s)

    def at(self, name: str, shift: int = 0) -> np.ndarray:
        """Return a field of the flights at ``shift`` samples after the starts: (D, S), or (S,)."""
        parts = [
            getattr(flight, name)[..., self.start[self.flight == k] + shift] for k, flight in enumerate(self.flights)
        ]
        return np.concatenate(parts, axis=-1)

    def gather(self, series: Sequence[np.ndarray], shift: int = 0) -> np.ndarray:
        """Return values (..., T) of each flight at ``shift`` samples after the starts: (..., S)."""
        return np.concatenate(
            [series[k][..., self.start[self.flight == k] + shift] for k in range(len(self.flights))], axis=-1
        )

    def durations(self, shift: int) -> np.ndarray:
        """Return the time (S,) [s] from ``shift`` samples after the starts to the next one."""
        return self.at("stamp_s", shift + 1) - self.at("stamp_s", shift)
