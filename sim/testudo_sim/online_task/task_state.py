"""Task of a running fleet: poses by time, and the state of a scenario from the goals of a fleet and values by name.

The values of a task follow from the result of `Scenario.start`, so that a scenario needs no code for this.
"""

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from testudo_deploy.contract.command_types import turns
from testudo_deploy.contract.contract import Contract
from testudo_deploy.fleet.fleet import Fleet
from testudo_deploy.fleet.fleet_bodies import FleetBody
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import RobotSpec
from testudo_plant.worlds.robot_bodies import Box
from testudo_sim.physics.scene import BodyState
from testudo_sim.scenarios.robot_number import has_numbers, numbered
from testudo_sim.scenarios.roles import TRAITS, Roles
from testudo_sim.scenarios.scenario import GOAL, Scenario, TaskScoring, make_scenario

_DIGITS = 6  # of values in a fleet file
_KEPT = 400  # number of stored samples, some seconds
_FUTURE_S = 0.002  # a stamp up to this far in the future is rounding
_OLDEST_S = 1.0  # a first stamp that is older than this at arrival is on another clock
_FORGET_S = 2.0  # after this time without a usable sample, the clock is determined again


@dataclass(frozen=True)
class Pose:
    """Pose of a body in the world frame of the fleet."""

    position_world: tuple[float, ...]  # (D,) [m]
    yaw: float  # [rad]
    velocity: tuple[float, ...] = ()  # (D,): see `MotionState.velocity`; empty for a body other than a robot


class PoseTrack:
    """The newest poses of one body."""

    def __init__(self, gap_s: float) -> None:
        """Start empty; between samples more than ``gap_s`` [s] apart the pose is unknown."""
        self._gap_s = gap_s
        self._stamps: deque[float] = deque(maxlen=_KEPT)
        self._poses: deque[Pose] = deque(maxlen=_KEPT)
        self.foreign_clock = False
        """The stamps are on another clock than that of the station, so that the times of arrival are used."""

    @property
    def newest_s(self) -> float:
        """Return the stamp of the newest pose; -inf without any."""
        return self._stamps[-1] if self._stamps else -math.inf

    @property
    def newest(self) -> Pose | None:
        """Return the newest pose."""
        return self._poses[-1] if self._poses else None

    def add(self, stamp_s: float, received_s: float, pose: Pose) -> bool:
        """Add a pose; return False if it is not finite, too late, or not newer than the last one.

        ``received_s`` is on the clock of the station. If the first stamp is in the future or very old, the sender is on
        another clock, and times of arrival are used.
        """
        numbers = (stamp_s, received_s, pose.yaw, *pose.position_world, *pose.velocity)
        if not all(map(math.isfinite, numbers)):
            return False
        on_time = -_FUTURE_S <= received_s - stamp_s <= _OLDEST_S
        if received_s - self.newest_s > _FORGET_S:
            self.foreign_clock = not on_time
        taken_s = received_s if self.foreign_clock else stamp_s
        if taken_s <= self.newest_s or not (on_time or self.foreign_clock):
            return False
        self._stamps.append(taken_s)
        self._poses.append(pose)
        return True

    def at(self, time_s: float) -> Pose | None:
        """Return the pose at a time, interpolated; None if its neighbours are too far apart or missing."""
        after = bisect_left(self._stamps, time_s)
        if after == len(self._stamps):
            return None
        if self._stamps[after] == time_s:
            return self._poses[after]
        if after == 0 or self._stamps[after] - self._stamps[after - 1] > self._gap_s:
            return None
        first_s, last_s = self._stamps[after - 1], self._stamps[after]
        return between(self._poses[after - 1], self._poses[after], (time_s - first_s) / (last_s - first_s))


def between(first: Pose, last: Pose, share: float) -> Pose:
    """Return the pose at a share of the way from one to another, with the shorter turn."""
    turn = math.remainder(last.yaw - first.yaw, math.tau)
    return Pose(
        _mixed(first.position_world, last.position_world, share),
        first.yaw + share * turn,
        _mixed(first.velocity, last.velocity, share),
    )


def _mixed(first: tuple[float, ...], last: tuple[float, ...], share: float) -> tuple[float, ...]:
    start = np.array(first)
    return tuple((start + share * (np.array(last) - start)).tolist())


def scoring_of(contract: Contract, spec: RobotSpec) -> TaskScoring:
    """Return the scoring of the scenario in which a policy was trained, as in its training.

    Raises:
        TestudoError: the scenario is not installed here, or not for this robot.
    """
    obstacles = contract.arena.obstacles if contract.arena is not None else ()
    scenario = make_scenario(contract.scenario, spec, contract.shield, obstacles)
    if has_numbers(contract):
        scenario = numbered(scenario, contract.team_size)
    return TaskScoring(scenario, spec, **prices_of(contract))


def prices_of(contract: Contract) -> dict[str, float]:
    """Return the prices in the returns of a policy's training and of its task node, by option of `Environment`.

    An environment of an evaluation has none: one whose returns are compared with those of a fleet needs them.
    """
    config = contract.provenance.get("config", {})
    facing = config.get("facing_price", 0.0) if turns(contract.command) else 0.0
    return {"change_price": float(config.get("change_price", 0.0)), "facing_price": float(facing)}


def make_task(
    scenario: Scenario, goals_world: Sequence[Sequence[float]], values: Mapping[str, Any] | None = None
) -> Any:
    """Return the state of the task of a scenario for one world (last axis).

    ``goals_world`` (N, D) [m], in the order of the fleet, are for the value `GOAL` if it is not given; ``values`` by
    name are nested lists with the component first: (D, N), (D,) or a number. Traits that are not given are those of the
    scenario's roles.

    Raises:
        TestudoError: the team does not fit the scenario, or a value is missing, unknown, not finite or of another
            shape.
    """
    count = len(goals_world)
    blank = jax.eval_shape(lambda key: scenario.start(key, count), jax.random.key(0)).task
    paths, tree = jax.tree_util.tree_flatten_with_path(blank)
    names = [_name(path) for path, _ in paths]
    given = {**_declared_traits(scenario, count), **(values or {})}
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise TestudoError(f"{scenario.name}: task: {unknown[0]!r} is not known; known are {', '.join(names)}")
    goals = np.array(goals_world, float).T
    leaves = []
    for name, (_, leaf) in zip(names, paths, strict=True):
        if name not in given and name == GOAL and leaf.shape == goals.shape:
            given[name] = goals
        if name not in given:
            raise TestudoError(
                f"{scenario.name}: task: {name} is missing; expected {_shape_text(leaf.shape)}, which "
                "the goals of the fleet file do not say"
            )
        leaves.append(_value(f"{scenario.name}: task: {name}", given[name], leaf))
    return jax.tree_util.tree_unflatten(tree, leaves)


def _declared_traits(scenario: Scenario, count: int) -> dict[str, Any]:
    """Return the traits of a team by their names in the task; none of a scenario without roles."""
    roles: Roles | None = getattr(scenario, "roles", None)
    if roles is None:
        return {}
    return {f"{TRAITS}.{name}": np.asarray(value) for name, value in roles.traits(count, scenario.name).items()}


def task_of(scenario: Scenario, fleet: Fleet, values: Mapping[str, Any] | None = None) -> Any:
    """Return the start of the task of a fleet for one world: by ``values``, the fleet file's task, and its goals.

    Raises:
        TestudoError: as `make_task`.
    """
    goals = [robot.goal_world for robot in fleet.robots]
    return make_task(scenario, goals, {**(fleet.task or {}), **(values or {})})


def values_of(task: Any) -> dict[str, Any]:
    """Return a task without a world axis as numbers and nested lists by name, which `make_task` reads."""
    paths = jax.tree_util.tree_flatten_with_path(task)[0]
    return {_name(path): _rounded(np.asarray(leaf).tolist()) for path, leaf in paths}


def bodies_of(boxes: Sequence[Box], starts: BodyState | None) -> tuple[FleetBody, ...]:
    """Return the boxes of a scenario at the start of one world (no world axis) as the fleet file names them."""
    if starts is None:
        return ()
    poses = np.concatenate([np.asarray(starts.position_world, float), np.asarray(starts.yaw, float)[None]]).T
    found = []
    for box, (x, y, yaw) in zip(boxes, _rounded(poses.tolist()), strict=True):
        length, width, height, mass, friction = _rounded([*box.size_m, box.mass_kg, box.friction])
        found.append(FleetBody(box.name, (length, width, height), mass, friction, (x, y), yaw))
    return tuple(found)


def _rounded(value: Any) -> Any:
    return [_rounded(item) for item in value] if isinstance(value, list) else round(float(value), _DIGITS)


def goals_of(task: Any) -> np.ndarray:
    """Return the goals (D, G) [m] of the robots, or of a body, in a task of one world; (2, 0) without goals."""
    for path, leaf in jax.tree_util.tree_flatten_with_path(task)[0]:
        if _name(path) == GOAL:
            value = np.asarray(leaf)[..., 0]
            return value if value.ndim == 2 else value[:, None]
    return np.zeros((2, 0))


def _name(path: tuple[Any, ...]) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".") or "value"


def _value(where: str, value: Any, leaf: jax.ShapeDtypeStruct) -> jax.Array:
    """Return a value with a world axis."""
    try:
        numbers = np.array(value, float)
    except (TypeError, ValueError) as error:
        raise TestudoError(f"{where}: found {value!r}, expected {_shape_text(leaf.shape)}") from error
    if numbers.shape != leaf.shape or not np.isfinite(numbers).all():
        raise TestudoError(f"{where}: found {numbers.tolist()}, expected {_shape_text(leaf.shape)}")
    return jax.numpy.asarray(numbers, leaf.dtype)[..., None]


def _shape_text(shape: tuple[int, ...]) -> str:
    if not shape:
        return "a finite number"
    return " x ".join(map(str, shape)) + " finite numbers"
