"""Draws the trials of a fleet: starts and tasks by the reset of the scenario, and their episodes in simulation."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from testudo_deploy.contract.policy_archive import read_policy_contract
from testudo_deploy.fleet.fleet import Fleet, load_fleet
from testudo_deploy.fleet.fleet_writer import save_fleet
from testudo_hardware.errors import TestudoError
from testudo_policies.evaluation.evaluation import HELD_OUT_SEED, EpisodeBatch, compiled_programs, run_batch
from testudo_policies.evaluation.policy_under_test import load_policy_under_test
from testudo_sim.deployed_environment import DeployedEnvironment
from testudo_sim.environment import Environment
from testudo_sim.online_task.task_state import prices_of, values_of
from testudo_sim.physics_choice import PhysicsChoice
from testudo_sim.scenarios.goal_scenario import GoalScenario

MOST_TRIALS, MOST_SEED = 1000, 100_000
_DIGITS = 4
Vector = tuple[float, ...]


@dataclass(frozen=True)
class Pose:
    """Where a robot stands."""

    position_world: Vector  # (D,) [m]
    yaw: float  # [rad]


@dataclass(frozen=True)
class Trial:
    """One trial: a start and a task."""

    number: int  # from 1
    seed: int  # of the held-out episode that starts alike
    starts_world: tuple[Vector, ...]  # (D,) [m], in the order of the fleet
    task: dict[str, Any]  # values as a fleet file has them


class TrialTeam:
    """The policy of a fleet, with its scenario as it is evaluated with all layers of the shield."""

    def __init__(self, fleet: Fleet, *, lock_step: bool = False) -> None:
        """Read the policy; ``lock_step`` says that the trials' ticks and messages are exact, else they are drawn.

        Raises:
            TestudoError: several policies, robots with flight phases, a scenario without a goal for each robot, or a
                policy that cannot be read.
        """
        if fleet.policies:
            raise TestudoError(f"{fleet.file}: policies: found several, expected one: a trial has one team")
        flying = next((robot.name for robot in fleet.robots if robot.has_flight_phases), "")
        if flying:
            raise TestudoError(f"{fleet.file}: robots.{flying}: takes off and lands, expected robots on the ground")
        self.fleet = fleet
        self._tested = load_policy_under_test(fleet.policy)
        environment = self._tested.environment(len(fleet.robots))
        if not isinstance(environment.scenario, GoalScenario):
            raise TestudoError(
                f"{fleet.file}: found a policy for {environment.scenario.name!r}, expected a scenario with a goal for "
                "each robot: the policy also drives the robots to their starts"
            )
        contract = read_policy_contract(fleet.policy, fleet.policy_sha256)
        deployed = DeployedEnvironment.of(environment, PhysicsChoice())
        timed = deployed.in_lock_step if lock_step else deployed
        self.environment: Environment = replace(timed, **prices_of(contract))  # as the task node scores
        self._programs = compiled_programs(self.environment)

    @property
    def horizon_s(self) -> float:
        """Return the time limit of a trial [s]."""
        return self.environment.scenario.horizon_s

    def trials(self, seed: int, count: int) -> tuple[Trial, ...]:
        """Return the trials of a seed: trial k starts as held-out episode 1,000,000 + 1000 seed + k - 1.

        Raises:
            TestudoError: seed or count out of range.
        """
        first = first_episode(seed, count)
        keys = jax.vmap(jax.random.key)(jnp.arange(first, first + count))
        world = self._programs.reset(keys)
        places = np.asarray(self.environment.scene(world).robots.position_world, float)  # (D, N, E)
        found = []
        for k in range(count):
            starts = tuple(_rounded(places[:, i, k]) for i in range(places.shape[1]))
            task = values_of(jax.tree.map(lambda leaf, k=k: leaf[..., k], world.task))
            found.append(Trial(k + 1, first + k, starts, task))
        return tuple(found)

    def simulated(self, seed: int, count: int) -> EpisodeBatch:
        """Return the episodes of the same seeds in simulation."""
        first = first_episode(seed, count)
        return run_batch(self.environment, self._programs, self._tested.policy, self._tested.memory, first, count)

    @cached_property
    def begins(self) -> tuple[Pose, ...]:
        """Return where the robots of the fleet file stand."""
        return tuple(Pose(robot.initial_position_world, robot.initial_yaw) for robot in self.fleet.robots)

    def fleet_of(self, trial: Trial, stand: Sequence[Pose], path: Path) -> Fleet:
        """Write and return the fleet file of a trial, whose robots begin where they ``stand``."""
        robots = tuple(
            replace(
                robot,
                initial_position_world=_rounded(pose.position_world),
                initial_yaw=round(float(np.arctan2(np.sin(pose.yaw), np.cos(pose.yaw))), _DIGITS),
                goal_world=_rounded(pose.position_world),
                follows=None,
            )
            for robot, pose in zip(self.fleet.robots, stand, strict=True)
        )
        save_fleet(replace(self.fleet, robots=robots, task=trial.task, orders=False), path)
        return load_fleet(path)


def first_episode(seed: int, count: int) -> int:
    """Return the seed of the first episode of a seed of trials.

    Raises:
        TestudoError: seed or count out of range.
    """
    if not 1 <= count <= MOST_TRIALS:
        raise TestudoError(f"--repeat: found {count}, expected 1 to {MOST_TRIALS}")
    if not 0 <= seed <= MOST_SEED:
        raise TestudoError(f"--seed: found {seed}, expected 0 to {MOST_SEED}")
    return HELD_OUT_SEED + MOST_TRIALS * seed


def _rounded(vector: Sequence[float] | np.ndarray) -> Vector:
    return tuple(round(float(x), _DIGITS) for x in vector)
