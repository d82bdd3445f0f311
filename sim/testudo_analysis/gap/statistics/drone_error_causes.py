"""What kind of error a model of rotors makes in flight: which of its parameters would account for it.

The errors after one horizon are fitted by least squares to what a small change of each parameter changes in the very
same predictions (differences of two roll-outs), so that each says what the others leave. Positions and attitudes are
fitted apart, and each kind is told by what it changes itself. What a flight controller answers (gusts, downwash, its
own trim) passes for torque, drag, damping or trim of the model: the kinds predict from such a log, and need not be
properties of the drone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from testudo_analysis.gap.prediction.batch_rollout import RollOut
from testudo_analysis.gap.prediction.drone_predictions import predicted_at
from testudo_analysis.gap.statistics.block_bootstrap import Interval, TimeBlocks
from testudo_analysis.gap.statistics.error_causes import CauseTerm, ErrorCause, fit_terms
from testudo_hardware.frames import conjugate, multiply, rotation_vector
from testudo_hardware.motion.rotor_drone import RotorDroneParameters
from testudo_hardware.spec import RobotSpec

FARTHEST_RAD = 0.2
"""A fit of small changes holds as long as the median attitude is off by no more than this, and where the model itself
turns by no more than this: few windows of large torques would rule the squares, and lie beyond first order."""
_SHARE, _LAG_S, _DRAG_KG_S, _DAMPING_1_S, _TRIM_RAD_S2 = 0.01, 0.002, 0.001, 0.2, 0.2
_AXES = ("roll", "pitch", "yaw")
_Change = Callable[[RotorDroneParameters], RotorDroneParameters]


def _words(high: str, low: str, unit: str, factor: float = 1.0) -> Callable[[Interval], str]:
    def say(effect: Interval) -> str:
        value, ends = factor * effect.value, sorted(factor * end for end in (effect.low, effect.high))
        if ends[0] * ends[1] > 0:
            ends = sorted(map(abs, ends))
        return f"{high if value > 0 else low} by {abs(value):.3g}{unit} ({ends[0]:.3g} to {ends[1]:.3g})"

    return say


def _scaled_thrust(own: RotorDroneParameters) -> RotorDroneParameters:
    return replace(own, thrust_scale=own.thrust_scale * (1 + _SHARE))


def _scaled_torque(own: RotorDroneParameters) -> RotorDroneParameters:
    return replace(
        own,
        arm_m=tuple(arm * (1 + _SHARE) for arm in own.arm_m),
        torque_per_thrust_m=own.torque_per_thrust_m * (1 + _SHARE),
    )


def _later(own: RotorDroneParameters) -> RotorDroneParameters:
    return replace(own, thrust_lag_s=own.thrust_lag_s + _LAG_S)


def _dragged(own: RotorDroneParameters) -> RotorDroneParameters:
    return replace(own, drag_kg_s=tuple(drag + _DRAG_KG_S for drag in own.drag_kg_s))


def _damped(own: RotorDroneParameters) -> RotorDroneParameters:
    return replace(
        own,
        rate_damping_n_m_s=tuple(
            damping + _DAMPING_1_S * inertia
            for damping, inertia in zip(own.rate_damping_n_m_s, own.inertia_kg_m2, strict=True)
        ),
    )


def _trimmed(axis: int) -> _Change:
    def change(own: RotorDroneParameters) -> RotorDroneParameters:
        return replace(
            own,
            torque_offset_n_m=tuple(
                offset + (_TRIM_RAD_S2 * own.inertia_kg_m2[k] if k == axis else 0.0)
                for k, offset in enumerate(own.torque_offset_n_m)
            ),
        )

    return change


_LATE = _words(
    "lag- or delay-like: the thrust comes earlier than in the model",
    "lag- or delay-like: the thrust comes later than in the model",
    " ms",
    1e3,
)
_POSITION: tuple[tuple[CauseTerm, float, _Change], ...] = (
    (
        CauseTerm(
            "thrust scale",
            "1",
            _words(
                "scale-like: the rotors lift less than in the model, or the drone is heavier,",
                "scale-like: the rotors lift more than in the model, or the drone is lighter,",
                " %",
                100,
            ),
        ),
        _SHARE,
        _scaled_thrust,
    ),
    (CauseTerm("lift response", "s", _LATE), _LAG_S, _later),
    (
        CauseTerm(
            "drag",
            "kg/s",
            _words(
                "drag-like: the air brakes less than in the model",
                "drag-like: the air brakes more than in the model",
                " kg/s",
            ),
        ),
        _DRAG_KG_S,
        _dragged,
    ),
)
_ATTITUDE: tuple[tuple[CauseTerm, float, _Change], ...] = (
    (
        CauseTerm(
            "torque scale",
            "1",
            _words(
                "scale-like: a difference of thrusts turns it less than in the model",
                "scale-like: a difference of thrusts turns it more than in the model",
                " %",
                100,
            ),
        ),
        _SHARE,
        _scaled_torque,
    ),
    (CauseTerm("turn response", "s", _LATE), _LAG_S, _later),
    (
        CauseTerm(
            "rate damping",
            "1/s",
            _words(
                "damping-like: its rates fade less than in the model",
                "damping-like: its rates fade more than in the model",
                " 1/s",
            ),
        ),
        _DAMPING_1_S,
        _damped,
    ),
    *(
        (
            CauseTerm(
                f"{name} trim",
                "rad/s^2",
                _words(
                    f"offset-like: something steady turns it about its {name} axis, backwards,",
                    f"offset-like: something steady turns it about its {name} axis, forwards,",
                    " rad/s²",
                ),
            ),
            _TRIM_RAD_S2,
            _trimmed(k),
        )
        for k, name in enumerate(_AXES)
    ),
)


_MOVING = _POSITION + tuple(one for one in _ATTITUDE if one[2] is not _later)
"""A wrong attitude makes a wrong position: what positions are fitted to holds its kinds, too."""


def flight_causes(blocks: TimeBlocks, spec: RobotSpec, outs: Sequence[RollOut], at: int) -> tuple[ErrorCause, ...]:
    """Return the parts of the error of a model of rotors after one horizon, those that explain most first.

    Args:
        blocks: of time, over the starts of all flights.
        spec: the model.
        outs: of flights; S starts in all.
        at: index of the horizon.
    """
    columns = [_columns(spec, out, at) for out in outs]
    tiled = TimeBlocks(np.tile(blocks.index, 3), blocks.weights)
    found = []
    for k, (terms, own) in enumerate(((_MOVING, _POSITION), (_ATTITUDE, _ATTITUDE))):
        joined = np.concatenate([each[k] for each in columns], axis=2).reshape(1 + len(terms), -1)
        made = fit_terms(tiled, joined[0], list(joined[1:]), [term for term, _, _ in terms], in_turn=True)
        found += [cause for cause in made if cause.kind in {term.kind for term, _, _ in own}]
    return tuple(sorted(found, key=lambda cause: -cause.explains))


def horizon_of(errors: Sequence[np.ndarray]) -> int | None:
    """Return the index of the longest horizon at which attitudes (H, S) [rad] are near enough to fit; None if none."""
    joined = np.concatenate(errors, axis=1)
    near = [h for h, row in enumerate(joined) if np.isfinite(row).any() and np.nanmedian(row) < FARTHEST_RAD]
    return max(near, default=None)


def _columns(spec: RobotSpec, out: RollOut, at: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the error and what each change of a parameter makes of it (1 + K, 3, S): of position, and of attitude."""
    flight, windows = out.robot, out.windows
    valid = windows.valid[at].copy()
    start, end = windows.start[valid], windows.end[at][valid]
    own, delay_s = RotorDroneParameters.from_spec(spec), spec.rotors["rotors.thrust_delay"].value
    position, quaternion = predicted_at(flight, own, delay_s, start, end)
    turned = rotation_vector(multiply(conjugate(flight.logged.quaternion_xyzw[:, start]), quaternion))
    near = np.linalg.norm(turned, axis=0) <= FARTHEST_RAD
    valid[valid] = near
    start, end, position, quaternion = start[near], end[near], position[:, near], quaternion[:, near]
    found = (
        [position - flight.trajectory.position_world[end].T],
        [rotation_vector(multiply(conjugate(flight.logged.quaternion_xyzw[:, end]), quaternion))],
    )
    changed: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for k, terms in enumerate((_MOVING, _ATTITUDE)):
        for _, size, change in terms:
            if id(change) not in changed:
                changed[id(change)] = predicted_at(flight, change(own), delay_s, start, end)
            moved, turned = changed[id(change)]
            found[k].append(
                (moved - position if k == 0 else rotation_vector(multiply(conjugate(quaternion), turned))) / size
            )
    whole = []
    for parts in found:
        values = np.full((len(parts), 3, len(valid)), np.nan)
        values[..., valid] = parts
        whole.append(values)
    return whole[0], whole[1]
