"""Kinds of error of a rotor model in flight: the parameters whose change would explain the error.

The errors after one horizon are fitted by least squares to the effect of a small change of each parameter on the same
predictions (differences of two rollouts), so that each explains what the others leave. Positions and attitudes are
fitted separately. Reactions of the flight controller (to gusts, downwash, its own trim) appear as torque, drag, damping
or trim of the model: the kinds predict from such a log, and need not be properties of the drone.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from testudo_analysis.gap.block_bootstrap import TimeBlocks
from testudo_analysis.gap.drone_predictions import FlightRollOut, predicted_at
from testudo_analysis.gap.error_causes import CauseTerm, ErrorCause, fit_terms
from testudo_hardware.frames import conjugate, multiply, rotation_vector
from testudo_hardware.motion.rotor_drone import RotorDroneParameters
from testudo_hardware.spec import RobotSpec

FARTHEST_RAD = 0.2
"""Largest median attitude error of a first-order fit, and largest predicted rotation of a fitted window: few windows
with large torques would dominate the squares."""
_SHARE, _LAG_S, _DRAG_KG_S, _DAMPING_1_S, _TRIM_RAD_S2 = 0.01, 0.002, 0.001, 0.2, 0.2
_Change = Callable[[RotorDroneParameters], RotorDroneParameters]


def _scaled_thrust(own: RotorDroneParameters) -> RotorDroneParameters:
    return replace(own, thrust_scale=own.thrust_scale * (1 + _SHARE))


def _scaled_torque(own: RotorDroneParameters) -> RotorDroneParameters:
    roll, pitch = (arm * (1 + _SHARE) for arm in own.arm_m)
    return replace(own, arm_m=(roll, pitch), torque_per_thrust_m=own.torque_per_thrust_m * (1 + _SHARE))


def _later(own: RotorDroneParameters) -> RotorDroneParameters:
    return replace(own, thrust_lag_s=own.thrust_lag_s + _LAG_S)


def _dragged(own: RotorDroneParameters) -> RotorDroneParameters:
    x, y, z = (drag + _DRAG_KG_S for drag in own.drag_kg_s)
    return replace(own, drag_kg_s=(x, y, z))


def _damped(own: RotorDroneParameters) -> RotorDroneParameters:
    pairs = zip(own.rate_damping_n_m_s, own.inertia_kg_m2, strict=True)
    x, y, z = (damping + _DAMPING_1_S * inertia for damping, inertia in pairs)
    return replace(own, rate_damping_n_m_s=(x, y, z))


def _trimmed(axis: int, own: RotorDroneParameters) -> RotorDroneParameters:
    x, y, z = (
        offset + (_TRIM_RAD_S2 * own.inertia_kg_m2[k] if k == axis else 0.0)
        for k, offset in enumerate(own.torque_offset_n_m)
    )
    return replace(own, torque_offset_n_m=(x, y, z))


def _term(kind: str, unit: str, text: str, shown: str, factor: float = 1.0) -> CauseTerm:
    return CauseTerm(kind, unit, f"{text} by {{}}{shown} ({{}} to {{}})", factor, ".3g")


_LATE = "lag- or delay-like: the thrust comes [earlier|later] than in the model"
_LIFT = "scale-like: the rotors lift [less|more] than in the model, or the drone is [heavier|lighter],"
_BRAKE = "drag-like: the air brakes [less|more] than in the model"
_TURN = "scale-like: a difference of thrusts turns it [less|more] than in the model"
_FADE = "damping-like: its rates fade [less|more] than in the model"
_STEADY = "offset-like: something steady turns it about its {} axis, [backwards|forwards],"
_POSITION: tuple[tuple[CauseTerm, float, _Change], ...] = (
    (_term("thrust scale", "1", _LIFT, " %", 100), _SHARE, _scaled_thrust),
    (_term("lift response", "s", _LATE, " ms", 1e3), _LAG_S, _later),
    (_term("drag", "kg/s", _BRAKE, " kg/s"), _DRAG_KG_S, _dragged),
)
_ATTITUDE: tuple[tuple[CauseTerm, float, _Change], ...] = (
    (_term("torque scale", "1", _TURN, " %", 100), _SHARE, _scaled_torque),
    (_term("turn response", "s", _LATE, " ms", 1e3), _LAG_S, _later),
    (_term("rate damping", "1/s", _FADE, " 1/s"), _DAMPING_1_S, _damped),
    *(
        (_term(f"{axis} trim", "rad/s^2", _STEADY.format(axis), " rad/s²"), _TRIM_RAD_S2, partial(_trimmed, k))
        for k, axis in enumerate(("roll", "pitch", "yaw"))
    ),
)
_MOVING = _POSITION + tuple(one for one in _ATTITUDE if one[2] is not _later)
"""Terms fitted to positions: a wrong attitude causes a wrong position, so the attitude terms are included."""


def flight_causes(
    blocks: TimeBlocks, spec: RobotSpec, outs: Sequence[FlightRollOut], at: int
) -> tuple[ErrorCause, ...]:
    """Return the parts of the error of a rotor model after one horizon, sorted by the explained share.

    The blocks cover the starts of all flights, S in total; ``at`` is the index of the horizon. A robot file with a
    `[response]` has none: its errors are not those of the rigid body whose parameters are varied here.
    """
    if spec.response:
        return ()
    columns = [_columns(spec, out, at) for out in outs]
    tiled = TimeBlocks(np.tile(blocks.index, 3), blocks.weights)
    found = []
    for k, (terms, own) in enumerate(((_MOVING, _POSITION), (_ATTITUDE, _ATTITUDE))):
        joined = np.concatenate([each[k] for each in columns], axis=2).reshape(1 + len(terms), -1)
        made = fit_terms(tiled, joined[0], list(joined[1:]), [term for term, _, _ in terms], in_turn=True)
        found += [cause for cause in made if cause.kind in {term.kind for term, _, _ in own}]
    return tuple(sorted(found, key=lambda cause: -cause.explains))


def horizon_of(errors: Sequence[np.ndarray]) -> int | None:
    """Return the index of the longest horizon whose attitude errors (H, S) [rad] allow a fit; None if none does."""
    joined = np.concatenate(errors, axis=1)
    near = [h for h, row in enumerate(joined) if np.isfinite(row).any() and np.nanmedian(row) < FARTHEST_RAD]
    return max(near, default=None)


def _columns(spec: RobotSpec, out: FlightRollOut, at: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the error and the effect of each parameter (1 + K, 3, S): of position, and of attitude."""
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
    changed: dict[_Change, tuple[np.ndarray, np.ndarray]] = {}
    for k, terms in enumerate((_MOVING, _ATTITUDE)):
        for _, size, change in terms:
            if change not in changed:
                changed[change] = predicted_at(flight, change(own), delay_s, start, end)
            moved, turned = changed[change]
            effect = moved - position if k == 0 else rotation_vector(multiply(conjugate(quaternion), turned))
            found[k].append(effect / size)
    whole = []
    for parts in found:
        values = np.full((len(parts), 3, len(valid)), np.nan)
        values[..., valid] = parts
        whole.append(values)
    return whole[0], whole[1]
