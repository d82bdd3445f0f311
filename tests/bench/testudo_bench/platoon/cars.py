"""Cars in a line that choose an acceleration once a second (Brorholt, Larsen and Schilling, arXiv 2410.10460, case 1).

The constants are those of the paper. Car 0 is the leader, which drives at random; car k follows car k - 1 and sees both
speeds and the gap between them. A gap is safe if it stays above zero and below the limit, within the second, too.

This is no scenario of `testudo_sim`: there a robot takes a velocity, and at rest it is safe. A car takes an
acceleration, and the car ahead may come back at 10 m/s, so that a car at rest is not safe.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
LAG_SAMPLES = 10  # of the gap within a second, where speeds follow with a lag


@dataclass(frozen=True)
class CarSpec:
    """What a car can do, and which gaps are safe."""

    accelerations_m_s2: tuple[float, ...] = (-2.0, 0.0, 2.0)  # rising; the first and the last differ in sign only
    slowest_m_s: float = -10.0
    fastest_m_s: float = 20.0
    gap_limit_m: float = 200.0
    period_s: float = 1.0  # an acceleration is held for this time

    @property
    def hardest_m_s2(self) -> float:
        """Return the hardest acceleration and braking."""
        return self.accelerations_m_s2[-1]

    @property
    def mirrored(self) -> "CarSpec":
        """Return the cars as seen from behind: speeds have the other sign, and too far is too near."""
        return replace(self, slowest_m_s=-self.fastest_m_s, fastest_m_s=-self.slowest_m_s)

    def possible(self, speed_m_s: Values) -> NDArray[np.bool_]:
        """Return which accelerations keep the speeds (...) within their limits: (A, ...)."""
        after = np.stack([speed_m_s + a * self.period_s for a in self.accelerations_m_s2])
        return (after >= self.slowest_m_s) & (after <= self.fastest_m_s)


@dataclass(frozen=True)
class PlatoonState:
    """Cars (K + 1, E) of E episodes, and the gaps (K, E) behind all but the last."""

    speed_m_s: Values  # (K + 1, E): as commanded
    gap_m: Values  # (K, E): between the places at which the cars would stop if their commanded speeds became zero
    actual_speed_m_s: Values  # (K + 1, E): behind the commanded one by the lag
    safe: NDArray[np.bool_]  # (K, E): the gap was safe until now

    @property
    def all_safe(self) -> NDArray[np.bool_]:
        """Return the episodes (E,) in which every gap was safe until now."""
        return np.asarray(np.all(self.safe, axis=0))

    def actual_gap_m(self, lag_s: float) -> Values:
        """Return the gaps between the cars (K, E): a car stops a lag times its speed ahead of where it is."""
        return self.gap_m - lag_s * (self.actual_speed_m_s[:-1] - self.actual_speed_m_s[1:])


def at_rest(followers: int, episodes: int, gap_m: float) -> PlatoonState:
    """Return cars at rest with equal gaps."""
    still = np.zeros((followers + 1, episodes))
    return PlatoonState(still, np.full((followers, episodes), gap_m), still, np.ones((followers, episodes), bool))


def gap_course(gap: Values, rate: Values, change: Values, duration: Values) -> tuple[Values, Values, Values]:
    """Return the gap after a time, and the least and the largest one until then.

    ``rate`` is the front car's speed minus the own one at first, ``change`` the same of the accelerations.
    """
    end = gap + rate * duration + 0.5 * change * duration**2
    low, high = np.minimum(gap, end), np.maximum(gap, end)
    turns = rate * (rate + change * duration) < 0  # the rate changes its sign in between
    turn = gap - 0.5 * rate**2 / np.where(turns, change, 1.0)
    return end, np.where(turns, np.minimum(low, turn), low), np.where(turns, np.maximum(high, turn), high)


def advance(spec: CarSpec, state: PlatoonState, acceleration_m_s2: Values, lag_s: float = 0.0) -> PlatoonState:
    """Return the state a period later; accelerations (K + 1, E), commanded speeds keep their limits.

    With a lag T the speed v follows the commanded one w as T v' = w - v, so that the stopping point, place + T v, moves
    at the speed v + T v' = w: without a lag. Where gaps between stopping points stay safe, so do those between cars:
    when a gap reaches zero, the car behind is not slower, and the gap not below that of the stopping points; likewise
    at the limit.
    """
    speed, period = state.speed_m_s, spec.period_s
    change = acceleration_m_s2[:-1] - acceleration_m_s2[1:]
    gap, low, high = gap_course(state.gap_m, speed[:-1] - speed[1:], change, np.asarray(period))
    after = speed + acceleration_m_s2 * period
    actual = after
    if lag_s > 0:
        low, high = np.full_like(gap, np.inf), np.full_like(gap, -np.inf)
        for sample in range(1, LAG_SAMPLES + 1):
            time = period * sample / LAG_SAMPLES
            stop, _, _ = gap_course(state.gap_m, speed[:-1] - speed[1:], change, np.asarray(time))
            ramp = speed + acceleration_m_s2 * (time - lag_s)
            fading = state.actual_speed_m_s - speed + acceleration_m_s2 * lag_s
            actual = ramp + fading * np.exp(-time / lag_s)
            between = stop - lag_s * (actual[:-1] - actual[1:])
            low, high = np.minimum(low, between), np.maximum(high, between)
    return PlatoonState(after, gap, actual, state.safe & (low > 0) & (high < spec.gap_limit_m))
