"""A quadrotor whose commands are roll, pitch, yaw and thrust: its attitude loop is fitted, not modelled in detail.

Each angle follows its command as a second-order system, the thrust as a first-order system (Rath and others,
"Crazyflow: fast, accurate, differentiable drone simulation", 2026; parameters in the packages crazyflow and
drone_models). With the angles a = (roll, pitch, yaw) of the body (turned about z, then y, then x)::

    a'' = -w^2 (a - gain * command) - 2 zeta w a',   f' = (command - f) / lag
    m v' = scale f R e_z - R D R' v - m g e_z + F,   D = diag(across, across, along)

`step` is exact in angles and thrust for a command held over the step, and of second order in the rest.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from testudo_hardware.arrays import Array, array_namespace, clipped, is_number, stacked
from testudo_hardware.errors import TestudoError
from testudo_hardware.frames import angle_rates, body_rates, from_angles, to_angles
from testudo_hardware.motion.motion_state import sum_terms
from testudo_hardware.motion.rotor_drone import GRAVITY_M_S2, Disturbance
from testudo_hardware.spec import RobotSpec

_SERIES_TERMS = 10
"""Series of the hyperbolic functions of a damped oscillator: exact to rounding up to 0.2 s at 30 rad/s."""


@dataclass(frozen=True)
class AttitudeDroneState:
    """State of quadrotors; batch axes last."""

    position_world: Array  # (3, ...) [m]
    quaternion_xyzw: Array  # (4, ...) [1]: body to world
    velocity_world: Array  # (3, ...) [m/s]
    rates_body: Array  # (3, ...) [rad/s]
    thrust: Array  # (...) [N]: current thrust of all rotors, before the scale


@dataclass(frozen=True)
class AnglesState:
    """The same with the attitude as angles, in which the fit is linear: for many steps in a row."""

    position_world: Array  # (3, ...) [m]
    angles: Array  # (3, ...) [rad]: roll, pitch, yaw
    velocity_world: Array  # (3, ...) [m/s]
    rates: Array  # (3, ...) [rad/s]: of the angles
    thrust: Array  # (...) [N]


@dataclass(frozen=True)
class AttitudeDroneParameters:
    """Parameters of quadrotors with attitude loop; each a number, or an array over the batch (...)."""

    mass_kg: Array
    frequency_rad_s: tuple[Array, Array, Array]  # undamped angular frequency of roll, pitch and yaw
    damping: tuple[Array, Array, Array]  # damping ratio of each
    gain: tuple[Array, Array, Array]  # ratio of reached to commanded angle
    thrust_scale: Array  # ratio of acting to commanded thrust
    thrust_lag_s: Array  # 0 for an immediate thrust
    drag_across_kg_s: Array
    drag_along_kg_s: Array  # force against the velocity along the body's x and y axes, and along its z axis
    thrust_least_n: Array
    thrust_most_n: Array  # least and largest thrust of all rotors; commands are clipped to them

    @classmethod
    def from_spec(cls, spec: RobotSpec, drawn: Mapping[str, Array] | None = None) -> Self:
        """Return the parameters of a robot file with a table `[attitude]`.

        The heading reaches its command: the flights of the fits contain hardly any yaw.

        Args:
            spec: the robot.
            drawn: values (...) by `attitude.key` and `geometry.mass` in place of the file's.

        Raises:
            TestudoError: the file has no `[attitude]`.
        """
        if not spec.attitude:
            raise TestudoError(f"{spec.name}: the robot file has no [attitude]; a model of the attitude needs it")
        value = {key: quantity.value for key, quantity in spec.attitude.items()} | dict(drawn or {})
        get = {key.removeprefix("attitude."): number for key, number in value.items()}
        return cls(
            value.get("geometry.mass", spec.mass_kg),
            (get["tilt_frequency"], get["tilt_frequency"], get["yaw_frequency"]),
            (get["tilt_damping"], get["tilt_damping"], get["yaw_damping"]),
            (get["tilt_gain"], get["tilt_gain"], 1.0),
            get["thrust_scale"],
            get["thrust_lag"],
            get["drag_across"],
            get["drag_along"],
            get["thrust_least"],
            get["thrust_most"],
        )

    @classmethod
    def from_crazyflow(cls, values: Mapping[str, Any]) -> Self:
        """Return the parameters of one drone in crazyflow's files `so_rpy`, `so_rpy_rotor` or `so_rpy_rotor_drag`.

        Args:
            values: the drone's table: `mass`, `rpy_coef`, `rpy_rates_coef`, `cmd_rpy_coef`, `cmd_f_coef`, `acc_coef`,
                `thrust_min` and `thrust_max` (of one rotor); with the tier also `thrust_dyn_coef` and `drag_matrix`.

        Raises:
            TestudoError: a constant thrust, or different drag along x and y, which this model lacks.
        """
        drag = [[float(x) for x in row] for row in values.get("drag_matrix", [[0.0] * 3] * 3)]
        even = drag[0][0] == drag[1][1] and all(drag[i][j] == 0 for i in range(3) for j in range(3) if i != j)
        if float(values.get("acc_coef", 0.0)) != 0 or not even:
            raise TestudoError(
                "crazyflow parameters: acc_coef has to be 0 and drag_matrix diag(x, x, z); found "
                f"{values.get('acc_coef')} and {drag}"
            )
        stiffness, rate, command = (
            [abs(float(x)) for x in values[key]] for key in ("rpy_coef", "rpy_rates_coef", "cmd_rpy_coef")
        )
        damping = [d / (2 * math.sqrt(k)) for d, k in zip(rate, stiffness, strict=True)]
        gain = [c / k for c, k in zip(command, stiffness, strict=True)]
        lag = 1 / float(values["thrust_dyn_coef"]) if "thrust_dyn_coef" in values else 0.0
        return cls(
            float(values["mass"]),
            (math.sqrt(stiffness[0]), math.sqrt(stiffness[1]), math.sqrt(stiffness[2])),
            (damping[0], damping[1], damping[2]),
            (gain[0], gain[1], gain[2]),
            float(values["cmd_f_coef"]),
            lag,
            -drag[0][0],
            -drag[2][2],
            4 * float(values["thrust_min"]),
            4 * float(values["thrust_max"]),
        )

    @property
    def hover_thrust_n(self) -> Array:
        """Return the thrust command that balances the weight."""
        return self.mass_kg * GRAVITY_M_S2 / self.thrust_scale


Coefficients = tuple[Array, ...]  # for roll, pitch and yaw


@dataclass(frozen=True)
class AttitudeResponse:
    """Response of angles and thrust to a command held over one step; computed once for many steps."""

    duration_s: Array
    kept: Coefficients  # remaining share of an angle's offset from its final value
    gained: Coefficients  # [s]: growth of the offset for each rad/s of rate
    slowed: Coefficients  # [1/s]: decrease of the rate for each rad of offset
    rate_kept: Coefficients  # remaining share of a rate
    thrust_gain: Array  # share of the difference to its command by which the thrust changes in the step
    thrust_mean: Array  # the same for the mean over the step

    @classmethod
    def create(cls, parameters: AttitudeDroneParameters, duration_s: Array, like: Array) -> Self:
        """Return the response for a step; ``like`` is any array of the batch's library and precision."""
        xp = array_namespace(like)
        duration = xp.asarray(duration_s, dtype=like.dtype)
        columns: list[tuple[Array, Array, Array, Array]] = []
        for w, zeta in zip(parameters.frequency_rad_s, parameters.damping, strict=True):
            even, odd = _hyperbolic((zeta**2 - 1) * (w * duration) ** 2)
            fade, odd = xp.exp(-zeta * w * duration), odd * duration
            columns.append(
                (fade * (even + zeta * w * odd), fade * odd, fade * odd * w**2, fade * (even - zeta * w * odd))
            )
        if is_number(parameters.thrust_lag_s, 0.0):
            gain, mean = duration * 0 + 1, duration * 0 + 1
        else:
            ratio = duration / parameters.thrust_lag_s
            gain = -xp.expm1(-ratio)
            mean = 1 - gain / ratio
        kept, gained, slowed, rate_kept = zip(*columns, strict=True)
        return cls(duration, kept, gained, slowed, rate_kept, gain, mean)


def step(
    parameters: AttitudeDroneParameters,
    state: AttitudeDroneState,
    command: Array,
    duration_s: Array,
    disturbance: Disturbance | None = None,
) -> AttitudeDroneState:
    """Return the state after a time under a constant command.

    Args:
        parameters: of the drones.
        state: now; pitch well within a quarter turn, where angles and their rates are one to one with the rotation.
        command: (4, ...): roll, pitch, yaw [rad] and thrust of all rotors [N], clipped to their limits.
        duration_s: (...) [s], or a number; the error of a step grows with its third power.
        disturbance: external force and torque; None for none.
    """
    response = AttitudeResponse.create(parameters, duration_s, state.thrust)
    return from_angles_state(advance(parameters, response, to_angles_state(state), command, disturbance))


def advance(
    parameters: AttitudeDroneParameters,
    response: AttitudeResponse,
    state: AnglesState,
    command: Array,
    disturbance: Disturbance | None = None,
) -> AnglesState:
    """Return the state after one step of ``response``; command and disturbance as in `step`."""
    duration = response.duration_s
    turning = None if disturbance is None else disturbance.angular_acceleration_body
    pushed = (None,) * 3 if turning is None else _pushed_angles(parameters, state, turning, duration)
    pairs = [_turned(parameters, response, state, k, command[k, ...], pushed[k]) for k in range(3)]
    wanted = clipped(command[3, ...], parameters.thrust_least_n, parameters.thrust_most_n)
    thrust = state.thrust + response.thrust_gain * (wanted - state.thrust)
    lift = (state.thrust + response.thrust_mean * (wanted - state.thrust)) * (
        parameters.thrust_scale / parameters.mass_kg
    )
    # angles in the middle of the step, from both ends and their slopes
    middle = [
        (state.angles[k, ...] + angle) / 2 + (state.rates[k, ...] - rate) * (duration / 8)
        for k, (angle, rate) in enumerate(pairs)
    ]
    up = _up(*middle)
    push = [lift * component for component in up]
    push[2] = push[2] - GRAVITY_M_S2
    if disturbance is not None:
        push = [push[k] + disturbance.acceleration_world[k, ...] for k in range(3)]
    across, more = (
        drag / parameters.mass_kg
        for drag in (parameters.drag_across_kg_s, parameters.drag_along_kg_s - parameters.drag_across_kg_s)
    )

    def accelerated(start: list[Array], speed: list[Array], time: Array) -> list[Array]:
        along = more * sum_terms([u * v for u, v in zip(up, speed, strict=True)])
        return [v + time * (a - across * s - along * u) for v, a, s, u in zip(start, push, speed, up, strict=True)]

    velocity = [state.velocity_world[k, ...] for k in range(3)]
    after = accelerated(velocity, accelerated(velocity, velocity, duration / 2), duration)
    place = [state.position_world[k, ...] + (duration / 2) * (velocity[k] + after[k]) for k in range(3)]
    return AnglesState(
        stacked(*place),
        stacked(*(pair[0] for pair in pairs)),
        stacked(*after),
        stacked(*(pair[1] for pair in pairs)),
        thrust,
    )


def to_angles_state(state: AttitudeDroneState) -> AnglesState:
    """Return the state with its attitude as angles."""
    angles = to_angles(state.quaternion_xyzw)
    return AnglesState(
        state.position_world, angles, state.velocity_world, angle_rates(angles, state.rates_body), state.thrust
    )


def from_angles_state(state: AnglesState) -> AttitudeDroneState:
    """Return the state with its attitude as quaternion."""
    return AttitudeDroneState(
        state.position_world,
        from_angles(state.angles),
        state.velocity_world,
        body_rates(state.angles, state.rates),
        state.thrust,
    )


def resting(position_world: Array, yaw: Array, parameters: AttitudeDroneParameters) -> AttitudeDroneState:
    """Return level drones that hover at positions (3, ...) [m] with headings (...) [rad]."""
    zero = position_world * 0
    level = stacked(zero[0, ...], zero[0, ...], yaw + zero[0, ...])
    return AttitudeDroneState(position_world, from_angles(level), zero, zero, zero[0, ...] + parameters.hover_thrust_n)


def _turned(
    parameters: AttitudeDroneParameters,
    response: AttitudeResponse,
    state: AnglesState,
    k: int,
    command: Array,
    pushed: Array | None,
) -> tuple[Array, Array]:
    """Return one angle and its rate after the step."""
    angle, rate = state.angles[k, ...], state.rates[k, ...]
    offset = angle - parameters.gain[k] * command
    if k == 2:
        # a heading is the same after a whole turn
        offset = offset - 2 * math.pi * array_namespace(offset).round(offset / (2 * math.pi))
    offset = offset if pushed is None else offset - pushed
    change = (response.kept[k] - 1) * offset + response.gained[k] * rate
    return angle + change, response.rate_kept[k] * rate - response.slowed[k] * offset


def _pushed_angles(
    parameters: AttitudeDroneParameters, state: AnglesState, turning: Array, duration: Array
) -> list[Array]:
    """Return by how much a constant angular acceleration (3, ...) shifts the final values of the angles."""
    # the same map as for rates, in the middle of the step
    growth = angle_rates(state.angles + duration / 2 * state.rates, turning)
    return [growth[k, ...] / parameters.frequency_rad_s[k] ** 2 for k in range(3)]


def _up(roll: Array, pitch: Array, yaw: Array) -> tuple[Array, Array, Array]:
    """Return the body's z axis in the world."""
    xp = array_namespace(roll)
    sr, cr, sy, cy = xp.sin(roll), xp.cos(roll), xp.sin(yaw), xp.cos(yaw)
    forward = cr * xp.sin(pitch)
    return forward * cy + sr * sy, forward * sy - sr * cy, cr * xp.cos(pitch)


def _hyperbolic(square: Array) -> tuple[Array, Array]:
    """Return cosh(x) and sinh(x)/x of a squared argument, which may be negative (cos and sin(x)/x)."""
    even, odd = square * 0 + 1, square * 0 + 1
    for n in range(_SERIES_TERMS, 0, -1):
        even = 1 + even * square / ((2 * n - 1) * (2 * n))
        odd = 1 + odd * square / ((2 * n) * (2 * n + 1))
    return even, odd
