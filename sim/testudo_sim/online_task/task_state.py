"""The task of a live run: a scenario's state, filled from the goals of a fleet and from values by name.

Which values a task has is read from what `Scenario.start` returns, so that a scenario needs no code for this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from testudo_deploy.contract.command_types import turns
from testudo_deploy.contract.contract import Contract
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import RobotSpec
from testudo_sim.environment.task_scoring import TaskScoring
from testudo_sim.scenarios.scenario import Scenario, make_scenario

GOAL = "goal_world"
"""The value of a task that says where robots, or a body, shall go."""


def scoring_of(contract: Contract, spec: RobotSpec) -> TaskScoring:
    """Return how decisions are scored of the scenario that a policy was trained in, as in its training.

    Raises:
        TestudoError: the scenario is not installed here, or not for this robot.
    """
    obstacles = contract.arena.obstacles if contract.arena is not None else ()
    scenario = make_scenario(contract.scenario, spec, contract.shield, obstacles)
    config = contract.provenance.get("config", {})
    facing = config.get("facing_price", 0.0) if turns(contract.command) else 0.0
    return TaskScoring(scenario, spec, float(config.get("change_price", 0.0)), float(facing))


def make_task(
    scenario: Scenario, goals_world: Sequence[Sequence[float]], values: Mapping[str, Any] | None = None
) -> Any:
    """Return the state of a scenario's task for one world (last axis).

    A value that is not given is taken from the fleet if it is `GOAL` with a place for each robot.

    Args:
        scenario: whose task it is.
        goals_world: (N, D) [m]: where the robots of the fleet shall go, in the fleet's order.
        values: by name, as nested lists with the component first: (D, N), (D,) or a number.

    Raises:
        TestudoError: the team does not fit the scenario, or a value is missing, unknown, not finite or of another
            shape.
    """
    count = len(goals_world)
    blank = jax.eval_shape(lambda key: scenario.start(key, count), jax.random.key(0)).task
    paths, tree = jax.tree_util.tree_flatten_with_path(blank)
    names = [_name(path) for path, _ in paths]
    given = dict(values or {})
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


def goals_of(task: Any) -> np.ndarray:
    """Return the places (D, G) [m] where the robots, or a body, of a task of one world shall go; (2, 0) without."""
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
