"""A MuJoCo world at work: place robots, step under commands, read states and contacts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import mujoco
import numpy as np

from testudo_deploy.shield.layer1 import Arena
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_sim.worlds.bodies import discrete_gain
from testudo_sim.worlds.build import WorldRobot, build_world_spec, physics_step_s


@dataclass(frozen=True)
class RobotPose:
    """Where a robot truly is and how it truly moves."""

    position_world: tuple[float, ...]
    """(D,) [m]: middle of the axle, or of the body."""
    yaw: float
    """[rad] in (-pi, pi]."""
    velocity: tuple[float, ...]
    """(D,): (forward [m/s], turn rate [rad/s]) in the body, or (x, y, z) [m/s] in the world."""


@dataclass(frozen=True)
class Contact:
    """Two things that overlap: robot and robot, or robot and wall, floor or ceiling."""

    first: str
    second: str
    depth_m: float


class MujocoWorld:
    """Robots in one MuJoCo model; a step is `look` (at the state), then `advance` (to the next)."""

    def __init__(self, robots: Sequence[WorldRobot], arena: Arena | None) -> None:
        self.robots = tuple(robots)
        self.step_s = physics_step_s([robot.spec.control_period_s for robot in robots])
        self.model = build_world_spec(self.robots, arena, self.step_s).compile()
        self.data = mujoco.MjData(self.model)
        self._wheeled = [robot.spec.kind == DIFFERENTIAL_DRIVE for robot in self.robots]
        self._scale = np.zeros((len(self.robots), 3))
        for row, robot in zip(self._scale, self.robots, strict=True):
            scale = robot.parameters.channel_scale(robot.spec)
            row[: len(scale)] = scale
        self._find_addresses()

    def place(self, index: int, position_world: Sequence[float], yaw: float) -> None:
        """Put robot ``index`` at rest at ``position_world`` (D,) [m] and ``yaw`` [rad]."""
        at, speed = self._qpos[index], self._qvel[index]
        if self._wheeled[index]:
            height = self.robots[index].spec.wheel_radius_m
            pose = [*position_world, height, math.cos(yaw / 2), 0, 0, math.sin(yaw / 2)]
            self.data.qvel[speed : speed + 8] = 0
        else:
            pose = [*position_world, yaw]
            self.data.qvel[speed : speed + 4] = 0
        self.data.qpos[at : at + len(pose)] = pose

    def look(self) -> None:
        """Compute contacts and velocities of the current state."""
        mujoco.mj_step1(self.model, self.data)

    def advance(self, commands: np.ndarray) -> None:
        """Move by one step under ``commands`` (N, 3), of which each robot uses its D channels.

        The channels are (forward [m/s], turn rate [rad/s]) or (x, y, z) [m/s] in the world.
        """
        targets = commands * self._scale
        self.data.ctrl[self._drive_controls] = targets[self._drives, :2]
        if len(self._points):
            change = self._point_gain * (targets[self._points] - self.data.qvel[self._point_dofs])
            length = np.linalg.norm(change, axis=1, keepdims=True)
            change *= np.minimum(1.0, self._point_limit / np.maximum(length, 1e-12))
            self.data.ctrl[self._point_controls] = self._point_mass * change
        mujoco.mj_step2(self.model, self.data)

    def pose(self, index: int) -> RobotPose:
        """Return the true pose of robot ``index`` in the current state."""
        at, speed = self._qpos[index], self._qvel[index]
        if not self._wheeled[index]:
            x, y, z, yaw = self.data.qpos[at : at + 4].tolist()
            return RobotPose((x, y, z), yaw, tuple(self.data.qvel[speed : speed + 3].tolist()))
        x, y, _, w, i, j, k = self.data.qpos[at : at + 7].tolist()
        yaw = math.atan2(2 * (w * k + i * j), 1 - 2 * (j * j + k * k))
        vx, vy, _, _, _, turn_rate = self.data.qvel[speed : speed + 6].tolist()
        return RobotPose((x, y), yaw, (math.cos(yaw) * vx + math.sin(yaw) * vy, turn_rate))

    def contacts(self) -> tuple[Contact, ...]:
        """Return what overlapped at the last `look`, each pair once with its greatest depth."""
        count = self.data.ncon
        if not count:
            return ()
        hits = np.flatnonzero(self._is_hull[self.data.contact.geom[:count]].any(axis=1))
        deepest: dict[tuple[str, str], float] = {}
        for hit in hits:
            first, second = (self._owner[geom] for geom in self.data.contact.geom[hit])
            pair = (first, second) if self._order[first] <= self._order[second] else (second, first)
            deepest[pair] = max(deepest.get(pair, 0.0), -float(self.data.contact.dist[hit]))
        return tuple(Contact(*pair, depth) for pair, depth in deepest.items())

    def distances(self) -> np.ndarray:
        """Return the distance [m] of the centres of each `pairs` at the last `look`, (P,).

        Between two ground robots it is horizontal.
        """
        centres = self.data.xpos[self._bodies]
        apart = centres[self.pairs[0]] - centres[self.pairs[1]]
        apart[self._flat_pairs, 2] = 0
        return np.sqrt(np.einsum("pk,pk->p", apart, apart))

    def _find_addresses(self) -> None:
        model, count = self.model, len(self.robots)
        self._bodies = np.array([model.body(robot.name).id for robot in self.robots])
        first_joint = [model.body_jntadr[body] for body in self._bodies]
        self._qpos = [int(model.jnt_qposadr[joint]) for joint in first_joint]
        self._qvel = [int(model.jnt_dofadr[joint]) for joint in first_joint]
        self._drives = np.flatnonzero(self._wheeled)
        self._points = np.flatnonzero(np.logical_not(self._wheeled))
        self._drive_controls = self._control_ids(self._drives, ("speed", "turn"))
        self._point_controls = self._control_ids(self._points, ("x", "y", "z"))
        self._point_dofs = np.array(
            [[self._qvel[i] + axis for axis in range(3)] for i in self._points], dtype=int
        ).reshape(-1, 3)
        points = [self.robots[i] for i in self._points]
        self._point_gain = np.array(
            [[discrete_gain(robot.parameters.velocity_lag_s, self.step_s)] for robot in points]
        )
        self._point_limit = np.array([[robot.spec.acceleration_limit_m_s2] for robot in points])
        self._point_mass = np.array([[robot.spec.mass_kg] for robot in points])
        self.pairs = np.triu_indices(count, 1)
        wheeled = np.array(self._wheeled)
        self._flat_pairs = np.flatnonzero(wheeled[self.pairs[0]] & wheeled[self.pairs[1]])
        names = [model.geom(geom).name for geom in range(model.ngeom)]
        self._owner = [name.partition("/")[0] for name in names]
        self._is_hull = np.array([name.endswith("/hull") for name in names])
        self._order = {name: i for i, name in enumerate([robot.name for robot in self.robots])}
        for owner in self._owner:
            self._order.setdefault(owner, len(self._order))

    def _control_ids(self, indices: np.ndarray, channels: tuple[str, ...]) -> np.ndarray:
        return np.array(
            [
                [self.model.actuator(f"{self.robots[i].name}/{channel}").id for channel in channels]
                for i in indices
            ],
            dtype=int,
        ).reshape(-1, len(channels))
