"""Types of motion models: state, response to a command over a time step, stopping point; and vector functions.

Arrays are component-first, (component, ...batch): with the batch last, one body is fast for a single
robot in NumPy and for thousands of worlds under XLA.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from testudo_hardware.arrays import Array, array_namespace, stacked

TINY = 1e-9  # added to lengths before a division
_NO_LENGTH = 1e-30  # square of a length that counts as zero; representable in single precision


@dataclass(frozen=True)
class MotionState:
    """State of robots."""

    position_world: Array  # (D, ...) [m]
    yaw: Array  # (...) [rad], not wrapped
    velocity: Array  # (D, ...): differential drive (forward [m/s], turn rate [rad/s]) in the body; else world [m/s]


@dataclass(frozen=True)
class LagResponse:
    """Response of a first-order lag to a constant command for ``duration_s``: v += gain * (command - v).

    The mean of v over the step is v + mean_share * (change of v), exact for the pure lag.
    """

    duration_s: Array  # (...) [s]
    gain: Array  # (...) [1]: 1 - exp(-duration / lag)
    mean_share: Array  # (...) [1]: 1/gain - lag/duration, between 1/2 (slow lag) and 1 (instant)

    @classmethod
    def create(cls, duration_s: Array, velocity_lag_s: Array) -> LagResponse:
        """Return the response for arrays of duration (...) and lag [s]; a duration may be zero."""
        xp = array_namespace(duration_s)
        ratio = duration_s / velocity_lag_s
        gain = -xp.expm1(-ratio)
        # below 1e-2 the series avoids the difference of two large numbers
        large = ratio > 1e-2
        mean_share = xp.where(large, 1 / xp.where(large, gain, 1.0) - 1 / xp.where(large, ratio, 1.0), 0.5 + ratio / 12)
        return cls(duration_s, gain, mean_share)


@dataclass(frozen=True)
class StoppingPoint:
    """Place of rest of the control point under zero command, and how commands move it.

    The control point moves at ``jacobian @ rate``, where ``rate`` (D, ...) is zero for braking; the
    command for it is ``brake_command + velocity_lag * rate``. Exact for the pure lag
    (shield.md, layer 1).
    """

    position_world: Array  # (D, ...) [m]: the control point q
    yaw: Array  # (...) [rad]: heading at rest
    jacobian: Array  # (D, D, ...): world axis, command channel
    inverse: Array  # (D, D, ...): command channel, world axis
    brake_command: Array  # (D, ...): command that brakes as hard as the limit of deceleration; zero without saturation
    deceleration: Array  # (D, ...): deceleration under that command, (velocity - brake_command) / velocity_lag


def matrix_vector(matrix: Array, vector: Array) -> Array:
    """Return matrix (A, B, ...) times vector (B, ...): (A, ...)."""
    size = vector.shape[0]
    return stacked(
        *(sum_terms([matrix[a, b, ...] * vector[b, ...] for b in range(size)]) for a in range(matrix.shape[0]))
    )


def sum_terms(terms: list[Array]) -> Array:
    """Return the sum of arrays, without the integer 0 from which `sum` starts."""
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def running_sum(start: Array, steps: Array) -> Array:
    """Return a start (A, ...) and its cumulative sums with T steps (A, T, ...): (A, T + 1, ...)."""
    sums = [start]
    for k in range(steps.shape[1]):
        sums.append(sums[-1] + steps[:, k, ...])
    return array_namespace(start).concat([total[:, None, ...] for total in sums], axis=1)


def held_velocities(
    change: Callable[[Array, Array, LagResponse], Array],
    velocity: Array,
    effective: Array,
    response: LagResponse,
    ticks: int,
) -> tuple[Array, Array]:
    """Return the velocities now and after each of T ticks (D, T + 1, ...), and the displacements in them (D, T, ...).

    ``change`` returns the change of a velocity in one tick of ``response`` under an effective command, both (D, ...);
    ``velocity`` (D, ...) and ``effective`` (D, ...) are the initial velocity and the command.
    """
    speeds = [velocity + 0 * effective]
    for _ in range(ticks):
        speeds.append(speeds[-1] + change(speeds[-1], effective, response))
    held = array_namespace(effective).concat([speed[:, None, ...] for speed in speeds], axis=1)
    before, changes = held[:, :-1, ...], held[:, 1:, ...] - held[:, :-1, ...]
    return held, response.duration_s * (before + response.mean_share * changes)


def length(vector: Array) -> Array:
    """Return the length (...) of vectors (D, ...)."""
    xp = array_namespace(vector)
    squares = vector * vector
    return xp.sqrt(sum_terms([squares[d, ...] for d in range(squares.shape[0])]))


def shorten(vector: Array, limit: Array | float) -> Array:
    """Return vectors (D, ...) that keep their direction and are no longer than the limit (...), zero or above."""
    xp = array_namespace(vector)
    squares = vector * vector
    # the root of zero has no derivative, which identification needs for a robot at its commanded velocity
    size = xp.sqrt(sum_terms([squares[d, ...] for d in range(squares.shape[0])]) + _NO_LENGTH)
    # the slightly larger denominator keeps the length within the limit in spite of rounding
    return vector * xp.minimum(limit / (size + TINY), 1.0)
