"""What a scenario is: start, task signals, reward, success. The physics and the robots are not its business."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, Protocol

import jax

from testudo_deploy.contract.contract import Signal
from testudo_deploy.shield.arena import Arena, Obstacle
from testudo_deploy.shield.projection_margins import ProjectionParameters
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import RobotSpec
from testudo_plant.worlds.free_body import Box
from testudo_sim.physics.scene import BodyState, Scene
from testudo_sim.starts import StartDistribution


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class StartState:
    """Where the robots of each world begin; (D, N, E) [m], (N, E) [rad], the task's own state, and the boxes."""

    position_world: jax.Array
    yaw: jax.Array
    task: Any
    bodies: BodyState | None = None
    velocity: jax.Array | None = None
    """(D, N, E): see `MotionState.velocity`; None is at rest."""


class Scenario(Protocol):
    """A task for a team; arrays are (component, robot, world)."""

    name: str
    arena: Arena
    horizon_s: float
    decision_ticks: int
    boxes: tuple[Box, ...]
    """Bodies beside the robots."""
    task_signals: tuple[Signal, ...]
    """The signals that the scenario adds to those that every robot has."""

    def start(self, key: jax.Array, team_size: int) -> StartState:
        """Draw the start of one world (no world axis); raises `TestudoError` if the team does not fit."""

    def for_training(self) -> Scenario:
        """Return the same task with the starts to learn from, which may be harder than those of the task."""

    def signals(self, task: Any, scene: Scene) -> Mapping[str, jax.Array]:
        """Return the task signals (component, N, E) by name."""

    def rewards(self, task: Any, before: Scene, after: Scene) -> Mapping[str, jax.Array]:
        """Return the reward terms (N, E) of one decision, by name."""

    def success(self, task: Any, scene: Scene) -> jax.Array:
        """Return (E,) bool: the task is done, which ends the episode."""


def make_scenario(
    name: str,
    spec: RobotSpec,
    shield: ProjectionParameters,
    obstacles: tuple[Obstacle, ...] = (),
    starts: StartDistribution | None = None,
) -> Scenario:
    """Build a registered scenario (entry points `testudo.scenarios`) for a kind of robot.

    Args:
        name: of the scenario.
        spec: the kind of robot.
        shield: margins.
        obstacles: stand in its arena; a scenario that takes any has a method `with_obstacles`.
        starts: what its worlds begin from, in place of its own starts; a scenario that can has a method `with_starts`.

    Raises:
        TestudoError: no scenario has this name, or it takes no obstacles or starts.
    """
    points = {point.name: point for point in entry_points(group="testudo.scenarios")}
    if name not in points:
        raise TestudoError(f"scenario {name!r} is not known; known are {', '.join(sorted(points))}")
    scenario: Scenario = points[name].load().create(spec, shield)
    if obstacles:
        if not hasattr(scenario, "with_obstacles"):
            raise TestudoError(f"--obstacles: found {len(obstacles)} of them, scenario {name!r} takes none")
        scenario = scenario.with_obstacles(obstacles)
    if starts is not None:
        if not hasattr(scenario, "with_starts"):
            raise TestudoError(f"--starts: found those of {starts.source.run}, scenario {name!r} takes none")
        scenario = scenario.with_starts(starts)
    return scenario
