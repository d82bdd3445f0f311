"""Interface of scenarios (start, task signals, course of the task), their construction and their scoring.

What a task does in a decision is one function, `Scenario.advance`: training, evaluation, films, the score of a running
fleet and datasets all call it.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import jax
import jax.numpy as jnp

from testudo_deploy.contract.contract import Signal
from testudo_deploy.files.registered import entry_points
from testudo_deploy.shield.arena import Arena, Obstacle
from testudo_deploy.shield.projection_margins import ProjectionParameters
from testudo_deploy.shield.sensed_bodies import SensedBodies
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import MotionState
from testudo_hardware.spec import RobotSpec
from testudo_plant.worlds.robot_bodies import Box
from testudo_sim.physics.scene import BodyState, Scene
from testudo_sim.starts import StartDistribution


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class StartState:
    """Start of the robots of each world: (D, N, E) [m], (N, E) [rad], the state of the task, and the boxes."""

    position_world: jax.Array
    yaw: jax.Array
    task: Any
    bodies: BodyState | None = None
    velocity: jax.Array | None = None  # (D, N, E): see `MotionState.velocity`; None at rest


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TaskStep:
    """What a task does in one decision."""

    task: Any  # its state after the decision
    terms: Mapping[str, jax.Array]  # reward terms (N, E) by name; the same names at every decision
    success: jax.Array | None  # (E,) bool: the task is done, which ends the episode; None if it lasts to its time limit
    metrics: Mapping[str, jax.Array] = field(default_factory=dict)
    """Counts (E,) of this decision by name, such as deliveries; an episode has their sum."""


def absent_robots(scenario: "Scenario", task: Any) -> jax.Array | None:
    """Return (N, E) bool: robots that take no part in the decision that begins; None: all take part.

    A scenario whose robots leave or join during an episode has a method ``absent(task)`` that returns it. An absent
    robot stands, as a body for the others, and has no reward; one that joins later waits at its start.
    """
    return cast(Any, scenario).absent(task) if hasattr(scenario, "absent") else None


def sensed(scenario: "Scenario", task: Any, scene: Scene) -> SensedBodies | None:
    """Return what the robots' ranges see that no map knows, (2, R, N, E), for their shield; None without ranges.

    A scenario whose robots have ranges, and in which there are bodies that are not in its arena, has a method
    ``sensed(task, scene)`` that returns it. It is asked at the begin of each decision: that is the time of a scan.
    """
    return cast(Any, scenario).sensed(task, scene) if hasattr(scenario, "sensed") else None


GOAL = "goal_world"
"""Name of the goals of robots, or of a body, as a signal and in the state of a task."""

PEER, POSITION, VALID = "neighbour_", "_position_world", "_valid"
"""Parts of names of signals: the begin of a peer's, the end of a position's, and of the presence of entities."""


def group_of(name: str) -> str:
    """Return the group of entities that a signal's name belongs to."""
    return name.partition("_")[0]


_GROUP = "testudo.scenarios"  # of entry points

WORLD, BODY = "world", "body"
"""Frames of features and actions: the axes of the world, or the robot's heading."""


@dataclass(frozen=True)
class Observation:
    """How a policy reads the signals of a task."""

    frame: str = WORLD
    """Frame of features and actions: `WORLD`, `BODY`, or a position signal, to which the x axis points."""
    pull: str = ""
    """Position signal to which an untrained policy drives; empty: it drives nowhere in particular."""
    speed: str = ""
    """Own signal (1,) in 0 to 1: the share of full speed that a policy commands at most, as of a slow robot of a team;
    empty: 1. It limits the policy, in the exported file too, not the shield."""
    peer_range_m: float = 1.5
    """Range of communication: a policy reads peers the less the farther they are, and none from here on. It limits the
    policy, in the exported file too; the shield hears all peers."""


IN_THE_WORLD = Observation()


class Scenario(Protocol):
    """A task for a team; arrays are (component, robot, world).

    A scenario whose reward and dynamics stay as they are in a mirror, or turned, declares that as ``symmetries``, see
    `symmetry.Symmetry`.
    """

    name: str
    arena: Arena
    horizon_s: float
    decision_ticks: int
    boxes: tuple[Box, ...]
    observation: Observation

    @property
    def task_signals(self) -> tuple[Signal, ...]:
        """Return the signals that the scenario adds to those that every robot has.

        The shape says whose a signal is: (C,) is the robot's own; (K, C) is one of K entities, and the part of its name
        up to the first underscore names their group; ("neighbours", C) is the own signal of a peer, and is named
        ``neighbour_`` and the name of that. A group's signal ``<group>_valid`` (K, 1) is 0 for an entity that is not
        there.
        """
        ...

    def start(self, key: jax.Array, team_size: int) -> StartState:
        """Draw the start of one world (no world axis); raises `TestudoError` if the team does not fit."""
        ...

    def for_training(self) -> "Scenario":
        """Return the same task with the starts for training, which may differ from those of the task."""
        ...

    def signals(self, task: Any, scene: Scene) -> Mapping[str, jax.Array]:
        """Return the task signals (component, N, E) by name."""
        ...

    def advance(self, task: Any, before: Scene, after: Scene, keys: jax.Array) -> TaskStep:
        """Return what the task does in one decision, from the scenes at its beginning and end.

        ``keys`` (E,) are random keys, one for each world, so that a world has the same course alone and among others.
        """
        ...

    def nominal_world(self, task: Any, scene: Scene) -> jax.Array:
        """Return hand-written velocities (D, N, E) [m/s], which a trained policy is compared with."""
        ...


_MEMBERS = (
    "name", "arena", "horizon_s", "decision_ticks", "boxes", "observation", "task_signals",
    "start", "for_training", "signals", "advance", "nominal_world",
)  # fmt: skip


def scenario_names() -> tuple[str, ...]:
    """Return the names of the registered scenarios."""
    return tuple(sorted(point.name for point in entry_points(group=_GROUP)))


def make_scenario(
    name: str,
    spec: RobotSpec,
    shield: ProjectionParameters,
    obstacles: tuple[Obstacle, ...] = (),
    starts: StartDistribution | None = None,
) -> Scenario:
    """Build a registered scenario (entry points `testudo.scenarios`) for a kind of robot.

    Obstacles need a scenario with a method `with_obstacles`, and recorded starts one with `with_starts`.

    Raises:
        TestudoError: no scenario has this name, it lacks a member, or takes no obstacles or starts.
    """
    points = {point.name: point for point in entry_points(group=_GROUP)}
    if name not in points:
        raise TestudoError(f"scenario {name!r} is not known; known are {', '.join(sorted(points))}")
    try:
        loaded = points[name].load()
    except (ImportError, AttributeError) as error:
        raise TestudoError(f"scenario {name!r}: {points[name].value} cannot be imported: {error}") from error
    if not callable(getattr(loaded, "create", None)):
        raise TestudoError(
            f"scenario {name!r}: {points[name].value} has no create(spec, shield); expected a class method "
            "that returns the scenario for a robot"
        )
    scenario: Any = loaded.create(spec, shield)
    missing = [member for member in _MEMBERS if not hasattr(scenario, member)]
    if missing:
        raise TestudoError(f"scenario {name!r}: {points[name].value} has no {', '.join(missing)}")
    if obstacles:
        if not hasattr(scenario, "with_obstacles"):
            raise TestudoError(f"--obstacles: found {len(obstacles)} of them, scenario {name!r} takes none")
        scenario = scenario.with_obstacles(obstacles)
    if starts is not None:
        if not hasattr(scenario, "with_starts"):
            raise TestudoError(f"--starts: found those of {starts.source.run}, scenario {name!r} takes none")
        scenario = scenario.with_starts(starts)
    return scenario


CHANGES = "changes"
"""Reward term for command changes by the shield."""
FACING = "facing"
"""Reward term for the heading error of drones with yaw rates."""
FACING_FROM_M = 0.3
"""Horizontal goal distance below which the heading does not count."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TaskScore:
    """The outcome of one decision."""

    terms: Mapping[str, jax.Array]  # (N, E) by name: the scenario's, `CHANGES`, and `FACING` where it has a price
    reward: jax.Array  # (N, E): their sum; zero where the physics diverged, and of a robot that took no part
    success: jax.Array  # (E,) bool: the task is done
    metrics: Mapping[str, jax.Array]  # (E,) by name, see `TaskStep`
    task: Any  # its state after the decision
    broken: jax.Array  # (E,) bool: the scene after the decision is not finite
    stood: jax.Array | None = None  # (N, E) bool: robots that took no part in the decision; None: all took part
    has_success: bool = field(default=True, metadata={"static": True})  # false where a task has no success


@dataclass(frozen=True)
class TaskScoring:
    """Scoring of the decisions of a scenario for one kind of robot."""

    scenario: Scenario
    spec: RobotSpec
    change_price: float = 0.0  # cost of a command change by the shield of full speed
    facing_price: float = 0.0
    """Cost per second of a heading at right angles to the goal; of the opposite heading, twice."""

    @property
    def decision_s(self) -> float:
        """Return the time of one decision [s]."""
        return self.scenario.decision_ticks * self.spec.control_period_s

    @property
    def horizon(self) -> int:
        """Return the decisions in an episode."""
        return int(self.scenario.horizon_s / self.decision_s)

    def decision(
        self,
        task: Any,
        before: Scene,
        after: Scene,
        change_m_s: jax.Array,
        keys: jax.Array,
        failed: jax.Array | None = None,
    ) -> TaskScore:
        """Return the score of a decision.

        ``change_m_s`` (N, E) is the mean change of the command by the shield; for ``keys`` see `Scenario.advance`.
        Robots that the task lists as absent, or that have ``failed`` (N, E), have no reward.
        """
        stood = either(absent_robots(self.scenario, task), failed)
        step = self.scenario.advance(task, before, after, keys)
        price = self.change_price * change_m_s / self.spec.control_point_speed_m_s
        terms = {**step.terms, CHANGES: -price}
        if self.facing_price:
            goal = self.scenario.signals(step.task, after)["goal_world"]
            terms[FACING] = -self.facing_price * self.decision_s * looks_away(after.robots, goal)
        if stood is not None:
            terms = {name: jnp.where(stood, 0.0, value) for name, value in terms.items()}
        broken = not_finite(after)
        reward = jnp.where(broken, 0.0, jnp.asarray(sum(terms.values())))
        success = jnp.zeros_like(broken) if step.success is None else step.success
        return TaskScore(terms, reward, success, step.metrics, step.task, broken, stood, step.success is not None)


def either(first: jax.Array | None, second: jax.Array | None) -> jax.Array | None:
    """Return where one of two masks holds; None is a mask that holds nowhere."""
    if first is None or second is None:
        return second if first is None else first
    return first | second


def looks_away(motion: MotionState, goal_world: jax.Array) -> jax.Array:
    """Return 1 - cos of the angle (N, E) between heading and goal (D, N, E); 0 where the goal is near, or above."""
    offset = goal_world[:2] - motion.position_world[:2]
    across = jnp.sqrt(jnp.sum(offset**2, axis=0))
    along = (jnp.cos(motion.yaw) * offset[0] + jnp.sin(motion.yaw) * offset[1]) / jnp.maximum(across, FACING_FROM_M)
    return jnp.where(across > FACING_FROM_M, 1 - along, 0.0)


def not_finite(scene: Scene) -> jax.Array:
    """Return (E,) bool: the state is not finite."""
    leaves = (jnp.all(jnp.isfinite(x), axis=tuple(range(x.ndim - 1))) for x in jax.tree.leaves(scene))
    return ~functools.reduce(jnp.logical_and, leaves)
