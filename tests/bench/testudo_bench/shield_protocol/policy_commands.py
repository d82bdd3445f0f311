"""Nominal commands of a policy in the protocol: its goal is the next place of the plan that straight commands have."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp

from testudo_bench.shield_protocol.batch_episode import Course, next_place, run_ticks
from testudo_bench.shield_protocol.compiled_setting import CompiledStage
from testudo_bench.shield_protocol.protocol_cell import Commands
from testudo_deploy.contract.contract import policy_signals
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion.motion_state import TINY, length
from testudo_hardware.spec import RobotSpec, load_robot, robot_files
from testudo_policies.evaluation.policy_under_test import load_policy_under_test
from testudo_sim.environment import to_batch
from testudo_sim.scenarios.goal_scenario import GoalScenario, decision_ticks
from testudo_sim.team.batch_policy import BatchPolicy

_PASSED_M = 0.5  # a place that robots pass is this far ahead in the same direction, so that they do not slow down
_FARTHEST_M = 2.0  # a farther goal is this far ahead in the same direction: in training goals are up to 2.9 m away

Steps = Callable[[Course], Course]


@dataclass(frozen=True)
class ProtocolPolicy:
    """A policy that acts for all robots of a batch, each from its own signals."""

    policy: BatchPolicy
    memory: int  # size of its hidden state
    decision_ticks: int


def protocol_policies(path: Path) -> tuple[RobotSpec, dict[Commands, ProtocolPolicy]]:
    """Return the robot of a policy file or training run, and the policy after and, if possible, before its training.

    Raises:
        TestudoError: no policy; or one that needs other signals than a goal, commands a yaw rate, or is for a robot
            other than the registered one.
    """
    found = load_policy_under_test(path)
    where = f"testudo bench shield: --policy: {path}"
    spec, scenario = found.spec, found.environment(2).scenario
    if not isinstance(scenario, GoalScenario) or found.yaw_rate_limit:
        raise TestudoError(
            f"{where}: found a policy of {found.scenario!r}, expected one with a goal as its only task signal and "
            "without a yaw rate; train one with testudo train navigation"
        )
    if spec.name not in robot_files() or load_robot(spec.name).sha256 != spec.sha256:
        raise TestudoError(
            f"{where}: robot: found {spec.name!r} with other numbers than those of the registered robots, for which "
            "the cells are; train the policy anew"
        )
    untrained = found.make_untrained()
    policies = {Commands.TRAINED: found.policy} | ({Commands.UNTRAINED: untrained} if untrained else {})
    ticks = decision_ticks(spec)
    return spec, {kind: ProtocolPolicy(policy, found.memory, ticks) for kind, policy in policies.items()}


def policy_steps(
    stage: CompiledStage, policy: ProtocolPolicy, course: Course, options: Mapping[str, int] | None
) -> Callable[[], Steps]:
    """Return a function that gives the steps of a batch, one decision each; ``course`` has the shapes of all batches.

    ``options`` are those of the compiler.
    """
    inputs = jax.jit(partial(policy_inputs, stage)).lower(course).compile()
    ticks = policy.decision_ticks * stage.setting.stride
    program = jax.jit(partial(run_ticks, stage, ticks=ticks), donate_argnums=0)
    run = program.lower(course, command_world=course.batch.goal_world).compile(options)
    size, worlds = course.batch.yaw.shape

    def begin() -> Steps:
        hidden = jnp.zeros((worlds * size, policy.memory))

        def step(now: Course) -> Course:
            nonlocal hidden
            velocity, hidden = policy.policy(inputs(now), hidden)
            command = jnp.transpose(jnp.asarray(velocity).reshape(worlds, size, -1), (2, 1, 0))
            return run(now, command_world=command)

        return step

    return begin


def policy_inputs(stage: CompiledStage, course: Course) -> dict[str, jax.Array]:
    """Return the signals of the robots of all worlds (E N, ...)."""
    world = course.world
    stop = stage.team.model.stopping_point(world.estimate)
    goal = _goal(stage, course.batch.goal_world, stop.position_world)
    named = policy_signals(world.estimate, stop, world.table, stage.team.shield.hold_s, {"goal_world": goal})
    batched = {name: to_batch(value) for name, value in named.items()}
    return {name: value.reshape(-1, *value.shape[2:]) for name, value in batched.items()}


def _goal(stage: CompiledStage, goal_world: jax.Array, position_world: jax.Array) -> jax.Array:
    """Return the goals of the policy (D, N, E) [m]."""
    place, passes = next_place(stage, goal_world, position_world)
    offset = place - position_world
    distance = length(offset)
    ahead = jnp.clip(distance, jnp.where(passes, _PASSED_M, 0.0), _FARTHEST_M)
    return position_world + offset * (ahead / (distance + TINY))
