"""Estimates how late the measured velocity of a robot follows its commands: its lag and its delay.

A bank of models, one for each pair of a lag and a delay, is driven by the commands alone. Their velocities are free of
measurement noise, so noise does not bias the comparison. Sums with a fading memory hold, for each model, how well a
scale and an offset times its velocity explain the measured one; scale and offset are judged elsewhere. What the
margins allow is the sum of lag and delay: the way to rest is speed times this sum. So the best model is compared with
the best one whose sum is not above the interval's, or hardly: `ResponseFinding.evidence` is the difference of their
squared errors over the variance of the best. Residual motion of a file with `[motion_noise]` is no white noise: its
share of the variance counts as so many fewer measurements (`residual_spread`).
"""

import math
from dataclasses import dataclass

import numpy as np

from testudo_deploy.monitoring.residual_spread import VelocityNoise
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import RobotSpec

MEMORY_S = 12.0  # time constant of the fading memory
_LAGS = (1.0, 1.5, 2.0, 3.0)  # over the upper end of the interval
_DELAYS_S = (0.0, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2)  # beyond the upper end
_FLOOR_SHARE = 0.01  # error of a model over the top speed that noise-free data leave
_KEPT, _ROWS = 64, 512  # commands kept when the buffer is full, and its length
_NEAR_SHARE = 0.1
"""Share of the longest lag and delay together by which the sum may be above: shapes of a response that no first-order
lag has, such as that of a scaled velocity at its acceleration limit, look like so much more delay."""
_TINY = 1e-12


@dataclass(frozen=True)
class ResponseFinding:
    """The best lag and delay."""

    evidence: float  # zero if lag and delay may be within their intervals
    name: str  # `lag` or `delay`: the one that explains the measurements better alone
    value_s: float
    beyond_s: float  # by how much lag and delay together are above the intervals


class CommandHistory:
    """The mean of the commands that act in a time, for several delays at once."""

    def __init__(self, delays_s: np.ndarray, dead_man_s: float, size: int) -> None:
        self._delays_s, self._dead_man_s = delays_s, dead_man_s
        self._times_s, self._values = np.full(_ROWS, math.inf), np.zeros((_ROWS, size))
        self._sums, self._count = np.zeros((_ROWS, size)), 0

    @property
    def newest_s(self) -> float:
        """Return when the newest command was sent."""
        return float(self._times_s[self._count - 1]) if self._count else -math.inf

    def clear(self) -> None:
        """Forget all commands."""
        self._times_s[:] = math.inf
        self._count = 0

    def add(self, now_s: float, command: np.ndarray) -> None:
        """Add a command (D,) that is sent now; it acts until the next one, or for the dead-man time."""
        if self._count == _ROWS:
            for kept in (self._times_s, self._values, self._sums):
                kept[:_KEPT] = kept[-_KEPT:].copy()
            self._times_s[_KEPT:] = math.inf
            self._count = _KEPT
        at = self._count
        if at:
            acted_s = min(now_s - float(self._times_s[at - 1]), self._dead_man_s)
            self._sums[at] = self._sums[at - 1] + acted_s * self._values[at - 1]
        else:
            self._sums[at] = 0.0
        self._times_s[at], self._values[at] = now_s, command
        self._count += 1

    def integral(self, time_s: float) -> np.ndarray:
        """Return the integral (J, D) of what acted until a time, for each delay."""
        asked_s = time_s - self._delays_s
        row = np.maximum(self._times_s.searchsorted(asked_s, side="right") - 1, 0)
        acts_s = np.minimum(np.maximum(asked_s - self._times_s[row], 0.0), self._dead_man_s)
        return self._sums[row] + acts_s[:, None] * self._values[row]


class ResponseEstimator:
    """The bank of models of one robot and their sums; I lags, J delays, D channels."""

    def __init__(self, spec: RobotSpec) -> None:
        lag, delay = spec.quantities["dynamics.velocity_lag"], spec.quantities["dynamics.command_delay"]
        self._lags_s = np.array([lag.low, (lag.low + lag.high) / 2, *(lag.high * share for share in _LAGS)])
        below = [delay.low, (delay.low + delay.high) / 2] if delay.high > delay.low else []
        self._delays_s = np.array([*below, *(delay.high + more for more in _DELAYS_S)])
        total = self._lags_s[:, None] + self._delays_s
        self._beyond_s = total - (lag.high + delay.high)
        near_s = max(_NEAR_SHARE * (lag.high + delay.high), spec.control_period_s / 2)
        self._noise = VelocityNoise(spec, lag.high + delay.high, MEMORY_S)
        self._allowed = self._beyond_s <= near_s + self._noise.near_s
        self._lag_only, self._delay_only = self._delays_s <= delay.high + 1e-9, self._lags_s <= lag.high + 1e-9
        self._nominal = (
            int(np.argmin(abs(self._lags_s - lag.value))),
            int(np.argmin(abs(self._delays_s - delay.value))),
        )
        turns, size = spec.kind == DIFFERENTIAL_DRIVE, spec.dimension
        self._turns = turns
        self._limits = np.array((spec.acceleration_limit_m_s2, spec.turn_acceleration_limit_rad_s2) if turns else ())
        self._acceleration = spec.acceleration_limit_m_s2
        lever = np.array((1.0, spec.wheel_base_m / 2) if turns else (1.0,) * size)
        top = spec.wheel_limit_m_s if turns else spec.speed_limit_m_s
        self._floor = (_FLOOR_SHARE * top / lever) ** 2
        self._settle_s = 4 * lag.high + delay.high
        self.commands = CommandHistory(self._delays_s, spec.dead_man_s, size)
        self._velocity = np.zeros((len(self._lags_s), len(self._delays_s), size))
        self._before: np.ndarray | None = None
        self._settled_s = math.inf
        self._sums = np.zeros((3, *self._velocity.shape))  # of x, x², x y; x is a model's velocity, y the measured one
        self._measured = np.zeros((2, size))  # of y, y²
        self._residual = np.zeros(size)  # of the variance of residual motion
        self._weight, self._elapsed_s = 0.0, spec.control_period_s

    @property
    def velocity(self) -> np.ndarray:
        """Return the velocity (D,) of the model with the values of the robot file."""
        return self._velocity[self._nominal]

    def forget(self) -> None:
        """Forget all sums; the values may have changed."""
        self._sums[:], self._measured[:], self._residual[:], self._weight = 0.0, 0.0, 0.0, 0.0

    def begin(self, stamp_s: float, velocity: np.ndarray) -> None:
        """Begin anew with a measured velocity (D,), after a time in which the commands did not act; sums stay."""
        self._velocity[:] = velocity
        self._before = self.commands.integral(stamp_s)
        self._settled_s = stamp_s + self._settle_s

    def follow(self, stamp_s: float, elapsed_s: float, velocity: np.ndarray) -> bool:
        """Take a measured velocity (D,); returns whether the models have settled."""
        now = self.commands.integral(stamp_s)
        if self._before is None:
            self.begin(stamp_s, velocity)
            return False
        asked, self._before = (now - self._before) / elapsed_s, now
        change = (-np.expm1(-elapsed_s / self._lags_s))[:, None, None] * (asked - self._velocity)
        if self._turns:
            most = self._limits * elapsed_s
            np.clip(change, -most, most, out=change)
        else:
            size = np.sqrt(np.einsum("ijd,ijd->ij", change, change)) + _TINY
            change *= np.minimum(self._acceleration * elapsed_s / size, 1.0)[..., None]
        rate = change[self._nominal] / elapsed_s
        self._velocity += change
        if stamp_s < self._settled_s:
            return False
        fade = math.exp(-elapsed_s / MEMORY_S)
        self._weight = fade * self._weight + 1
        self._sums *= fade
        self._sums[0] += self._velocity
        self._sums[1] += self._velocity * self._velocity
        self._sums[2] += self._velocity * velocity
        self._measured *= fade
        self._measured[0] += velocity
        self._measured[1] += velocity * velocity
        if self._noise.moves:
            self._residual *= fade
            self._residual += self._noise.variance(self.velocity, rate)
            self._elapsed_s = elapsed_s
        return True

    def finding(self) -> ResponseFinding:
        """Return what the sums say of lag and delay."""
        count = max(self._weight, 1.0)
        mean_y, square_y = self._measured
        spread = square_y - mean_y * mean_y / count
        covariance = self._sums[2] - self._sums[0] * mean_y / count
        variance = self._sums[1] - self._sums[0] * self._sums[0] / count
        explained = np.maximum(covariance, 0.0) ** 2 / (variance + _TINY)
        errors = np.maximum(spread - explained, 0.0)
        noise = errors.min(axis=(0, 1)) / count + self._floor
        noise *= self._noise.inflation(self._residual / count / noise, self._elapsed_s)
        cost = (errors / noise).sum(axis=-1)
        evidence = float(cost[self._allowed].min() - cost.min())
        of_lag, of_delay = cost[:, self._lag_only], cost[self._delay_only]
        if of_lag.min() <= of_delay.min():
            i, j = np.unravel_index(int(of_lag.argmin()), of_lag.shape)
            j = int(np.flatnonzero(self._lag_only)[j])
            return ResponseFinding(evidence, "lag", float(self._lags_s[i]), float(self._beyond_s[i, j]))
        i, j = np.unravel_index(int(of_delay.argmin()), of_delay.shape)
        i = int(np.flatnonzero(self._delay_only)[i])
        return ResponseFinding(evidence, "delay", float(self._delays_s[j]), float(self._beyond_s[i, j]))
