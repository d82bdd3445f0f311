"""The bodies of a fleet and of a hunter, kinematic or in MuJoCo, and their contacts at every physics step."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Protocol

import numpy as np

from testudo_deploy.shield.velocity_projection import Arena
from testudo_hardware.links.wire import world_command
from testudo_hardware.motion import LagResponse, MotionState, motion_model
from testudo_hardware.schema import DIFFERENTIAL_DRIVE, HOLONOMIC
from testudo_hardware.spec import RobotSpec
from testudo_plant.worlds.world import MujocoWorld
from testudo_plant.worlds.world_builder import PlantParameters, WorldRobot

STEP_S = 0.01
OWN_SPEED_M_S = 0.01  # a robot that is slower stands
_PUSHED_S = 1.0  # after a contact a robot may move without driving


@dataclass
class Contacts:
    """What an episode counts: steps with a contact, and those in which one of our robots in contact moved itself."""

    any: int = 0
    at_own_speed: int = 0
    least_m: float = math.inf


class Bodies(Protocol):
    """Robots, and perhaps a hunter as the last body."""

    contacts: Contacts
    delay_s: np.ndarray
    """(N,) command delay of each robot [s]."""

    def advance(self, commands: Sequence[Sequence[float]], hunter_velocity_world: np.ndarray) -> None:
        """Advance by `STEP_S` under the commands that the drivers apply."""
        ...

    def pose(self, index: int) -> tuple[tuple[float, ...], float, tuple[float, ...]]:
        """Return position (D,) [m], yaw [rad] and velocity (D,) of a robot."""
        ...

    def position(self, index: int) -> np.ndarray:
        """Return the place (2,) [m] of a robot, or of the hunter, which comes last."""
        ...


def speed_m_s(spec: RobotSpec, velocity: Sequence[float]) -> float:
    """Return the speed of a body's centre [m/s]."""
    return abs(velocity[0]) if spec.kind == DIFFERENTIAL_DRIVE else math.hypot(*velocity)


class KinematicBodies:
    """Bodies that follow the motion model, each robot at ends of the intervals of its file; walls are not solid."""

    def __init__(
        self,
        spec: RobotSpec,
        starts_world: np.ndarray,
        yaws: np.ndarray,
        random: np.random.Generator,
        hunter_start_world: np.ndarray | None,
    ) -> None:
        size = starts_world.shape[1]

        def corner(name: str) -> np.ndarray:
            quantity = spec.quantities[f"dynamics.{name}"]
            return random.choice([quantity.low, quantity.high], size)

        self._spec, self._model = spec, motion_model(spec)
        self._state = MotionState(starts_world.copy(), yaws.copy(), np.zeros_like(starts_world))
        self.delay_s = corner("command_delay")
        self._scale = np.tile(corner("speed_scale"), (spec.dimension, 1))
        if spec.kind == DIFFERENTIAL_DRIVE:
            self._scale[1] = corner("turn_scale")
        self._response = LagResponse.create(np.array(STEP_S), corner("velocity_lag"))
        self._hunter = hunter_start_world
        self._pairs = list(combinations(range(size + (hunter_start_world is not None)), 2))
        self._size, self.contacts = size, Contacts()

    def advance(self, commands: Sequence[Sequence[float]], hunter_velocity_world: np.ndarray) -> None:
        """See `Bodies`."""
        spec = self._spec
        yaws = self._state.yaw
        if spec.kind == HOLONOMIC:
            commands = [world_command(spec, one, yaw) for one, yaw in zip(commands, yaws, strict=True)]
        effective = self._model.limit_command(np.array(commands, float).T) * self._scale
        self._state = self._model.step(self._state, effective, self._response)
        if self._hunter is not None:
            self._hunter = self._hunter + STEP_S * hunter_velocity_world
        places = [self.position(i) for i in range(self._size + (self._hunter is not None))]
        for i, k in self._pairs:
            apart = math.dist(places[i], places[k])
            self.contacts.least_m = min(self.contacts.least_m, apart)
            if apart < 2 * spec.body_radius_m:
                self.contacts.any += 1
                own = [j for j in (i, k) if j < self._size]
                fastest = max(speed_m_s(spec, self.pose(j)[2]) for j in own)
                self.contacts.at_own_speed += fastest > OWN_SPEED_M_S

    def pose(self, index: int) -> tuple[tuple[float, ...], float, tuple[float, ...]]:
        """See `Bodies`."""
        state = self._state
        place, velocity = state.position_world[:, index], state.velocity[:, index]
        return tuple(place.tolist()), float(state.yaw[index]), tuple(velocity.tolist())

    def position(self, index: int) -> np.ndarray:
        """See `Bodies`."""
        if index == self._size and self._hunter is not None:
            return self._hunter
        return self._state.position_world[:, index]


class MujocoBodies:
    """Bodies of the plant's MuJoCo world; a hunter is one more robot, driven past the limits of its file.

    A robot that stands may be pushed: its speed counts at the step before a contact begins, unless the same two were in
    contact less than a second before.
    """

    def __init__(
        self,
        spec: RobotSpec,
        starts_world: np.ndarray,
        yaws: np.ndarray,
        random: np.random.Generator,
        hunter_start_world: np.ndarray | None,
        arena: Arena,
    ) -> None:
        size = starts_world.shape[1]
        drawn = [PlantParameters.sample(spec, random) for _ in range(size)]
        names = [f"r{i}" for i in range(size)]
        robots = [WorldRobot(name, spec, one) for name, one in zip(names, drawn, strict=True)]
        if hunter_start_world is not None:
            robots.append(WorldRobot("x", spec, PlantParameters.nominal(spec)))
        self._world = MujocoWorld(robots, arena)
        for i in range(size):
            self._world.place(i, starts_world[:, i], float(yaws[i]))
        if hunter_start_world is not None:
            self._world.place(size, hunter_start_world, 0.0)
        self._world.look()
        self._spec, self._size, self._names = spec, size, names
        self.delay_s = np.array([one.command_delay_s for one in drawn])
        self._now_s = self._due_s = 0.0
        self._touched_s: dict[tuple[str, str], float] = {}
        self.contacts = Contacts()

    def advance(self, commands: Sequence[Sequence[float]], hunter_velocity_world: np.ndarray) -> None:
        """See `Bodies`."""
        spec, world = self._spec, self._world
        self._due_s += STEP_S
        acting = np.zeros((len(world.robots), 3))
        while self._now_s + world.step_s / 2 < self._due_s:
            for i, one in enumerate(commands):
                values = world_command(spec, one, world.pose(i).yaw) if spec.kind == HOLONOMIC else one
                acting[i, : len(values)] = values
            if len(world.robots) > self._size:
                acting[-1, :2] = hunter_velocity_world
            before = {name: speed_m_s(spec, world.pose(i).velocity) for i, name in enumerate(self._names)}
            world.advance(acting)
            world.look()
            self._now_s += world.step_s
            self._count(before)

    def _count(self, speeds: dict[str, float]) -> None:
        touching = {(one.first, one.second) for one in self._world.contacts()}
        self.contacts.any += bool(touching)
        self.contacts.least_m = min(self.contacts.least_m, float(self._world.distances().min()))
        for pair in touching:
            if self._now_s - self._touched_s.get(pair, -math.inf) > _PUSHED_S:
                self.contacts.at_own_speed += max(speeds.get(name, 0.0) for name in pair) > OWN_SPEED_M_S
            self._touched_s[pair] = self._now_s

    def pose(self, index: int) -> tuple[tuple[float, ...], float, tuple[float, ...]]:
        """See `Bodies`."""
        found = self._world.pose(index)
        return found.position_world, found.yaw, found.velocity

    def position(self, index: int) -> np.ndarray:
        """See `Bodies`."""
        return np.array(self._world.pose(index).position_world[:2])
