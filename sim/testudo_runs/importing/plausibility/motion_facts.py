"""Speeds and turns of a recorded robot on a common grid of times."""

from dataclasses import dataclass

import numpy as np

from testudo_hardware import frames
from testudo_runs.recording.recording import ROLES, RobotRecording, Series

GRID_S = 0.25
_WINDOW_S = 0.5  # noise of poses counts little over this time
_GAP_S = 1.0  # across longer gaps nothing is known of the motion


@dataclass(frozen=True)
class Motion:
    """Motion by the poses of one role; T grid times with poses around them."""

    role: str
    time_s: np.ndarray  # (T,)
    position_world: np.ndarray  # (T, 3) [m]
    attitude: np.ndarray  # (T, 4): x y z w
    yaw: np.ndarray  # (T,) [rad], unwrapped
    velocity_world: np.ndarray  # (T, 3) [m/s]
    yaw_rate: np.ndarray  # (T,) [rad/s]

    @property
    def speed(self) -> np.ndarray:
        """Return the horizontal speeds (T,) [m/s]."""
        return np.hypot(self.velocity_world[:, 0], self.velocity_world[:, 1])

    @property
    def tilt(self) -> np.ndarray:
        """Return the angles (T,) [rad] between the vertical axes of robot and world."""
        return np.arccos(np.clip(frames.body_up(self.attitude.T)[2], -1.0, 1.0))


def channels_of(role: str, series: Series, *names: str) -> np.ndarray:
    """Return channels (T, C) of a series by name."""
    index = [ROLES[role].channels.index(name) for name in names]
    return series.values[:, index]


def in_order(series: Series) -> Series:
    """Return the samples with rising stamps, of equal stamps the first."""
    stamps, first = np.unique(series.stamp_s, return_index=True)
    return Series(stamps, series.values[first], None, series.frame)


def motion_of(robot: RobotRecording, role: str) -> Motion | None:
    """Return the motion by a role with poses; None if the robot has too few of them."""
    series = robot.series.get(role)
    if series is None or len(series) < 4:
        return None
    series = in_order(series)
    stamps = series.stamp_s
    if len(stamps) < 4 or stamps[-1] - stamps[0] < 2 * _WINDOW_S:
        return None
    grid = np.arange(stamps[0] + _WINDOW_S / 2, stamps[-1] - _WINDOW_S / 2, GRID_S)
    before, after = grid - _WINDOW_S / 2, grid + _WINDOW_S / 2
    first = np.searchsorted(stamps, before, "right") - 1
    last = np.minimum(np.searchsorted(stamps, after, "left"), len(stamps) - 1)
    longest = np.array([np.max(np.diff(stamps[a : b + 1]), initial=0.0) for a, b in zip(first, last, strict=True)])
    grid, before, after = (times[longest < _GAP_S] for times in (grid, before, after))
    place, attitude = channels_of(role, series, "x", "y", "z"), channels_of(role, series, "qx", "qy", "qz", "qw")
    yaw = np.unwrap(frames.heading(attitude.T))

    def at(values: np.ndarray, times: np.ndarray) -> np.ndarray:
        return np.stack([np.interp(times, stamps, column) for column in values.T], axis=1)

    nearest = np.clip(np.searchsorted(stamps, grid), 0, len(stamps) - 1)
    return Motion(
        role,
        grid,
        at(place, grid),
        attitude[nearest],
        np.interp(grid, stamps, yaw),
        (at(place, after) - at(place, before)) / _WINDOW_S,
        (np.interp(after, stamps, yaw) - np.interp(before, stamps, yaw)) / _WINDOW_S,
    )


def means_at(series: Series, role: str, times_s: np.ndarray, *names: str) -> np.ndarray:
    """Return the means (T, C) of channels over the window around each time; NaN where it holds no sample."""
    series = in_order(series)
    values = channels_of(role, series, *names)
    sums = np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(values, axis=0)])
    first = np.searchsorted(series.stamp_s, times_s - _WINDOW_S / 2)
    last = np.searchsorted(series.stamp_s, times_s + _WINDOW_S / 2)
    count = (last - first)[:, None]
    return np.where(count > 0, (sums[last] - sums[first]) / np.maximum(count, 1), np.nan)
