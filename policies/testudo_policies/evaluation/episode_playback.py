"""One held-out episode of a policy, recorded at every control tick, to display."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from testudo_analysis.rendering.animation import Animation, AnimationScene, Trajectory, arena_around
from testudo_analysis.rendering.task_entities import TaskEntities, moved
from testudo_hardware.errors import TestudoError
from testudo_policies.evaluation.evaluation import LAST_SEED
from testudo_policies.hand_written import hand_written
from testudo_sim.environment import Environment, WorldState
from testudo_sim.physics.scene import Scene
from testudo_sim.scenarios.scenario import TaskScore
from testudo_sim.team.batch_policy import BatchPolicy
from testudo_sim.team.team_tick import TeamState, tick


@dataclass(frozen=True)
class RecordedEpisode:
    """A recorded episode."""

    animation: Animation
    success: bool | None  # None of a task without success, which lasts to its time limit
    time_s: float  # time [s] until success or the time limit
    figures: Mapping[str, float] = field(default_factory=dict)  # mean return of a robot, and the counts of the task


def play_episode(environment: Environment, policy: BatchPolicy | None, memory: int, seed: int) -> RecordedEpisode:
    """Run the episode of a seed until success or the time limit.

    Args:
        environment: the scenario and team.
        policy: acts for all robots; called outside jit, may use NumPy. None: the scenario's hand-written velocities.
        memory: size of the policy's hidden state.
        seed: seed of the start, as in `evaluation.evaluate_policy`.

    Raises:
        TestudoError: the seed is out of range.
    """
    if not 0 <= seed < LAST_SEED:
        raise TestudoError(f"--seed: found {seed}, expected 0 to {LAST_SEED - 1}")
    scenario, size = environment.scenario, environment.team.size
    run, read = jax.jit(lambda *values: _run(environment, *values)), jax.jit(environment.signals)
    by_hand = jax.jit(lambda state: hand_written(environment, state))
    world = jax.jit(environment.reset)(jax.vmap(jax.random.key)(jnp.array([seed])))
    hidden = jnp.zeros((size, memory))
    signals = read(world)
    goals = np.asarray(signals["goal_world"][0]) if "goal_world" in signals else None
    physics = environment.team.physics
    scenes = [jax.tree.map(lambda x: np.asarray(x)[None], physics.scene(world.team.physics))]
    bodies, radius_m = [box.name for box in scenario.boxes], environment.team.model.spec.body_radius_m
    entities = TaskEntities.of(scenario.task_signals, bodies, radius_m)
    look = jax.jit(lambda state: _of_first(environment.task_signals(state)))
    places = [entities.places_world(look(world))[None]]
    shares = np.arange(1, scenario.decision_ticks + 1) / scenario.decision_ticks
    success, has_success = False, True
    figures: Counter[str] = Counter()
    for index in range(environment.horizon):
        if policy is None:
            velocity = by_hand(world)
        else:
            named = {name: value.reshape(-1, *value.shape[2:]) for name, value in read(world).items()}
            velocity, hidden = policy(named, hidden)
        nominal = jnp.transpose(jnp.asarray(velocity).reshape(1, size, -1), (2, 1, 0))
        world, after, score = run(world, nominal, jax.random.fold_in(jax.random.key(seed), index))
        scenes.append(jax.tree.map(np.asarray, after))
        places.append(moved(places[-1][-1], entities.places_world(look(world)), shares))
        success, has_success = bool(score.success[0]), score.has_success
        figures.update({"return": float(jnp.mean(score.reward)), **{k: float(v[0]) for k, v in score.metrics.items()}})
        if success:
            break
    trajectory = _trajectory(scenes, np.concatenate(places), environment.team.model.spec.control_period_s)
    scenery = AnimationScene(
        (environment.team.model.spec,) * size,
        scenario.arena or arena_around(trajectory, goals),
        goals,
        (*scenario.boxes, *entities.boxes),
    )
    title = f"{scenario.name}, {size} {environment.team.model.spec.name}, seed {seed}, {environment.team.physics.name}"
    outcome = success if has_success else None
    return RecordedEpisode(Animation(scenery, trajectory, title), outcome, trajectory.duration_s, figures)


def _of_first(signals: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """Return signals (component, ..., robot, world) of the first robot of the first world: (C,), or (K, C)."""
    return {name: jnp.moveaxis(value[..., 0, 0], 0, -1) for name, value in signals.items()}


def _run(
    environment: Environment, world: WorldState, nominal: jax.Array, key: jax.Array
) -> tuple[WorldState, Scene, TaskScore]:
    """Run one decision; return the world after it, the scene after each tick (T, ...), and the score."""
    team, standing = environment.team, environment.standing(world)

    def body(current: TeamState, tick_key: jax.Array) -> tuple[TeamState, tuple[Scene, jax.Array]]:
        current, result = tick(team, current, nominal, tick_key, standing)
        return current, (team.physics.scene(current.physics), result.change_m_s)

    keys = jax.random.split(key, environment.scenario.decision_ticks)
    state, (scenes, changes) = jax.lax.scan(body, world.team, keys)
    world, score = environment.advance(world, state, jnp.mean(changes, axis=0))
    return world, scenes, score


def _trajectory(scenes: list[Scene], entities_world: np.ndarray, period_s: float) -> Trajectory:
    """Return scenes (T, ..., 1) and entities (T, B, 2) [m] of one world, one tick apart, as a trajectory."""
    scene: Any = jax.tree.map(lambda *parts: np.concatenate(parts)[..., 0], *scenes)
    position = np.swapaxes(scene.robots.position_world, 1, 2)
    times = period_s * np.arange(len(position))
    boxes, yaw = entities_world, np.zeros(entities_world.shape[:2])
    if scene.bodies is not None:
        boxes = np.concatenate([np.swapaxes(scene.bodies.position_world, 1, 2), boxes], axis=1)
        yaw = np.concatenate([scene.bodies.yaw, yaw], axis=1)
    return Trajectory(times, position, scene.robots.yaw, *((boxes, yaw) if boxes.shape[1] else ()))
