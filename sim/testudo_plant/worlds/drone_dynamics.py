"""Drones in MuJoCo: free bodies under the wrench of the identified attitude dynamics.

The model is that of the tier `attitude`: the velocity cascade of the firmware converts a velocity to attitude and
thrust, and `attitude_drone` gives the motion in one physics step. The wrench is the one under which a free body with
the mass and inertia of the robot file has this motion; MuJoCo adds contact and gravity. One implementation for NumPy
(the plant) and JAX (the tiers), as in `robot_groups`.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np

from testudo_hardware.arrays import Array, array_namespace, known_false, stacked
from testudo_hardware.errors import TestudoError
from testudo_hardware.frames import body_rates, heading
from testudo_hardware.motion import MotionState
from testudo_hardware.motion.attitude_drone import (
    AttitudeDroneParameters,
    AttitudeDroneState,
    AttitudeResponse,
    advance,
    to_angles_state,
)
from testudo_hardware.motion.firmware_controllers import CascadeParameters, CascadeState, attitude_command
from testudo_hardware.motion.motion_state import shorten
from testudo_hardware.motion.rotor_drone import GRAVITY_M_S2, Disturbance
from testudo_hardware.spec import RobotSpec
from testudo_plant.worlds.actuator_forces import point_forces, weaker_braking

CONTROLS = ("force_x", "force_y", "force_z", "torque_x", "torque_y", "torque_z")
"""Actuators of a drone: force in the world [N], torque in the body [N m]."""
_GRIP = 0.5  # friction of the feet on the floor


@dataclass(frozen=True)
class FlightCommands:
    """Orders of drones besides a velocity; arrays (n, ...)."""

    level: Array  # whether roll and pitch are zero; only the climb follows the velocity
    off: Array  # whether the motors are off
    stands: Array  # whether it stands on the floor, motors off, held by its feet
    thrust_most_n: Array
    """Maximum total thrust at the battery voltage [N]; infinite to use only the limit of the robot file."""


@dataclass(frozen=True)
class FlightControllerState:
    """Controller state of drones; arrays (n, ...)."""

    thrust: Array  # total thrust over hover thrust
    cascade: CascadeState  # state of the velocity cascade; its integral is relative to hover
    command: Array  # (4, n, ...): last attitude [rad] and thrust [N] command of the cascade
    waits: Array  # physics steps until the next run of the cascade, as a float
    ahead: Array
    """(6, n, ...): world velocity [m/s] and body rates [rad/s] minus those of MuJoCo, which are means over the last
    step."""


def flies(spec: RobotSpec) -> bool:
    """Return whether a robot is a free flying body; without `[attitude]` it is a point that follows velocities."""
    return bool(spec.attitude)


class FlyingGroup:
    """Drones with an attitude; implements `RobotGroup`."""

    def __init__(
        self,
        model: mujoco.MjModel,
        names: Sequence[str],
        specs: Sequence[RobotSpec],
        drawn: Sequence[Mapping[str, float]] | None = None,
    ) -> None:
        parts = list(zip(specs, drawn or [{}] * len(specs), strict=True))
        joints = [model.joint(f"{name}/free").id for name in names]
        self.start_ids = model.jnt_qposadr[joints][None, :] + np.arange(7)[:, None]
        self._twist = model.jnt_dofadr[joints][None, :] + np.arange(6)[:, None]
        self.controls = np.array([[model.actuator(f"{name}/{part}").id for name in names] for part in CONTROLS])
        self.rate_ids = self._twist
        self._step_s = float(model.opt.timestep)
        bodies = [model.body(name).id for name in names]
        self._inertia, self._mass = np.array(model.body_inertia[bodies]).T, np.array(model.body_mass[bodies])
        self._spec = specs[0]
        self._drone = _of_all([AttitudeDroneParameters.from_spec(*part) for part in parts])
        cascades = [CascadeParameters.from_spec(*part) for part in parts]
        self._cascade = _of_all(cascades)
        self._every = np.array([max(1.0, round(one.period_s / self._step_s)) for one in cascades])
        self._own = self._drone, dataclasses.replace(self._cascade, thrust_base_n=self._drone.hover_thrust_n)
        """For NumPy, without batch axes."""
        self._hover_n = np.broadcast_to(self._drone.hover_thrust_n, self._mass.shape)
        self._response: AttitudeResponse | None = None

    def hover_thrust_n(self, place: int) -> float:
        """Return the hover thrust [N] of the drone at this index of the group."""
        return float(self._hover_n[place])

    def start(self, position_world: Array, yaw: Array) -> Array:
        """See `RobotGroup.start`."""
        xp, nothing = array_namespace(yaw), 0 * yaw
        return xp.stack(
            [*(position_world[axis, ...] for axis in range(3)), xp.cos(yaw / 2), nothing, nothing, xp.sin(yaw / 2)]
        )

    def start_rates(self, yaw: Array, velocity: Array) -> Array:
        """See `RobotGroup.start_rates`: a drone begins in hover.

        Raises:
            TestudoError: always.
        """
        raise TestudoError(
            "found starts at speed of drones with an attitude, which begin in hover in MuJoCo; use --physics kinematic"
        )

    def begin(self, yaw: Array) -> FlightControllerState:
        """See `RobotGroup.begin`: it hovers."""
        zero = 0 * yaw
        settled = CascadeState(stacked(zero, zero, zero), yaw)
        return FlightControllerState(zero + 1, settled, stacked(zero, zero, yaw, zero), zero, stacked(*[zero] * 6))

    def motion(self, qpos: Array, qvel: Array) -> MotionState:
        """See `RobotGroup.motion`."""
        return MotionState(qpos[self.start_ids[:3]], heading(self.attitude(qpos)), qvel[self._twist[:3]])

    def attitude(self, qpos: Array) -> Array:
        """Return the quaternions x, y, z, w (4, n, ...)."""
        w, x, y, z = (qpos[row] for row in self.start_ids[3:])
        return stacked(x, y, z, w)

    def forces(self, target: Array, qpos: Array, qvel: Array, drive: Any) -> tuple[Array, FlightControllerState]:
        """See `RobotGroup.forces`."""
        drone, rules = self._parameters(drive, qvel[self._twist[0]])
        twist = qvel[self._twist]
        now = twist + drive.memory.ahead
        state = AttitudeDroneState(
            qpos[self.start_ids[:3]], self.attitude(qpos), now[:3], now[3:], drive.memory.thrust * drone.hover_thrust_n
        )
        orders: FlightCommands | None = drive.orders
        command, cascade, waits = self._asked(state, target, rules, drive)
        push = None if drive.push_world is None else Disturbance(drive.push_world, None)
        if orders is not None:
            command = stacked(
                *(command[k, ...] for k in range(3)),
                array_namespace(command).minimum(command[3, ...], orders.thrust_most_n),
            )
        after = advance(drone, self._respond(drone, drive, state.thrust), to_angles_state(state), command, push)
        # MuJoCo moves a body by its velocity at the end of a step: set that to the mean over the step
        ahead = (
            array_namespace(now).concat(
                [after.velocity_world - now[:3], body_rates(after.angles, after.rates) - now[3:]]
            )
            / 2
        )
        change = (now + ahead - twist) / self._step_s
        force = [drone.mass_kg * change[k, ...] for k in range(3)]
        force[2] = force[2] + drone.mass_kg * GRAVITY_M_S2
        torque = self._torque(twist[3:], change[3:], drone.mass_kg)
        controls, thrust = stacked(*force, *torque), after.thrust / drone.hover_thrust_n
        if orders is not None and not known_false(orders.off):
            xp = array_namespace(controls)
            controls, thrust, ahead = (xp.where(orders.off, 0.0, one) for one in (controls, thrust, ahead))
            if not known_false(orders.stands):
                controls = xp.where(orders.stands, self._held(twist, drone.mass_kg), controls)
        return controls, FlightControllerState(thrust, cascade, command, waits, ahead)

    def broken(self, forces: Array, velocity: Array, share: Array, stuck: Array) -> Array:
        """Return the forces (6, n) of drones with weak brakes, or held in place."""
        weight = stacked(0 * share, 0 * share, self._drone.mass_kg * GRAVITY_M_S2 + 0 * share)
        weak = weaker_braking(forces[:3] - weight, velocity, share, turns=False) + weight
        mass, limit = self._drone.mass_kg + 0 * share, 0 * share + GRAVITY_M_S2
        held = point_forces(0 * velocity, velocity, 1 / self._step_s, mass, limit)
        return np.concatenate([np.where(stuck, held + weight, weak), np.where(stuck, 0.0, forces[3:])])

    def renewed(self, memory: FlightControllerState, fresh: FlightControllerState, place: int) -> FlightControllerState:
        """Return a state (NumPy, (..., n)) with robot ``place`` of the group reset to ``fresh``."""

        def mix(old: Any, new: Any) -> Any:
            if isinstance(old, np.ndarray):
                old = old.copy()
                old[..., place] = new[..., place]
                return old
            names = [field.name for field in dataclasses.fields(old)]
            return type(old)(**{name: mix(getattr(old, name), getattr(new, name)) for name in names})

        return mix(memory, fresh)

    def _parameters(self, drive: Any, like: Array) -> tuple[AttitudeDroneParameters, CascadeParameters]:
        """Return drone and controller parameters, nominal or drawn; the controller is relative to hover."""
        if drive.drawn is None and isinstance(like, np.ndarray):
            return self._own
        if drive.drawn is None:
            drone, cascade = _shaped(self._drone, like), _shaped(self._cascade, like)
        else:
            drone = AttitudeDroneParameters.from_spec(self._spec, drive.drawn)
            cascade = CascadeParameters.from_spec(self._spec, drive.drawn)
        return drone, dataclasses.replace(cascade, thrust_base_n=drone.hover_thrust_n)

    def _asked(
        self, state: AttitudeDroneState, target: Array, rules: CascadeParameters, drive: Any
    ) -> tuple[Array, CascadeState, Array]:
        """Return the present command (4, n, ...), the state of the cascade, and the steps until its next run."""
        xp, memory, orders = array_namespace(state.thrust), drive.memory, drive.orders
        due = memory.waits < 0.5  # a count
        every = broadcast_like(self._every, state.thrust)
        waits = xp.where(due, every, memory.waits) - 1
        if known_false(due):
            command, cascade = memory.command, memory.cascade
        else:
            yaw_rate = 0 * state.thrust if drive.yaw_rate is None else drive.yaw_rate
            asked, found = attitude_command(rules, state, memory.cascade, target, yaw_rate, self._step_s * every)
            command = xp.where(due, asked, memory.command)
            cascade = CascadeState(
                xp.where(due, found.integral, memory.cascade.integral),
                xp.where(due, found.yaw_command, memory.cascade.yaw_command),
            )
        if orders is None or known_false(orders.level | orders.off):
            return command, cascade, waits
        upright, zero = orders.level | orders.off, 0 * state.thrust
        command = stacked(
            xp.where(upright, zero, command[0, ...]),
            xp.where(upright, zero, command[1, ...]),
            command[2, ...],
            xp.where(orders.off, zero, command[3, ...]),
        )
        # overridden commands are not integrated; without motors the controllers are reset
        kept = xp.where(upright, memory.cascade.integral, cascade.integral)
        integral = stacked(kept[0, ...], kept[1, ...], cascade.integral[2, ...])
        # integral (3, n, ...) of a controller before its first flight
        base = _shaped(self._cascade, state.thrust).thrust_base_n
        up = (base - rules.thrust_base_n) / rules.thrust_per_way + 0 * state.thrust
        return (
            command,
            CascadeState(
                xp.where(orders.off, stacked(0 * state.thrust, 0 * state.thrust, up), integral),
                xp.where(orders.off, heading(state.quaternion_xyzw), cascade.yaw_command),
            ),
            waits,
        )

    def _respond(self, drone: AttitudeDroneParameters, drive: Any, like: Array) -> AttitudeResponse:
        """Return the response of attitude and thrust in one step; computed once for NumPy."""
        if drive.drawn is not None or not isinstance(like, np.ndarray):
            return AttitudeResponse.create(drone, self._step_s, like)
        if self._response is None:
            self._response = AttitudeResponse.create(drone, self._step_s, like)
        return self._response

    def _held(self, twist: Array, mass_kg: Array) -> Array:
        """Return the controls (6, n, ...) by which feet on the floor hold a body with a twist (6, n, ...)."""
        flat = mass_kg * shorten(-twist[:2] / self._step_s, _GRIP * GRAVITY_M_S2)
        torque = self._torque(twist[3:], -twist[3:] / self._step_s, mass_kg)
        return stacked(*flat, 0 * twist[2, ...], *torque)

    def _torque(self, rates: Array, growth: Array, mass_kg: Array) -> list[Array]:
        """Return the torque per body axis for angular accelerations (3, n, ...) at rates (3, n, ...)."""
        inertia = broadcast_like(self._inertia, rates) * (mass_kg / broadcast_like(self._mass, rates[0, ...]))
        spin = [inertia[k, ...] * rates[k, ...] for k in range(3)]
        wx, wy, wz = (rates[k, ...] for k in range(3))
        # MuJoCo subtracts the gyroscopic torque
        gyroscopic = (wy * spin[2] - wz * spin[1], wz * spin[0] - wx * spin[2], wx * spin[1] - wy * spin[0])
        return [inertia[k, ...] * growth[k, ...] + gyroscopic[k] for k in range(3)]


def _of_all(parts: Sequence[Any]) -> Any:
    """Return parameters of one type for all robots: equal values as a number, others as an array (n,)."""

    def all_of(found: tuple[Any, ...]) -> Any:
        if isinstance(found[0], tuple):
            return tuple(map(all_of, zip(*found, strict=True)))
        return found[0] if len(set(found)) == 1 else np.array(found)

    names = [field.name for field in dataclasses.fields(parts[0])]
    return type(parts[0])(**{name: all_of(tuple(getattr(part, name) for part in parts)) for name in names})


def _shaped(parameters: Any, like: Array) -> Any:
    """Return parameters with arrays broadcast to (n, ...) of a batch."""

    def fit(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(fit, value))
        return broadcast_like(value, like) if isinstance(value, np.ndarray) else value

    names = [field.name for field in dataclasses.fields(parameters)]
    return type(parameters)(**{name: fit(getattr(parameters, name)) for name in names})


def broadcast_like(constant: np.ndarray, array: Array) -> Array:
    """Return a constant (..., n) with the trailing batch axes and the type of an array (..., n, ...batch)."""
    shape = constant.shape + (1,) * (array.ndim - constant.ndim)
    return array_namespace(array).asarray(constant.reshape(shape), dtype=array.dtype)
