"""A quadrotor whose command is the thrust of each rotor: rigid body, rotors with a lag, drag (first principles).

Body frame FLU. Rotors as on a Crazyflie (X, numbered clockwise seen from above): 1 front right, 2 rear right,
3 rear left, 4 front left; 1 and 3 turn counter-clockwise. With thrust f_k along the body's z axis and the arm
a = L / sqrt(2)::

    m dv/dt = R (0, 0, c sum f) - R D R' v - m g e_z + F
    J dw/dt = M f + t0 - B w - w x J w + T,  M = ((-a, -a, a, a), (-a, a, a, -a), (-k, k, -k, k)) c
    dq/dt   = q (w, 0) / 2,   df/dt = (u - f) / lag

With propellers (`propellers.py`) thrusts follow their speeds, they give the yaw torque, and their momentum h along z
adds h (w_y, -w_x, 0) + (0, 0, dh/dt) to the torque.

Rigid body as in Mahony, Kumar, Corke, "Multirotor aerial vehicles" (RAM 2012), linear drag as in Faessler, Franchi,
Scaramuzza, "Differential flatness of quadrotor dynamics subject to rotor drag" (RA-L 2018). One step is of second
order: the lag and the damping of rates are exact, all other terms are taken at the middle of the step.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from testudo_hardware.arrays import Array, array_namespace, clipped, stacked
from testudo_hardware.errors import TestudoError
from testudo_hardware.frames import body_up, from_rotation_vector, multiply, normalised, rotate, rotate_back
from testudo_hardware.motion.battery import maximum_thrust_at
from testudo_hardware.motion.motion_state import sum_terms
from testudo_hardware.motion.propellers import RAD_S_PER_RPM, Propellers
from testudo_hardware.spec import RobotSpec

GRAVITY_M_S2 = 9.81

ROLL_SIGNS = (-1.0, -1.0, 1.0, 1.0)
PITCH_SIGNS = (-1.0, 1.0, 1.0, -1.0)
YAW_SIGNS = (-1.0, 1.0, -1.0, 1.0)

_SMALL_DECAY = 1e-6  # damping times duration below which the series of (1 - exp(-x))/x is exact to rounding


@dataclass(frozen=True)
class RotorDroneState:
    """State of quadrotors; batch axes last."""

    position_world: Array  # (3, ...) [m]
    quaternion_xyzw: Array  # (4, ...) [1]: body to world
    velocity_world: Array  # (3, ...) [m/s]
    rates_body: Array  # (3, ...) [rad/s]
    thrust: Array  # (4, ...) [N]: current thrust of the rotors, before the scale


@dataclass(frozen=True)
class RotorDroneParameters:
    """Parameters of quadrotors; each a number, or an array over the batch (...)."""

    mass_kg: Array
    arm_m: tuple[Array, Array]
    """Lever of each rotor about the body's x and y axes: half the distance of the rotors beside and before it."""
    inertia_kg_m2: tuple[Array, Array, Array]  # about the body's axes
    torque_per_thrust_m: Array  # yaw torque of a rotor over its thrust
    thrust_scale: Array  # ratio of acting to commanded thrust
    thrust_lag_s: Array
    drag_kg_s: tuple[Array, Array, Array]  # force against the velocity along the body's axes
    rate_damping_n_m_s: tuple[Array, Array, Array]  # torque against the body's rates
    torque_offset_n_m: tuple[Array, Array, Array]
    """Constant torque about the body's axes: offset centre of mass, uneven rotors."""
    thrust_least_n: Array
    thrust_most_n: Array  # least and largest thrust of one rotor; commands are clipped to them
    propellers: Propellers | None = None
    """Gives thrust and yaw torque in place of `thrust_lag_s` and `torque_per_thrust_m`."""

    @classmethod
    def from_spec(
        cls,
        spec: RobotSpec,
        battery_v: Array | None = None,
        drawn: Mapping[str, Array] | None = None,
        *,
        with_propellers: bool = False,
    ) -> Self:
        """Return the parameters of a robot file with a table `[rotors]`.

        The caller queues commands for their delay (`rotors.thrust_delay`), which is not part of the model.

        Args:
            spec: the robot.
            battery_v: voltage (...) [V], which sets the largest thrust; None for that of the file.
            drawn: values (...) by `rotors.key`, `propellers.key` and `geometry.mass` in place of the file's.
            with_propellers: use the speeds of `[propellers]` for lag and yaw torque, where the file has them.

        Raises:
            TestudoError: the file has no `[rotors]`.
        """
        if not spec.rotors:
            raise TestudoError(f"{spec.name}: the robot file has no [rotors]; a model of the rotors needs it")
        named = {key: quantity.value for key, quantity in spec.rotors.items()} | dict(drawn or {})
        value = {key.removeprefix("rotors."): number for key, number in named.items()}
        most = value["thrust_most"]
        if battery_v is not None:
            most = maximum_thrust_at(most, value["thrust_most_per_volt"], battery_v - value["battery"])
        return cls(
            mass_kg=named.get("geometry.mass", spec.mass_kg),
            arm_m=(value["arm"], value["arm"]),
            inertia_kg_m2=(value["roll_inertia"], value["pitch_inertia"], value["yaw_inertia"]),
            torque_per_thrust_m=value["torque_per_thrust"],
            thrust_scale=value["thrust_scale"],
            thrust_lag_s=value["thrust_lag"],
            drag_kg_s=(value["drag_across"], value["drag_across"], value["drag_along"]),
            rate_damping_n_m_s=(0.0, 0.0, 0.0),
            torque_offset_n_m=(0.0, 0.0, 0.0),
            thrust_least_n=0.0,
            thrust_most_n=most,
            propellers=Propellers.from_spec(spec, drawn) if with_propellers else None,
        )

    @classmethod
    def from_crazyflow(cls, values: Mapping[str, Any]) -> Self:
        """Return the parameters of one drone in crazyflow's file `first_principles`.

        Raises:
            TestudoError: inertia or drag couple its axes, or its curves of thrust and torque do not begin at zero.
        """
        inertia, drag = ([[float(x) for x in row] for row in values[key]] for key in ("J", "drag_matrix"))
        apart = all(table[i][j] == 0 for table in (inertia, drag) for i in range(3) for j in range(3) if i != j)
        if not apart or float(values["rpm2thrust"][0]) != 0 or float(values["rpm2torque"][0]) != 0:
            raise TestudoError(
                "crazyflow parameters: J and drag_matrix have to be diagonal, rpm2thrust and rpm2torque to begin with 0"
            )
        arm = float(values["L"])
        return cls(
            float(values["mass"]),
            (arm, arm),
            (inertia[0][0], inertia[1][1], inertia[2][2]),
            0.0,
            1.0,
            1.0,
            (-drag[0][0], -drag[1][1], -drag[2][2]),
            (0.0, 0.0, 0.0),
            (0.0, 0.0, 0.0),
            float(values["thrust_min"]),
            float(values["thrust_max"]),
            Propellers.from_crazyflow(values),
        )

    @property
    def hover_thrust_n(self) -> Array:
        """Return the command of each rotor that carries the weight."""
        return self.mass_kg * GRAVITY_M_S2 / (4 * self.thrust_scale)


@dataclass(frozen=True)
class Disturbance:
    """External force and torque on the body, constant over a step."""

    acceleration_world: Array  # (3, ...) [m/s²]: force over mass
    angular_acceleration_body: Array | None  # (3, ...) [rad/s²]: torque over inertia; None for none


def step(
    parameters: RotorDroneParameters,
    state: RotorDroneState,
    thrust_command: Array,
    duration_s: Array,
    disturbance: Disturbance | None = None,
) -> RotorDroneState:
    """Return the state after a time under a constant command.

    Args:
        parameters: of the drones.
        state: now.
        thrust_command: (4, ...) [N], body frame, up; clipped to the limits of a rotor.
        duration_s: (...) [s], or a number; the error of a step grows with its third power.
        disturbance: external force and torque; None for none.
    """
    xp = array_namespace(state.thrust)
    duration = xp.asarray(duration_s, dtype=state.thrust.dtype)
    wanted = clipped(thrust_command, parameters.thrust_least_n, parameters.thrust_most_n)
    thrust, mean_thrust, yaw_torque, momentum, push = _spun(parameters, state.thrust, wanted, duration)
    torque = _rotor_torque(parameters, mean_thrust, yaw_torque, push)
    outside = None if disturbance is None else disturbance.angular_acceleration_body
    first = _next_rates(parameters, state.rates_body, state.rates_body, torque, momentum, duration, outside)
    rates = _next_rates(
        parameters, state.rates_body, (state.rates_body + first) / 2, torque, momentum, duration, outside
    )
    turn = (state.rates_body + rates) * (duration / 2)
    middle = multiply(state.quaternion_xyzw, from_rotation_vector(turn / 2))
    quaternion = normalised(multiply(state.quaternion_xyzw, from_rotation_vector(turn)))
    half_velocity = state.velocity_world + (duration / 2) * _acceleration(
        parameters, state.quaternion_xyzw, state.velocity_world, mean_thrust, disturbance
    )
    acceleration = _acceleration(parameters, middle, half_velocity, mean_thrust, disturbance)
    velocity = state.velocity_world + duration * acceleration
    position = state.position_world + duration * (state.velocity_world + velocity) / 2
    return RotorDroneState(position, quaternion, velocity, rates, thrust)


def resting(position_world: Array, parameters: RotorDroneParameters) -> RotorDroneState:
    """Return level drones that hover at positions (3, ...) [m]."""
    zero = position_world * 0
    level = stacked(zero[0, ...], zero[0, ...], zero[0, ...], zero[0, ...] + 1)
    hover = zero[0, ...] + parameters.hover_thrust_n
    return RotorDroneState(position_world, level, zero, zero, stacked(hover, hover, hover, hover))


def _spun(
    parameters: RotorDroneParameters, thrust: Array, wanted: Array, duration: Array
) -> tuple[Array, Array, Array, Array | None, Array | None]:
    """Return the rotors' outputs of a step.

    Returns:
        Thrusts (4, ...) [N] at its end and their mean, the mean aerodynamic yaw torque (...) [N m], and along the
        body's z axis the mean momentum (...) [N m s] and its mean growth [N m]; the last two None without propellers.
    """
    xp = array_namespace(thrust)
    if parameters.propellers is None:
        ratio = duration / parameters.thrust_lag_s
        gain = -xp.expm1(-ratio)
        # mean over the step of the exact exponential
        mean = wanted + gain / ratio * (thrust - wanted)
        yaw = parameters.torque_per_thrust_m * _signed_sum(YAW_SIGNS, mean)
        return thrust + gain * (wanted - thrust), mean, yaw, None, None
    blades = parameters.propellers
    start, command = blades.speed(thrust), blades.speed(wanted)
    middle, end = (blades.speed_after(start, command, time) for time in (duration / 2, duration))

    def mean_of(function: Callable[[Array], Array]) -> Array:
        return (function(start) + 4 * function(middle) + function(end)) / 6

    spin = blades.inertia_kg_m2 * RAD_S_PER_RPM
    return (
        blades.thrust(end),
        mean_of(blades.thrust),
        _signed_sum(YAW_SIGNS, mean_of(blades.torque)),
        spin * _signed_sum(YAW_SIGNS, mean_of(lambda speed: speed)),
        spin * _signed_sum(YAW_SIGNS, end - start) / duration,
    )


def _signed_sum(signs: tuple[float, ...], values: Array) -> Array:
    return sum_terms([sign * values[k, ...] for k, sign in enumerate(signs)])


def _rotor_torque(parameters: RotorDroneParameters, thrust: Array, yaw: Array, push: Array | None) -> Array:
    roll, pitch = (
        lever * _signed_sum(signs, thrust)
        for lever, signs in zip(parameters.arm_m, (ROLL_SIGNS, PITCH_SIGNS), strict=True)
    )
    along = parameters.thrust_scale * yaw + parameters.torque_offset_n_m[2]
    return stacked(
        parameters.thrust_scale * roll + parameters.torque_offset_n_m[0],
        parameters.thrust_scale * pitch + parameters.torque_offset_n_m[1],
        along if push is None else along + push,
    )


def _next_rates(
    parameters: RotorDroneParameters,
    rates: Array,
    middle: Array,
    torque: Array,
    momentum: Array | None,
    duration: Array,
    outside: Array | None,
) -> Array:
    """Return the rates (3, ...) after a step; ``middle`` (3, ...) are those of the gyroscopic term."""
    xp = array_namespace(rates)
    x, y, z = parameters.inertia_kg_m2
    wx, wy, wz = (middle[k, ...] for k in range(3))
    gyroscopic = ((y - z) * wy * wz, (z - x) * wz * wx, (x - y) * wx * wy)
    if momentum is not None:
        gyroscopic = (gyroscopic[0] + momentum * wy, gyroscopic[1] - momentum * wx, gyroscopic[2])
    after: list[Array] = []
    for k in range(3):
        inertia = parameters.inertia_kg_m2[k]
        push = (torque[k, ...] + gyroscopic[k]) / inertia
        push = push if outside is None else push + outside[k, ...]
        damping = parameters.rate_damping_n_m_s[k] / inertia
        decay = duration * damping
        large = decay > _SMALL_DECAY
        share = xp.where(large, -xp.expm1(-decay) / xp.where(large, decay, 1.0), 1 - decay / 2)
        after.append(rates[k, ...] + share * duration * (push - rates[k, ...] * damping))
    return stacked(*after)


def _acceleration(
    parameters: RotorDroneParameters,
    quaternion_xyzw: Array,
    velocity_world: Array,
    thrust: Array,
    disturbance: Disturbance | None,
) -> Array:
    xp = array_namespace(thrust)
    total = parameters.thrust_scale / parameters.mass_kg * xp.sum(thrust, axis=0)
    along = rotate_back(quaternion_xyzw, velocity_world)
    drag = rotate(
        quaternion_xyzw, stacked(*(parameters.drag_kg_s[k] / parameters.mass_kg * along[k, ...] for k in range(3)))
    )
    lift = total * body_up(quaternion_xyzw) - drag
    fall = stacked(lift[0, ...], lift[1, ...], lift[2, ...] - GRAVITY_M_S2)
    return fall if disturbance is None else fall + disturbance.acceleration_world
