"""Runs a MuJoCo world: places robots, steps under commands, reads states and contacts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import mujoco
import numpy as np

from testudo_deploy.shield.velocity_projection import Arena
from testudo_hardware.schema import DIFFERENTIAL_DRIVE, KINDS
from testudo_plant.worlds.actuator_forces import discrete_gain, point_forces, weaker_braking
from testudo_plant.worlds.drone_dynamics import FlightCommands, FlyingGroup, flies
from testudo_plant.worlds.robot_bodies import STIFF, Box
from testudo_plant.worlds.robot_groups import GroupForces, RobotGroup, make_group
from testudo_plant.worlds.world_builder import PlantParameters, WorldRobot, build_world_spec, physics_step_s, rhythms_s

_HULLS = ("hull", "body")
_BOX_JOINTS = ("x", "y", "yaw")
_SLIDE_M_S2 = 9.81  # deceleration of a blocked robot without wheels, about that of rubber on the floor
_STUCK = 10.0  # friction torque of a blocked axle over the torque that the weight of the robot can exert


@dataclass(frozen=True)
class RobotPose:
    """True pose and velocity of a robot."""

    position_world: tuple[float, ...]  # (D,) [m]: centre of the axle, or of the body
    yaw: float  # [rad] in (-pi, pi]
    velocity: tuple[float, ...]
    """(D,): (forward [m/s], turn rate [rad/s]) in the body, or (x, y, z) [m/s] in the world."""
    quaternion_xyzw: tuple[float, ...] | None = None  # body to world, of a drone with an attitude; else None


@dataclass(frozen=True)
class Contact:
    """Overlap of a robot with another robot, a wall, an obstacle, the floor or the ceiling."""

    first: str
    second: str
    depth_m: float


class MujocoWorld:
    """Robots in one MuJoCo model; a step is `look` (observe the state), then `advance` (to the next)."""

    def __init__(self, robots: Sequence[WorldRobot], arena: Arena | None, boxes: Sequence[Box] = ()) -> None:
        self.robots = tuple(robots)
        self.step_s = physics_step_s([period_s for robot in robots for period_s in rhythms_s(robot.spec)])
        spec = build_world_spec(self.robots, arena, self.step_s, boxes=boxes)
        self.model = spec.compile()
        self.data = mujoco.MjData(self.model)
        kinds = [(robot.spec.kind, flies(robot.spec)) for robot in self.robots]
        of_kind = ([i for i, found in enumerate(kinds) if found == (kind, free)] for kind in KINDS for free in (0, 1))
        self._members = tuple(np.array(part) for part in of_kind if part)
        parameters = [robot.parameters or PlantParameters.nominal(robot.spec) for robot in self.robots]
        self._groups = tuple(
            make_group(
                self.model,
                [self.robots[i].name for i in part],
                [self.robots[i].spec for i in part],
                "wheels",
                [parameters[i].attitude for i in part],
            )
            for part in self._members
        )
        members = list(zip(self._groups, self._members, strict=True))
        self._where = {int(i): (group, place) for group, part in members for place, i in enumerate(part)}
        """Group of each robot, and its index in it."""
        count = len(self.robots)
        self._memory = [group.begin(np.zeros(len(part))) for group, part in members]
        self._level, self._off, self._stands = (np.zeros(count, bool) for _ in range(3))
        self._push, self._thrust_most = np.zeros((3, count)), np.full(count, np.inf)
        self._yaw_rate = np.zeros(count)
        self._gain = discrete_gain(np.array([one.velocity_lag_s for one in parameters]), self.step_s)
        self._scale = np.zeros((count, 3))
        self._turn_slip = np.array([one.turn_slip_s_rad for one in parameters])
        for row, one, robot in zip(self._scale, parameters, self.robots, strict=True):
            # a drone has velocity feedback and thus no scale error
            scale = (1.0,) * 3 if flies(robot.spec) else one.channel_scale(robot.spec)
            row[: len(scale)] = scale
        self._braking_share, self._stuck = np.ones(count), np.zeros(count, bool)
        self._poses: tuple[RobotPose, ...] | None = None
        """Cache of the poses of the current state."""
        model = self.model
        flat = np.array([robot.spec.dimension == 2 for robot in self.robots])
        self._bodies = np.array([model.body(robot.name).id for robot in self.robots])
        self.pairs = np.triu_indices(len(self.robots), 1)
        ratio = np.array([robot.spec.height_ratio for robot in self.robots])
        flying = 1 / np.where(flat[self.pairs[0]] | flat[self.pairs[1]], 1.0, np.maximum(*ratio[np.array(self.pairs)]))
        self._height_shares = np.where(flat[self.pairs[0]] & flat[self.pairs[1]], 0.0, flying)
        names = [model.geom(geom).name for geom in range(model.ngeom)]
        self._owner = [name.partition("/")[0] for name in names]
        names_of_robots = {robot.name for robot in self.robots}
        parts = [name.partition("/")[2] for name in names]
        self._is_hull = np.array(
            [owner in names_of_robots and part in _HULLS for owner, part in zip(self._owner, parts, strict=True)]
        )
        self._is_box = np.array([part == "box" for part in parts])
        self._order = {name: i for i, name in enumerate([robot.name for robot in self.robots])}
        for owner in self._owner:
            self._order.setdefault(owner, len(self._order))

    def weaken_brakes(self, index: int, share: float) -> None:
        """Set the braking deceleration of robot ``index`` relative to nominal; for tests."""
        self._braking_share[index] = share

    def order(self, index: int, *, level: bool, off: bool, stands: bool = False) -> None:
        """Set whether a drone holds itself level, has its motors off, and then stands on the floor."""
        self._level[index], self._off[index], self._stands[index] = level, off, off and stands

    def turn(self, index: int, yaw_rate: float) -> None:
        """Set the yaw rate [rad/s] of a drone with an attitude, anticlockwise."""
        self._yaw_rate[index] = yaw_rate

    def weaken_rotors(self, index: int, thrust_most_n: float) -> None:
        """Set the maximum total thrust [N] of a drone."""
        self._thrust_most[index] = thrust_most_n

    def thrust(self, index: int) -> float:
        """Return the total thrust [N] of a drone with an attitude."""
        group, place = self._where[index]
        if not isinstance(group, FlyingGroup):
            return 0.0
        return float(self._memory[self._groups.index(group)].thrust[place]) * group.hover_thrust_n(place)

    def push(self, acceleration_world: np.ndarray) -> None:
        """Set external accelerations (3, N) [m/s²] of drones with an attitude."""
        self._push = acceleration_world

    def block(self, index: int, parts: Sequence[str]) -> None:
        """Block these parts of robot ``index`` and release all others; for tests.

        A blocked wheel (``left``, ``right``) slides; a robot without wheels (``body``) is held.
        """
        robot = self.robots[index]
        if robot.spec.kind != DIFFERENTIAL_DRIVE:
            self._stuck[index] = "body" in parts
            return
        for side in ("left", "right"):
            dof = self.model.joint(f"{robot.name}/{side}_wheel").dofadr[0]
            weight = _STUCK * robot.spec.mass_kg * _SLIDE_M_S2 * robot.spec.wheel_radius_m
            self.model.dof_frictionloss[dof] = weight if side in parts else 0.0
            self.model.dof_solref[dof], self.model.dof_solimp[dof] = (2 * self.step_s, 1.0), STIFF

    def place(self, index: int, position_world: Sequence[float], yaw: float) -> None:
        """Place robot ``index`` at rest at ``position_world`` (D,) [m] and ``yaw`` [rad]."""
        self._poses = None
        group, place = self._where[index]
        count = group.start_ids.shape[1]  # computed for the whole group, used for one
        places = np.repeat(np.array(position_world, dtype=float)[:, None], count, axis=1)
        yaws, member = np.full(count, float(yaw)), self._groups.index(group)
        self.data.qpos[group.start_ids[:, place]] = group.start(places, yaws)[:, place]
        if isinstance(group, FlyingGroup):
            self._memory[member] = group.renewed(self._memory[member], group.begin(yaws), place)
        body = self._bodies[index]
        for joint in np.flatnonzero(self.model.body_rootid[self.model.jnt_bodyid] == body):
            first = self.model.jnt_dofadr[joint]
            count = 6 if self.model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_FREE else 1
            self.data.qvel[first : first + count] = 0

    def place_box(self, name: str, position_world: Sequence[float], yaw: float) -> None:
        """Place a box at rest with its centre at ``position_world`` (2,) [m] and ``yaw`` [rad]."""
        for axis, value in zip(_BOX_JOINTS, (*position_world, yaw), strict=True):
            self.data.joint(f"{name}/{axis}").qpos[0] = value
            self.data.joint(f"{name}/{axis}").qvel[0] = 0.0

    def box_pose(self, name: str) -> tuple[tuple[float, float], float]:
        """Return the centre (2,) [m] and the yaw [rad] of a box in the current state; the yaw is not wrapped."""
        x, y, yaw = (float(self.data.joint(f"{name}/{axis}").qpos[0]) for axis in _BOX_JOINTS)
        return (x, y), yaw

    def look(self) -> None:
        """Compute contacts and velocities of the current state."""
        mujoco.mj_step1(self.model, self.data)

    def advance(self, commands: np.ndarray) -> None:
        """Advance by one step under ``commands`` (N, 3), of which each robot uses its D channels.

        The channels are (forward [m/s], turn rate [rad/s]) or (x, y, z) [m/s] in the world.
        """
        targets = (commands * self._scale).T
        # the second channel of a robot without wheels is a speed, but its slip is zero
        targets[0] /= 1 + (self._turn_slip * commands[:, 1]) ** 2
        for place, (group, part) in enumerate(zip(self._groups, self._members, strict=True)):
            size = self.robots[part[0]].spec.dimension
            drive = self._drive(place, group, part)
            forces, self._memory[place] = group.forces(targets[:size, part], self.data.qpos, self.data.qvel, drive)
            if self._stuck[part].any() or (self._braking_share[part] < 1).any():
                forces = self._broken(group, part, forces)
            self.data.ctrl[group.controls] = forces
        mujoco.mj_step2(self.model, self.data)
        self._poses = None

    def pose(self, index: int) -> RobotPose:
        """Return the true pose of robot ``index`` in the current state."""
        if self._poses is None:
            self._poses = self._all_poses()
        return self._poses[index]

    def contacts(self) -> tuple[Contact, ...]:
        """Return the overlaps at the last `look`, each pair once with its greatest depth; pushing a box is none."""
        if not self.data.ncon:
            return ()
        geoms = self.data.contact.geom[: self.data.ncon]
        return self._deepest(np.flatnonzero(self._is_hull[geoms].any(axis=1) & ~self._is_box[geoms].any(axis=1)))

    def box_contacts(self) -> tuple[Contact, ...]:
        """Return the same of the boxes: with robots, walls, obstacles and other boxes."""
        return self._deepest(np.flatnonzero(self._is_box[self.data.contact.geom[: self.data.ncon]].any(axis=1)))

    def _deepest(self, hits: np.ndarray) -> tuple[Contact, ...]:
        """Return the overlaps of some contacts, each pair once."""
        deepest: dict[tuple[str, str], float] = {}
        for hit in hits:
            first, second = (self._owner[geom] for geom in self.data.contact.geom[hit])
            pair = (first, second) if self._order[first] <= self._order[second] else (second, first)
            deepest[pair] = max(deepest.get(pair, 0.0), -float(self.data.contact.dist[hit]))
        return tuple(Contact(*pair, depth) for pair, depth in deepest.items())

    def distances(self) -> np.ndarray:
        """Return the distances (P,) [m] of the centres of `pairs` at the last `look`.

        Horizontal between two ground robots; between two drones heights are scaled as in their shields.
        """
        centres = self.data.xpos[self._bodies]
        apart = centres[self.pairs[0]] - centres[self.pairs[1]]
        apart[:, 2] *= self._height_shares
        return np.sqrt(np.einsum("pk,pk->p", apart, apart))

    def _all_poses(self) -> tuple[RobotPose, ...]:
        poses: dict[int, RobotPose] = {}
        for group, part in zip(self._groups, self._members, strict=True):
            motion = group.motion(self.data.qpos, self.data.qvel)
            found = zip(motion.position_world.T.tolist(), motion.yaw.tolist(), motion.velocity.T.tolist(), strict=True)
            poses |= {
                int(i): RobotPose(tuple(position), yaw, tuple(velocity))
                for i, (position, yaw, velocity) in zip(part, found, strict=True)
            }
            if isinstance(group, FlyingGroup):
                turns = zip(part, group.attitude(self.data.qpos).T.tolist(), strict=True)
                poses |= {int(i): replace(poses[int(i)], quaternion_xyzw=tuple(turn)) for i, turn in turns}
        return tuple(poses[i] for i in range(len(self.robots)))

    def _drive(self, place: int, group: RobotGroup, part: np.ndarray) -> GroupForces:
        if not isinstance(group, FlyingGroup):
            return GroupForces(self._gain[part])
        orders = FlightCommands(self._level[part], self._off[part], self._stands[part], self._thrust_most[part])
        return GroupForces(
            self._gain[part],
            memory=self._memory[place],
            orders=orders,
            push_world=self._push[:, part],
            yaw_rate=self._yaw_rate[part],
        )

    def _broken(self, group: RobotGroup, part: np.ndarray, forces: np.ndarray) -> np.ndarray:
        """Return the forces (F, n) of robots with weak brakes or blocked parts."""
        velocity = group.motion(self.data.qpos, self.data.qvel).velocity
        if isinstance(group, FlyingGroup):
            return group.broken(forces, velocity, self._braking_share[part], self._stuck[part])
        turns = self.robots[part[0]].spec.kind == DIFFERENTIAL_DRIVE
        forces = weaker_braking(forces, velocity, self._braking_share[part], turns=turns)
        if turns:
            return forces
        mass = np.array([self.robots[i].spec.mass_kg for i in part])
        held = point_forces(0 * velocity, velocity, 1 / self.step_s, mass, _SLIDE_M_S2 + 0 * mass)
        return np.where(self._stuck[part], held, forces)
