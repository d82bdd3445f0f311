"""One held-out episode of a policy, recorded at every control tick, to display."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from testudo_analysis.rendering.animation import Animation, AnimationScene, Trajectory, arena_around
from testudo_hardware.errors import TestudoError
from testudo_policies.evaluation.evaluation import LAST_SEED
from testudo_sim.environment import Environment, WorldState
from testudo_sim.physics.scene import Scene
from testudo_sim.team.batch_policy import BatchPolicy
from testudo_sim.team.team_tick import TeamState, tick


@dataclass(frozen=True)
class RecordedEpisode:
    """A recorded episode."""

    animation: Animation
    success: bool
    time_s: float  # time [s] until success or the time limit


def play_episode(environment: Environment, policy: BatchPolicy, memory: int, seed: int) -> RecordedEpisode:
    """Run the episode of a seed until success or the time limit.

    Args:
        environment: the scenario and team.
        policy: acts for all robots; called outside jit, may use NumPy.
        memory: size of the policy's hidden state.
        seed: seed of the start, as in `evaluation.evaluate_policy`.

    Raises:
        TestudoError: the seed is out of range.
    """
    if not 0 <= seed < LAST_SEED:
        raise TestudoError(f"--seed: found {seed}, expected 0 to {LAST_SEED - 1}")
    scenario, size = environment.scenario, environment.team.size
    succeeded = jax.jit(lambda world: scenario.success(world.task, environment.scene(world)))
    run, read = jax.jit(lambda *values: _run(environment, *values)), jax.jit(environment.signals)
    world = jax.jit(environment.reset)(jax.vmap(jax.random.key)(jnp.array([seed])))
    hidden = jnp.zeros((size, memory))
    signals = read(world)
    goals = np.asarray(signals["goal_world"][0]) if "goal_world" in signals else None
    scenes = [jax.tree.map(lambda x: np.asarray(x)[None], environment.scene(world))]
    success = False
    for index in range(environment.horizon):
        named = {name: value.reshape(-1, *value.shape[2:]) for name, value in read(world).items()}
        velocity, hidden = policy(named, hidden)
        nominal = jnp.transpose(jnp.asarray(velocity).reshape(1, size, -1), (2, 1, 0))
        team, after = run(world.team, nominal, jax.random.fold_in(jax.random.key(seed), index))
        world = WorldState(team, world.task, world.elapsed + 1)
        scenes.append(jax.tree.map(np.asarray, after))
        success = bool(succeeded(world)[0])
        if success:
            break
    trajectory = _trajectory(scenes, environment.team.model.spec.control_period_s)
    scenery = AnimationScene(
        (environment.team.model.spec,) * size,
        scenario.arena or arena_around(trajectory, goals),
        goals,
        tuple(scenario.boxes),
    )
    title = f"{scenario.name}, {size} {environment.team.model.spec.name}, seed {seed}, {environment.team.physics.name}"
    return RecordedEpisode(Animation(scenery, trajectory, title), success, trajectory.duration_s)


def _run(environment: Environment, state: TeamState, nominal: jax.Array, key: jax.Array) -> tuple[TeamState, Scene]:
    """Run one decision like `Environment.run_ticks`, and return the scene after each tick (T, ...)."""
    team = environment.team

    def body(current: TeamState, tick_key: jax.Array) -> tuple[TeamState, Scene]:
        current, _ = tick(team, current, nominal, tick_key)
        return current, team.physics.scene(current.physics)

    return jax.lax.scan(body, state, jax.random.split(key, environment.scenario.decision_ticks))


def _trajectory(scenes: list[Scene], period_s: float) -> Trajectory:
    """Return scenes (T, ..., 1) of one world, one tick apart, as a trajectory."""
    scene: Any = jax.tree.map(lambda *parts: np.concatenate(parts)[..., 0], *scenes)
    position = np.swapaxes(scene.robots.position_world, 1, 2)
    times = period_s * np.arange(len(position))
    if scene.bodies is None:
        return Trajectory(times, position, scene.robots.yaw)
    return Trajectory(
        times, position, scene.robots.yaw, np.swapaxes(scene.bodies.position_world, 1, 2), scene.bodies.yaw
    )
