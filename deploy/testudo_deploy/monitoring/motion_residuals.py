"""Estimates scale, twist error and noise of the pose of one robot, from poses, velocities and a model's velocities.

All of them compare sums over pieces of the path, so that the noise of poses enters only at both ends of a piece:

- Scale: the way of the poses over that of the model. The change of the model's velocity over a piece is a second
  regressor: another lag or delay moves the way by its time times this change, and must not look like another scale.
- Twist: the way of the poses less that of the measured velocity, as mean square over pieces, less what noise explains.
- Pose: the mean square of the steps between two poses less those of the measured velocity.

A constant error of the pose moves nothing relative to anything that one robot measures: it cannot be found here.
The residual motion that a robot file with `[motion_noise]` announces counts as noise of all three (`residual_spread`).
"""

import math
from dataclasses import dataclass

import numpy as np

from testudo_deploy.monitoring.residual_spread import SURE, WaySpread, largest_mean_square, pieces_in_one
from testudo_hardware.motion.motion_model import hover_drift_m_s, slip_ratio
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import RobotSpec

PIECE_S = 2.0  # duration of a piece
MEMORY_PIECES, MEMORY_POSES = 10.0, 100.0  # fading memories
FEWEST_PIECES, _FEWEST_POSES = 3, 60
_NOISE_SHARE = 1.5  # square of noise that is spread evenly up to its bound, over that of a third of the bound
_PLAIN_SHARE = 1.6  # three sigma of the pose over the bound from which it counts as noisier than the file says
_TRANSIENT_SHARE = 0.5  # share of what another lag and delay do to a way that the second regressor may leave
_TINY = 1e-12


@dataclass(frozen=True)
class Estimate:
    """A quantity, how far its estimate is certainly outside the interval, and the interval."""

    value: float
    low: float
    high: float
    beyond: float  # above zero: outside, by at least this
    near: float = 0.0  # beyond the interval it still counts as inside again by this much: hysteresis
    known: bool = True  # there are enough measurements

    @property
    def inside(self) -> bool:
        """Return whether the estimate is inside, or about so."""
        return self.low - self.near <= self.value <= self.high + self.near


class _Ways:
    """The pieces of one kind of way: along the floor or in space [m] (A = D), or turned [rad] (A = 1)."""

    def __init__(self, noise: float, bias: float, transient_s: float, low: float, high: float, pieces: float) -> None:
        """Begin without pieces.

        Args:
            noise: variance of a component of the difference of two poses.
            bias: way of a piece that may be wrong whatever the speed is.
            transient_s: half-widths of lag and delay together.
            low: of the scale over that of the model.
            high: of the same.
            pieces: in how many the residual motion is about the same (`pieces_in_one`).
        """
        self._noise, self._bias, self._interval, self._pieces = noise, bias, (low, high), pieces
        self._transient = (_TRANSIENT_SHARE * transient_s) ** 2
        self.forget()

    def forget(self) -> None:
        """Forget all pieces."""
        self._sums, self._weight, self._way = np.zeros(5), 0.0, 0.0
        self._twist, self._size = 0.0, 1
        self._spread, self._model_spread = 0.0, 0.0

    def add(
        self,
        way: np.ndarray,
        model: np.ndarray,
        change: np.ndarray,
        measured: np.ndarray,
        spread: tuple[float, float],
    ) -> None:
        """Add a piece: ways (A,) of poses, model and measured velocity, and the change of the model's velocity.

        ``spread`` is the variance of the residual motion along its largest axis, and of all axes together.
        """
        fade = 1 - 1 / MEMORY_PIECES
        parts = (model @ model, model @ change, change @ change, model @ way, change @ way)
        self._sums = fade * self._sums + np.array(parts)
        self._weight, self._size = fade * self._weight + 1, len(way)
        off = way - measured
        self._twist = fade * self._twist + float(off @ off)
        self._way = fade * self._way + float(measured @ measured)
        self._model_spread = fade * self._model_spread + float(model @ model) * spread[0]
        self._spread = fade * self._spread + spread[1]

    @property
    def _enough(self) -> bool:
        return self._weight > FEWEST_PIECES * 0.85  # less than their number, because memories fade

    def scale(self) -> Estimate:
        """Return the scale over that of the model."""
        mm, mc, cc, mw, cw = self._sums.tolist()
        low, high = self._interval
        determinant = mm * cc - mc * mc
        if determinant > 1e-4 * mm * cc:
            value, inverse = (mw * cc - cw * mc) / determinant, cc / determinant
        else:
            value, inverse = mw / (mm + _TINY), 1 / (mm + _TINY)
        count = max(self._weight, 1.0)
        residual = min(self._pieces, count) * self._model_spread / (mm + _TINY)
        noise = self._noise + self._transient * cc / count + residual
        sure = SURE * math.sqrt(noise * inverse) + self._bias / math.sqrt(mm / count + _TINY)
        return Estimate(value, low, high, max(low - value, value - high) - sure, sure / 2, self._enough)

    def twist(self, most: float, turned_rad: float) -> Estimate:
        """Return the error of the measured velocity; ``most`` is that of the file, ``turned_rad`` the yaw's error."""
        count = max(self._weight, 1.0)
        noise, residual = self._size * self._noise, self._spread / count
        found = (self._twist - turned_rad**2 * self._way) / count
        sure = noise * (1 + SURE * math.sqrt(2 / (self._size * count)))
        sure += residual * largest_mean_square(count / self._pieces)
        value = math.sqrt(max(found - noise - residual, 0.0)) / PIECE_S
        beyond = math.sqrt(max(found - sure, 0.0)) / PIECE_S - most
        return Estimate(value, 0.0, most, beyond, 0.2 * most, self._enough)


class MotionResiduals:
    """The residuals of one robot."""

    def __init__(self, spec: RobotSpec) -> None:
        self._spec, self._turns = spec, spec.kind == DIFFERENTIAL_DRIVE
        scale, (least, most) = spec.quantities["dynamics.speed_scale"], slip_ratio(spec)
        noise = 2 * _NOISE_SHARE * (spec.position_error_m / 3) ** 2
        drift = PIECE_S * math.hypot(*hover_drift_m_s(spec))
        pieces = pieces_in_one(spec, PIECE_S)
        late_s = sum(spec.quantities[f"dynamics.{name}"].half_width for name in ("velocity_lag", "command_delay"))
        low, high = scale.low / scale.value * least, scale.high / scale.value * most
        self._ways = [_Ways(noise, drift, late_s, low, high, pieces)]
        if self._turns:
            turn = spec.quantities["dynamics.turn_scale"]
            noise = 2 * _NOISE_SHARE * (spec.yaw_error_rad / 3) ** 2
            self._ways.append(_Ways(noise, 0.0, late_s, turn.low / turn.value, turn.high / turn.value, pieces))
        self._spread, self._steps_in_one = WaySpread(spec), pieces_in_one(spec, spec.control_period_s)
        self._limit = np.full(spec.dimension, spec.acceleration_limit_m_s2)
        self._steps, self._step_spread, self._count = 0.0, 0.0, 0.0
        self._restart()

    def _restart(self) -> None:
        self._begin: tuple[np.ndarray, float, np.ndarray] | None = None  # place, yaw, model's velocity
        self._elapsed_s, self._turned = 0.0, 0.0
        self._sums = np.zeros((2, self._spec.dimension))  # ways of model and measurement in the world
        self._turn_sums = [0.0, 0.0]
        self._spread.begin()

    def forget(self) -> None:
        """Forget everything, after a change of the pose or a brake by others."""
        for ways in self._ways:
            ways.forget()
        self._steps = self._step_spread = self._count = 0.0
        self._restart()

    def pause(self) -> None:
        """End the piece without using it."""
        self._restart()

    def follow(
        self,
        elapsed_s: float,
        before: tuple[np.ndarray, float, np.ndarray],
        after: tuple[np.ndarray, float, np.ndarray],
        model: tuple[np.ndarray, np.ndarray] | None,
    ) -> bool:
        """Take a step from a pose to the next: place (D,), yaw, velocity (D,) of both.

        ``model`` has the model's velocities (D,) then and now; None while it does not follow the commands. Returns
        whether a piece ended.
        """
        place, yaw, velocity = before
        place_now, yaw_now, velocity_now = after
        mean = 0.5 * (velocity + velocity_now)
        turned = 0.0
        if self._turns:
            turned = math.remainder(yaw_now - yaw, math.tau)
            middle = yaw + 0.5 * turned
            heading = np.array((math.cos(middle), math.sin(middle)))
            step = elapsed_s * float(mean[0]) * heading
        else:
            heading = None
            step = elapsed_s * mean
        off = place_now - place - step
        fade = 1 - 1 / MEMORY_POSES
        self._steps, self._count = fade * self._steps + float(off @ off), fade * self._count + 1
        if self._spread.moves:
            velocities = (mean, self._limit)
            if model is not None:
                velocities = (0.5 * (model[0] + model[1]), (model[1] - model[0]) / elapsed_s)
            self._spread.follow(elapsed_s, *velocities)
            self._step_spread = fade * self._step_spread + self._spread.step_m2
        if model is None:
            self._restart()
            return False
        if self._begin is None:
            self._begin = place, yaw, model[0].copy()
        expected = 0.5 * elapsed_s * (model[0] + model[1])
        self._sums[0] += expected if heading is None else float(expected[0]) * heading
        self._sums[1] += step
        self._elapsed_s += elapsed_s
        if self._turns:
            self._turned += turned
            self._turn_sums[0] += float(expected[1])
            self._turn_sums[1] += elapsed_s * float(mean[1])
        if self._elapsed_s < PIECE_S:
            return False
        self._end(place_now, yaw_now, model[1], heading)
        return True

    def _end(self, place: np.ndarray, yaw: float, model: np.ndarray, heading: np.ndarray | None) -> None:
        """Add the piece that ends here."""
        if self._begin is None:
            return
        begin, first_yaw, first = self._begin
        change = model - first
        if heading is not None:
            ahead = np.array((math.cos(first_yaw), math.sin(first_yaw)))
            parts = (self._turned, self._turn_sums[0], change[1], self._turn_sums[1])
            turned, expected, changed, measured = (np.array([value]) for value in parts)
            self._ways[1].add(turned, expected, changed, measured, self._spread.turn_rad2)
            change = float(model[0]) * np.array((math.cos(yaw), math.sin(yaw))) - float(first[0]) * ahead
        self._ways[0].add(place - begin, self._sums[0], change, self._sums[1], self._spread.way_m2)
        self._restart()

    def estimates(self) -> dict[str, Estimate]:
        """Return the estimates by name."""
        spec, found = self._spec, {"scale": self._ways[0].scale()}
        wrong = 0.0 if spec.dimension == 3 else spec.yaw_error_rad
        found["twist"] = self._ways[0].twist(spec.velocity_error_m_s, wrong)
        if self._turns:
            found["turn_scale"] = self._ways[1].scale()
            found["turn_twist"] = self._ways[1].twist(2 * spec.velocity_error_m_s / spec.wheel_base_m, 0.0)
        found["pose"] = self._pose()
        return found

    def _pose(self) -> Estimate:
        spec, count = self._spec, max(self._count, 1.0)
        velocity = spec.velocity_error_m_s * spec.control_period_s
        residual, most = self._step_spread / count, spec.position_error_m
        square = self._steps / count - velocity**2
        largest = residual * largest_mean_square(count / self._steps_in_one)
        value, least = (3 * math.sqrt(max(square - moved, 0.0) / (2 * spec.dimension)) for moved in (residual, largest))
        beyond = least - _PLAIN_SHARE * most
        return Estimate(value, 0.0, most, beyond, (_PLAIN_SHARE - 1) / 2 * most, self._count > _FEWEST_POSES * 0.7)
