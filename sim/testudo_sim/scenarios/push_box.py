"""`push_box`: two to four robots push a box, which is too heavy for one of them, to a goal.

This scenario needs a tier with contact and friction (`mjx` or `mujoco`). The box is no obstacle for the shield.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp

from testudo_deploy.contract.contract import Signal
from testudo_deploy.shield.projection_margins import ProjectionParameters
from testudo_deploy.shield.velocity_projection import Arena
from testudo_hardware.errors import TestudoError
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import RobotSpec
from testudo_plant.worlds.robot_bodies import Box, wheel_inertia
from testudo_sim.physics.scene import BodyState, Scene
from testudo_sim.scenarios.goal_scenario import (
    ROBOTARIUM,
    SPAWN_EDGE_M,
    Grid,
    decision_ticks,
    goal_signal,
    spawn_box,
    straight_to,
)
from testudo_sim.scenarios.scenario import Observation, StartState, TaskStep

TEAM_SIZES = (2, 4)
_SPACING_M = 0.45  # spacing of the start grid of the Robotarium; the arena is scaled for robots that need more
_HEAVY = 1.25
"""Friction of the box over the largest push of a nominal robot: two of the weakest in its intervals move it."""
_FRICTION, _GRAVITY_M_S2 = 0.3, 9.81
_SIDE = 2.1
"""Side of the box over the separation of the shield: two robots fit beside each other, three barely."""
_ROOM_M = 0.05
_WAY_M = (0.3, 0.8)  # least and largest distance of the goal in the arena of the Robotarium
_HORIZON_S = 60.0
_BESIDE_RAD = 0.7  # angle from straight behind the box at which robots push beside each other
_OBSERVATION = Observation("goal_world", "box_position_world")


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PushTask:
    """Goal of the box."""

    goal_world: jax.Array  # (2, E) [m]: of its centre


@dataclass(frozen=True)
class PushBox:
    """Implements `Scenario`."""

    arena: Arena
    grid: Grid
    boxes: tuple[Box, ...]
    task_signals: tuple[Signal, ...]
    body_radius_m: float
    start_room_m: float  # least distance of the centre of the box from the walls at the start: a robot fits between
    way_m: tuple[float, float]  # least and largest distance of the goal from the box
    speed_m_s: float  # speed that scales the rewards for progress
    decision_s: float
    decision_ticks: int
    horizon_s: float
    tolerance_m: float = 0.1
    behind: float = 0.0
    """Share of worlds in which the robots start at the free places nearest to their pushing places."""
    observation: Observation = _OBSERVATION
    name: str = "push_box"

    @classmethod
    def create(cls, spec: RobotSpec, shield: ProjectionParameters) -> "PushBox":
        """Return the scenario for a kind of robot: the arena of the Robotarium, scaled for larger robots.

        Raises:
            TestudoError: the robot does not steer on the ground.
        """
        if spec.kind != DIFFERENTIAL_DRIVE:
            why = "flies" if spec.dimension == 3 else "slides in any direction"
            raise TestudoError(
                f"push_box: {spec.name} {why}; a box on the floor is pushed by ground robots that "
                "steer, for example --robot gritsbot_x"
            )
        spacing = max(shield.separation_m + 0.1, _SPACING_M)
        scale = spacing / _SPACING_M
        low, high = (tuple(scale * x for x in side) for side in (ROBOTARIUM.low_world, ROBOTARIUM.high_world))
        arena = Arena(low, high)
        grid = Grid.create(*spawn_box(arena, [scale * x for x in SPAWN_EDGE_M]), spacing)
        side = _SIDE * shield.separation_m
        mass = _HEAVY * largest_push_n(spec) / (_FRICTION * _GRAVITY_M_S2)
        box = Box("box", (side, side, 0.3 * side), mass, _FRICTION)
        ticks = decision_ticks(spec)
        room = side / math.sqrt(2) + spec.body_radius_m + shield.wall_m + _ROOM_M
        # through the task node a pose is older than one of the robot's own; the box is slow
        age = ticks * spec.control_period_s
        signals = (
            goal_signal(2),
            Signal("box_position_world", (2,), "m", "world", age),
            Signal("box_quarter_yaw", (1,), "rad", "world", age),
        )
        speed = spec.control_point_speed_m_s
        return cls(
            arena,
            grid,
            (box,),
            signals,
            spec.body_radius_m,
            room,
            (scale * _WAY_M[0], scale * _WAY_M[1]),
            speed,
            ticks * spec.control_period_s,
            ticks,
            _HORIZON_S * scale * 0.2 / speed,
        )

    @property
    def contact_m(self) -> float:
        """Return the distance of the centres of the box and of a robot in the middle of its side."""
        return self.boxes[0].size_m[0] / 2 + self.body_radius_m

    def start(self, key: jax.Array, team_size: int) -> StartState:
        """See `Scenario.start`: robots start on the grid points that the box leaves free."""
        least, most = TEAM_SIZES
        if not least <= team_size <= most:
            raise TestudoError(
                f"push_box: found {team_size} robots, expected {least} to {most}; one cannot move the box, "
                "and more do not fit around it"
            )
        place_key, turn_key, goal_key, easy_key, choice, noise = jax.random.split(key, 6)
        limit = jnp.asarray([high - self.start_room_m for high in self.arena.high_world])
        box = jax.random.uniform(place_key, (2,), minval=-limit, maxval=limit)
        box_yaw, *yaw = jax.random.uniform(turn_key, (1 + team_size,), minval=-jnp.pi, maxval=jnp.pi)
        # draw a goal (2,) in any direction from the box (2,), at which the box does not touch the walls
        angle_key, way_key = jax.random.split(goal_key)
        angle = jax.random.uniform(angle_key, minval=-jnp.pi, maxval=jnp.pi)
        towards = jnp.stack([jnp.cos(angle), jnp.sin(angle)])
        corner = self.boxes[0].size_m[0] / math.sqrt(2) + _ROOM_M
        limit = jnp.asarray([high - corner for high in self.arena.high_world])
        least, most = self.way_m
        # from any place inside, a step of at most `limit` along an axis stays inside forward or backward
        longest = jnp.minimum(most, jnp.min(limit / (jnp.abs(towards) + 1e-6)))
        step = towards * jax.random.uniform(way_key, minval=least, maxval=longest)
        goal = box + jnp.where(jnp.abs(box + step) > limit, -step, step)
        offset = jnp.asarray(self.grid.points_world).T - box[:, None]
        ways = jnp.where(jax.random.uniform(easy_key) < self.behind, 8.0, 0.0) * self._way_behind(offset, box - goal)
        blocked = jnp.sqrt(jnp.sum(offset**2, axis=0)) < self._free_m
        shifts = jax.random.uniform(noise, (2, team_size), minval=-1.0, maxval=1.0)
        places = self.grid.draw(choice, jnp.where(blocked, jnp.inf, ways), shifts)
        return StartState(places, jnp.stack(yaw), PushTask(goal), BodyState(box[:, None], box_yaw[None]))

    def for_training(self) -> "PushBox":
        """See `Scenario.for_training`: in half of the worlds the robots start behind the box."""
        return replace(self, behind=0.5)

    def signals(self, task: PushTask, scene: Scene) -> Mapping[str, jax.Array]:
        """See `Scenario.signals`: position, yaw and goal of the box, for every robot."""
        robots, box = scene.robots.yaw.shape, _box(scene)
        return {
            "goal_world": jnp.broadcast_to(task.goal_world[:, None], (2, *robots)),
            "box_position_world": jnp.broadcast_to(box.position_world, (2, *robots)),
            "box_quarter_yaw": jnp.broadcast_to(box.yaw, robots)[None],
        }

    def advance(self, task: PushTask, before: Scene, after: Scene, keys: jax.Array) -> TaskStep:
        """See `Scenario.advance`: progress of the box, way to behind it, cost of time, bonus for success.

        All but the way are equal for all robots. Success: the box's centre is within the tolerance.
        """
        step = self.speed_m_s * self.decision_s
        robots = after.robots.yaw.shape
        left = self.distance(task, after)
        success = left < self.tolerance_m
        terms = {
            "push": jnp.broadcast_to(3.0 * (self.distance(task, before) - left) / step, robots),
            "approach": 0.5 * (self.way_behind(task, before) - self.way_behind(task, after)) / step,
            "waiting": jnp.full(robots, -0.05),
            "success": jnp.broadcast_to(jnp.where(success, 10.0, 0.0), robots),
        }
        return TaskStep(task, terms, success)

    def nominal_world(self, task: PushTask, scene: Scene) -> jax.Array:
        """See `Scenario.nominal_world`: each robot goes round the box to its rear, and then drives at the goal."""
        place, box = scene.robots.position_world, _box(scene).position_world
        offset, rear = place - box, box - task.goal_world[:, None]
        angle = jnp.arctan2(rear[1] * offset[0] - rear[0] * offset[1], offset[0] * rear[0] + offset[1] * rear[1])
        bearing = jnp.arctan2(offset[1], offset[0]) + jnp.clip(angle, -_BESIDE_RAD, _BESIDE_RAD)
        away = 1.3 * (self.contact_m + self.body_radius_m)
        around = box + away * jnp.stack([jnp.cos(bearing), jnp.sin(bearing)])
        target = jnp.where(jnp.abs(angle) < _BESIDE_RAD, task.goal_world[:, None] + 0 * place, around)
        return straight_to(target, place, self.speed_m_s * self.decision_s, self.speed_m_s)

    def distance(self, task: PushTask, scene: Scene) -> jax.Array:
        """Return the distance of the box to its goal (E,) [m]."""
        return _length(_box(scene).position_world[:, 0] - task.goal_world)

    def way_behind(self, task: PushTask, scene: Scene) -> jax.Array:
        """Return the way (N, E) [m] of each robot, round the box, to its pushing place."""
        box = _box(scene).position_world
        return self._way_behind(scene.robots.position_world - box, box - task.goal_world[:, None])

    @property
    def _free_m(self) -> float:
        """Least distance of a robot's cell from the box's centre: whatever its yaw, they do not touch."""
        corner = self.boxes[0].size_m[0] / math.sqrt(2)
        return corner + self.body_radius_m + _ROOM_M / 2 + math.hypot(*self.grid.jitter_m)

    def _way_behind(self, offset: jax.Array, behind: jax.Array) -> jax.Array:
        """Return ways (N, ...) [m] for offsets (2, N, ...) from the box and the direction (2, ...) of its rear."""
        cross = offset[0] * behind[1] - offset[1] * behind[0]
        angle = jnp.arctan2(jnp.abs(cross), offset[0] * behind[0] + offset[1] * behind[1])
        around = (self.contact_m + self.body_radius_m) * jnp.maximum(angle - _BESIDE_RAD, 0.0)
        return around + jnp.maximum(_length(offset) - self.contact_m, 0.0)


def largest_push_n(spec: RobotSpec) -> float:
    """Return the force [N] with which a nominal robot at full command pushes against a wall.

    Its motors accelerate the mass with the rotating parts to the commanded speed within the lag, up to their limit.
    """
    return wheel_inertia(spec)[0] * min(spec.acceleration_limit_m_s2, spec.speed_limit_m_s / spec.velocity_lag_s)


def _length(vector: jax.Array) -> jax.Array:
    """Return the length (...) of vectors (2, ...)."""
    return jnp.sqrt(jnp.sum(vector**2, axis=0) + 1e-12)


def _box(scene: Scene) -> BodyState:
    if scene.bodies is None:
        raise TestudoError("push_box: found a scene without boxes, expected one box")
    return scene.bodies
