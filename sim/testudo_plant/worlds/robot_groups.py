"""Groups robots of one kind in a MuJoCo model: indices of their states, and the forces that drive them.

One implementation for NumPy (the plant: (component, robot)) and JAX (the tiers: (component, robot, world)).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import mujoco
import numpy as np

from testudo_hardware.arrays import Array, array_namespace
from testudo_hardware.motion import MotionState
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import RobotSpec
from testudo_plant.worlds.actuator_forces import PlanarBody, planar_forces, point_forces, wheel_forces
from testudo_plant.worlds.drone_dynamics import FlightCommands, FlyingGroup, broadcast_like, flies
from testudo_plant.worlds.robot_bodies import disc_inertia, wheel_inertia


@dataclass(frozen=True)
class GroupForces:
    """Inputs of the forces besides state and target."""

    gain: Array  # `discrete_gain` (...)
    grip: Array | float = 1.0  # friction of the wheels on the floor (...), for models without wheel contacts
    memory: Any = None  # controller state after the last step, see `RobotGroup.begin`
    orders: FlightCommands | None = None  # orders of drones; None if all follow velocities
    push_world: Array | None = None  # (3, n, ...) external acceleration [m/s²] of drones, such as downwash
    drawn: Mapping[str, Array] | None = None
    """Drawn parameters of drones by `table.key` (E,), in place of those in the robot file."""
    yaw_rate: Array | None = None  # (n, ...) [rad/s] of drones with an attitude; None if all hold their heading


class RobotGroup(Protocol):
    """Robots of one kind in a model; arrays have the component first, then the robots n of the group."""

    controls: np.ndarray  # (F, n): indices into the controls of the model
    start_ids: np.ndarray  # (Q, n): indices into qpos of the result of `start`
    rate_ids: np.ndarray  # (V, n): indices into qvel of the result of `start_rates`

    def start(self, position_world: Array, yaw: Array) -> Array:
        """Return qpos (Q, n, ...) of robots at position (D, n, ...) [m] and yaw (n, ...) [rad]."""

    def start_rates(self, yaw: Array, velocity: Array) -> Array:
        """Return qvel (V, n, ...) of robots with yaw (n, ...) [rad] and velocities (D, n, ...) as in `MotionState`.

        Raises:
            TestudoError: robots of this group begin at rest.
        """
        ...

    def motion(self, qpos: Array, qvel: Array) -> MotionState:
        """Return the motion (D, n, ...) in a state (nq, ...), (nv, ...); yaw in (-pi, pi] for wheels."""
        ...

    def begin(self, yaw: Array) -> Any:
        """Return the initial controller state of robots at rest with yaw (n, ...); None if there is none."""

    def forces(self, target: Array, qpos: Array, qvel: Array, drive: GroupForces) -> tuple[Array, Any]:
        """Return the controls (F, n, ...) for velocities ``target`` (D, n, ...), and the new controller state."""
        ...


class _Stateless:
    """A group without a controller state."""

    def begin(self, yaw: Array) -> None:
        """See `RobotGroup.begin`."""
        return


class WheelGroup(_Stateless):
    """Free bodies on wheels; implements `RobotGroup`."""

    def __init__(self, model: mujoco.MjModel, names: Sequence[str], specs: Sequence[RobotSpec]) -> None:
        free = [model.joint(f"{name}/free").id for name in names]
        wheels = [[model.joint(f"{name}/{side}_wheel").id for name in names] for side in ("left", "right")]
        self.start_ids = model.jnt_qposadr[free][None, :] + np.arange(7)[:, None]
        self._twist = model.jnt_dofadr[free][None, :] + np.arange(6)[:, None]
        self._wheels = model.jnt_dofadr[np.array(wheels)]
        self.rate_ids = np.concatenate([self._twist, self._wheels])
        self.controls = _controls(model, names, ("speed", "turn"))
        self._radius = np.array([spec.wheel_radius_m for spec in specs])
        self._base = np.array([spec.wheel_base_m for spec in specs])
        self._inertia = np.array([wheel_inertia(spec) for spec in specs]).T
        self._limit = np.array([(s.acceleration_limit_m_s2, s.turn_acceleration_limit_rad_s2) for s in specs]).T

    def start(self, position_world: Array, yaw: Array) -> Array:
        """See `RobotGroup.start`."""
        xp = array_namespace(yaw)
        nothing, height = 0 * yaw, 0 * yaw + broadcast_like(self._radius, yaw)
        half = yaw / 2
        return xp.stack(
            [position_world[0, ...], position_world[1, ...], height, xp.cos(half), nothing, nothing, xp.sin(half)]
        )

    def start_rates(self, yaw: Array, velocity: Array) -> Array:
        """See `RobotGroup.start_rates`: the wheels roll."""
        speed, turn = velocity[0, ...], velocity[1, ...]
        radius, base = broadcast_like(self._radius, yaw), broadcast_like(self._base, yaw)
        across = base / 2 * turn
        wheels = (speed - across) / radius, (speed + across) / radius
        return array_namespace(yaw).stack([*_in_plane(yaw, velocity), *[0 * yaw] * 3, turn, *wheels])

    def motion(self, qpos: Array, qvel: Array) -> MotionState:
        """See `RobotGroup.motion`."""
        xp = array_namespace(qpos)
        x, y, _, w, i, j, k = (qpos[row] for row in self.start_ids)
        vx, vy, _, _, _, turn = (qvel[row] for row in self._twist)
        yaw = xp.atan2(2 * (w * k + i * j), 1 - 2 * (j * j + k * k))
        return MotionState(xp.stack([x, y]), yaw, xp.stack([xp.cos(yaw) * vx + xp.sin(yaw) * vy, turn]))

    def forces(self, target: Array, qpos: Array, qvel: Array, drive: GroupForces) -> tuple[Array, None]:
        """See `RobotGroup.forces`."""
        xp = array_namespace(qvel)
        left, right = (qvel[row] for row in self._wheels)
        radius, base = broadcast_like(self._radius, left), broadcast_like(self._base, left)
        rate = xp.stack([radius * (left + right) / 2, radius * (right - left) / base])
        inertia, limit = broadcast_like(self._inertia, rate), broadcast_like(self._limit, rate)
        return wheel_forces(target, rate, drive.gain, inertia, limit), None


class PlanarGroup(_Stateless):
    """Sliding discs with the motion of wheeled robots; implements `RobotGroup`."""

    def __init__(self, model: mujoco.MjModel, names: Sequence[str], specs: Sequence[RobotSpec]) -> None:
        joints = [[model.joint(f"{name}/{axis}").id for name in names] for axis in ("x", "y", "yaw")]
        self.start_ids, self._twist = model.jnt_qposadr[np.array(joints)], model.jnt_dofadr[np.array(joints)]
        self.rate_ids = self._twist
        self.controls = _controls(model, names, ("x", "y", "yaw"))
        self._step_s = model.opt.timestep
        self._mass = np.array([wheel_inertia(spec)[0] for spec in specs])
        self._inertia = np.array([disc_inertia(spec) for spec in specs])
        self._limit = np.array([spec.acceleration_limit_m_s2 for spec in specs])
        self._turn_limit = np.array([spec.turn_acceleration_limit_rad_s2 for spec in specs])

    def start(self, position_world: Array, yaw: Array) -> Array:
        """See `RobotGroup.start`."""
        return array_namespace(yaw).stack([position_world[0, ...], position_world[1, ...], yaw])

    def start_rates(self, yaw: Array, velocity: Array) -> Array:
        """See `RobotGroup.start_rates`."""
        return array_namespace(yaw).stack([*_in_plane(yaw, velocity), velocity[1, ...]])

    def motion(self, qpos: Array, qvel: Array) -> MotionState:
        """See `RobotGroup.motion`."""
        xp = array_namespace(qpos)
        x, y, yaw = (qpos[row] for row in self.start_ids)
        vx, vy, turn = (qvel[row] for row in self._twist)
        return MotionState(xp.stack([x, y]), yaw, xp.stack([xp.cos(yaw) * vx + xp.sin(yaw) * vy, turn]))

    def forces(self, target: Array, qpos: Array, qvel: Array, drive: GroupForces) -> tuple[Array, None]:
        """See `RobotGroup.forces`."""
        yaw = qpos[self.start_ids[2]]
        parts = (self._mass, self._inertia, self._limit, self._turn_limit)
        mass, inertia, limit, turn_limit = (broadcast_like(part, yaw) for part in parts)
        body = PlanarBody(mass, inertia, limit, turn_limit, self._step_s)
        return planar_forces(target, yaw, qvel[self._twist], drive.gain, body, drive.grip), None


class PointGroup(_Stateless):
    """Robots that follow velocity commands in the world, in the plane or in space; implements `RobotGroup`."""

    def __init__(self, model: mujoco.MjModel, names: Sequence[str], specs: Sequence[RobotSpec]) -> None:
        axes = ("x", "y", "z")[: specs[0].dimension]
        joints = [[model.joint(f"{name}/{axis}").id for name in names] for axis in (*axes, "yaw")]
        self.start_ids, self._twist = model.jnt_qposadr[np.array(joints)], model.jnt_dofadr[np.array(joints)]
        self.rate_ids = self._twist
        self.controls = _controls(model, names, axes)
        self._mass = np.array([spec.mass_kg for spec in specs])
        self._limit = np.array([spec.acceleration_limit_m_s2 for spec in specs])

    def start(self, position_world: Array, yaw: Array) -> Array:
        """See `RobotGroup.start`."""
        return array_namespace(yaw).stack([*(position_world[axis, ...] for axis in range(len(self.controls))), yaw])

    def start_rates(self, yaw: Array, velocity: Array) -> Array:
        """See `RobotGroup.start_rates`: they hold their heading."""
        return array_namespace(yaw).stack([*(velocity[axis, ...] for axis in range(len(self.controls))), 0 * yaw])

    def motion(self, qpos: Array, qvel: Array) -> MotionState:
        """See `RobotGroup.motion`."""
        return MotionState(qpos[self.start_ids[:-1]], qpos[self.start_ids[-1]], qvel[self._twist[:-1]])

    def forces(self, target: Array, qpos: Array, qvel: Array, drive: GroupForces) -> tuple[Array, None]:
        """See `RobotGroup.forces`."""
        velocity = qvel[self._twist[:-1]]
        like = velocity[0, ...]
        mass, limit = broadcast_like(self._mass, like), broadcast_like(self._limit, like)
        return point_forces(target, velocity, drive.gain, mass, limit), None


def make_group(
    model: mujoco.MjModel,
    names: Sequence[str],
    specs: Sequence[RobotSpec],
    form: str,
    drawn: Sequence[Mapping[str, float]] | None = None,
) -> RobotGroup:
    """Return the group of robots of one kind; all or none have an attitude.

    ``drawn`` holds, by robot, parameters that replace those of a drone file, see `PlantParameters.attitude`.
    """
    if flies(specs[0]):
        return FlyingGroup(model, names, specs, drawn)
    if specs[0].kind != DIFFERENTIAL_DRIVE:
        return PointGroup(model, names, specs)
    return WheelGroup(model, names, specs) if form == "wheels" else PlanarGroup(model, names, specs)


def _in_plane(yaw: Array, velocity: Array) -> tuple[Array, Array]:
    """Return the velocity in the world (n, ...), (n, ...) of robots on wheels."""
    xp = array_namespace(yaw)
    return xp.cos(yaw) * velocity[0, ...], xp.sin(yaw) * velocity[0, ...]


def _controls(model: mujoco.MjModel, names: Sequence[str], channels: Sequence[str]) -> np.ndarray:
    return np.array([[model.actuator(f"{name}/{channel}").id for name in names] for channel in channels])
