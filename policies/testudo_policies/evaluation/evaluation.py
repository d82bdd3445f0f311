"""Evaluation on held-out episodes: success, contacts, separation, interventions, deadlocks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from testudo_hardware.errors import TestudoError
from testudo_policies.evaluation.shares import largest_share, share_interval
from testudo_policies.hand_written import hand_written
from testudo_sim.environment import Environment, StepMetrics, WorldState
from testudo_sim.scenarios.scenario import TaskScore
from testudo_sim.team.batch_policy import BatchPolicy

HELD_OUT_SEED = 1_000_000  # evaluation episode i starts from seed HELD_OUT_SEED + i; training never uses these seeds
LAST_SEED = 2**31 - 1
BATCH = 1000  # episodes that run together
_SHRINK = 0.25  # finished worlds, where they are slow, are dropped when at most this share is still running
_DEADLOCK_S = 5.0
TRAINED, UNTRAINED = "trained", "untrained"


@dataclass(frozen=True)
class Evaluation:
    """Statistics of held-out episodes."""

    team_size: int
    episodes: int
    first_seed: int
    horizon_s: float
    crossing_share: float  # share of episodes in which at least two straight paths cross (plane only)
    success: float  # share of the episodes; 0 where the task has none
    success_low: float
    success_high: float  # wilson interval, 95 %
    contacts: int  # sum over control ticks of pairs in contact
    episodes_with_contact: int
    contact_rate_high: float  # upper 95 % bound of the share of episodes with a contact (3/n if there was none)
    minimum_separation_m: float  # least distance of two robot centres in all episodes
    separation_p1_m: float  # first percentile over episodes of the least distance
    intervention_rate: float
    brake_rate: float
    deadlocks: int  # episodes without success in which no robot moved in the last five seconds
    time_to_success_s: float  # median over the successful episodes; NaN without one
    layers: str = "1"  # active layers of the shield, see `Environment.layers`
    mean_return: float = math.nan  # sum of the rewards of an episode: mean over robots and episodes
    policy: str = TRAINED  # TRAINED, UNTRAINED, HAND_WRITTEN (`Scenario.nominal_world`), or one of `BASELINES`
    metrics: Mapping[str, float] = field(default_factory=dict)  # by name: mean sum of an episode
    has_success: bool = True  # false where an episode always lasts to its time limit: its return and metrics count
    failures: float = 0.0  # probability that a robot failed in an episode, see `Environment.failures`
    without_plan: int = 0  # episodes in which a planner found no plan and its robots stood
    no_plan: str = ""  # what a planner says of such an episode; empty for a policy
    absent: str = ""  # why a baseline does not apply; then no episode ran
    iqm_return: float = math.nan  # interquartile mean over the episodes of their returns; NaN if it was not asked for
    iqm_return_low: float = math.nan
    iqm_return_high: float = math.nan  # bootstrap interval over the episodes, 95 %

    @classmethod
    def not_run(cls, environment: Environment, policy: str, reason: str) -> Evaluation:
        """Return what stands in the place of a baseline that does not apply."""
        none = math.nan
        figures = (none, none, none, none, 0, 0, none, none, none, none, none, 0, none)
        horizon_s, layers = environment.scenario.horizon_s, environment.layers
        return cls(environment.team.size, 0, 0, horizon_s, *figures, layers, policy=policy, absent=reason)

    @property
    def name(self) -> str:
        """Return the name under which a contract stores it."""
        words = [str(self.team_size)]
        words += [] if self.layers == "1" else [f"layers {self.layers}"]
        words += [] if self.policy == TRAINED else [self.policy]
        return ", ".join(words)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Evaluation:
        """Return what `to_dict` wrote.

        Raises:
            TypeError: the fields are others.
        """
        known: dict[str, Any] = {name: math.nan if value is None else value for name, value in values.items()}
        return cls(**known)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values; NaN becomes None."""
        return {
            name: None if isinstance(value, float) and not np.isfinite(value) else value
            for name, value in asdict(self).items()
        }


@dataclass(frozen=True)
class EpisodeBatch:
    """Figures of episodes (E,), each of its own seed."""

    success: np.ndarray
    contacts: np.ndarray
    separation_m: np.ndarray
    interventions: np.ndarray
    braked: np.ndarray
    stuck: np.ndarray
    duration_s: np.ndarray
    returns: np.ndarray  # sum of the rewards: mean over robots
    crossing: np.ndarray
    metrics: dict[str, np.ndarray]
    has_success: bool = True
    robot_returns: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))  # (N, E): that of each robot


@dataclass(frozen=True)
class Programs:
    """The compiled functions of an environment, shared by all batches."""

    reset: Callable[..., Any]
    signals: Callable[..., Any]  # robots of all worlds are in one batch axis
    advance: Callable[..., Any]
    run_ticks: Callable[..., Any]
    nominal: Callable[..., Any]  # hand-written velocities, as of a policy


def evaluate_policy(
    environment: Environment,
    policy: BatchPolicy | None,
    memory: int,
    episodes: int,
    first_seed: int = HELD_OUT_SEED,
    on_progress: Callable[[int], None] | None = None,
    programs: Programs | None = None,
    on_batch: Callable[[EpisodeBatch], None] | None = None,
    *,
    has_iqm: bool = False,
) -> Evaluation:
    """Run ``episodes`` episodes with fixed seeds until success or the time limit.

    Args:
        environment: the scenario and team.
        policy: acts for all robots of all worlds; called outside jit, may use NumPy; None for the hand-written
            velocities of the scenario.
        memory: size of the policy's hidden state.
        episodes: number of episodes.
        first_seed: seed of the first episode.
        on_progress: called with the number of finished episodes.
        programs: those of `compiled_programs`, for several policies in one environment.
        on_batch: called with the figures of the episodes that ran together.
        has_iqm: also estimate the interquartile mean of the returns, which takes a second or two.

    Raises:
        TestudoError: ``episodes`` or the seeds are out of range.
    """
    if episodes < 1:
        raise TestudoError(f"--episodes: found {episodes}, expected at least 1")
    if not 0 <= first_seed <= LAST_SEED - episodes:
        raise TestudoError(f"--seed: found {first_seed}, expected 0 to {LAST_SEED - episodes}")
    programs = programs or compiled_programs(environment)
    batches: list[EpisodeBatch] = []
    done = 0
    while done < episodes:
        count = min(BATCH, episodes - done)
        batches.append(run_batch(environment, programs, policy, memory, first_seed + done, count))
        done += count
        if on_batch:
            on_batch(batches[-1])
        if on_progress:
            on_progress(done)
    found = _summarise(environment, batches, first_seed)
    if not has_iqm:
        return found
    from testudo_policies.evaluation.scores import episode_iqm  # noqa: PLC0415 -- it imports this module

    iqm = episode_iqm(np.concatenate([batch.returns for batch in batches]))
    return replace(found, iqm_return=iqm.value, iqm_return_low=iqm.low, iqm_return_high=iqm.high)


def compiled_programs(environment: Environment) -> Programs:
    """Return the functions of an environment, each compiled at its first call."""

    def signals(state: WorldState) -> dict[str, jax.Array]:
        named = environment.signals(state)
        return {name: value.reshape(-1, *value.shape[2:]) for name, value in named.items()}

    def advance(state: WorldState, team: Any, change_m_s: jax.Array) -> tuple[WorldState, TaskScore]:
        world, score = environment.advance(state, team, change_m_s)
        return world, replace(score, task=None)  # the world has it

    def nominal(state: WorldState) -> jax.Array:
        return hand_written(environment, state)

    return Programs(*map(jax.jit, (environment.reset, signals, advance, environment.run_ticks, nominal)))


def run_batch(
    environment: Environment, programs: Programs, policy: BatchPolicy | None, memory: int, seed: int, count: int
) -> EpisodeBatch:
    """Return the figures of ``count`` episodes that run together, from ``seed`` on; see `evaluate_policy`."""
    keys = jax.vmap(jax.random.key)(jnp.arange(seed, seed + count))
    world = programs.reset(keys)
    crossing = crossing_paths(environment, world)
    decision_s = environment.decision_s
    size = environment.team.size
    hidden = jnp.zeros((count * size, memory))
    open_ = np.ones(count, bool)
    totals = EpisodeBatch(
        *(np.zeros(count) for _ in range(8)), crossing=crossing, metrics={}, robot_returns=np.zeros((size, count))
    )
    totals.separation_m[:] = np.inf
    still = np.zeros(count)
    rows = np.arange(count)
    slow = environment.team.physics.name != "kinematic" or environment.layers == "all"
    for index in range(environment.horizon):
        if slow and open_.sum() <= int(len(rows) * _SHRINK):
            chosen = _still_running(open_[rows])
            rows = rows[chosen]
            world, hidden = _keep(world, chosen), _keep_robots(hidden, chosen, size)
        if policy is None:
            velocity = programs.nominal(world)
        else:
            velocity, hidden = policy(programs.signals(world), hidden)
        nominal = jnp.transpose(jnp.asarray(velocity).reshape(len(rows), size, -1), (2, 1, 0))
        key = jax.random.fold_in(jax.random.key(seed), index)
        team, metrics = programs.run_ticks(world, nominal, key)
        world, score = programs.advance(world, team, metrics.change_m_s)
        metrics, score = jax.device_get((metrics, score))
        _add(totals, metrics, score, rows, open_[rows])
        still[rows] = np.where(np.asarray(metrics.idle), still[rows] + decision_s, 0.0)
        totals.duration_s[open_] += decision_s
        reached = np.zeros(count, bool)
        reached[rows] = np.asarray(score.success) & open_[rows]
        totals.success[reached] = 1
        open_ = open_ & ~reached
        if not open_.any():
            break
    totals.stuck[:] = open_ & (still >= _DEADLOCK_S)
    return replace(totals, has_success=score.has_success)


def _still_running(open_: np.ndarray) -> np.ndarray:
    """Return which worlds to keep: a fixed share, so that the batches of an evaluation need the same few programs."""
    return np.sort(np.argsort(~open_, kind="stable")[: int(len(open_) * _SHRINK)])


def _keep(world: WorldState, chosen: np.ndarray) -> WorldState:
    """Return some of the worlds; what has no axis, such as the number of a tick, is common to all."""
    return jax.tree.map(lambda x: x[..., chosen] if x.ndim else x, world)


def _keep_robots(hidden: jax.Array, chosen: np.ndarray, size: int) -> jax.Array:
    """Return the memory of the robots of some worlds."""
    robots = (chosen[:, None] * size + np.arange(size)).reshape(-1)
    return jnp.asarray(hidden)[robots]


def _add(totals: EpisodeBatch, metrics: StepMetrics, score: TaskScore, rows: np.ndarray, open_: np.ndarray) -> None:
    """Add the metrics and rewards of a decision to the totals of the episodes ``rows`` that are still running."""
    chosen = rows[open_]
    totals.contacts[chosen] += metrics.contacts[open_]
    totals.separation_m[chosen] = np.minimum(totals.separation_m[chosen], metrics.separation_m[open_])
    totals.interventions[chosen] += metrics.interventions[open_]
    totals.braked[chosen] += metrics.braked[open_]
    totals.returns[chosen] += np.mean(score.reward, axis=0)[open_]
    totals.robot_returns[:, chosen] += score.reward[:, open_]
    for name, counted in score.metrics.items():
        totals.metrics.setdefault(name, np.zeros(len(totals.success)))[chosen] += counted[open_]


def _summarise(environment: Environment, batches: list[EpisodeBatch], first_seed: int) -> Evaluation:
    def joined(name: str) -> np.ndarray:
        return np.concatenate([getattr(batch, name) for batch in batches])

    success, contacts, duration = joined("success"), joined("contacts"), joined("duration_s")
    count, good, touched = len(success), int(success.sum()), int((contacts > 0).sum())
    decision_s = environment.decision_s
    decisions = duration.sum() / decision_s
    return Evaluation(
        environment.team.size,
        count,
        first_seed,
        environment.scenario.horizon_s,
        float(joined("crossing").mean()),
        good / count,
        *share_interval(good, count),
        int(contacts.sum()),
        touched,
        largest_share(touched, count),
        float(joined("separation_m").min()),
        float(np.percentile(joined("separation_m"), 1)),
        float(joined("interventions").sum() / decisions),
        float(joined("braked").sum() / decisions),
        int(joined("stuck").sum()),
        float(np.median(duration[success > 0])) if good else float("nan"),
        environment.layers,
        float(joined("returns").mean()),
        metrics={
            name: float(np.concatenate([batch.metrics[name] for batch in batches]).mean())
            for name in batches[0].metrics
        },
        has_success=batches[0].has_success,
        failures=environment.failures,
    )


def crossing_paths(environment: Environment, world: WorldState) -> np.ndarray:
    """Return (E,) bool: the straight paths of at least two robots cross, seen from above."""
    scene = environment.scene(world)
    begin = np.asarray(scene.robots.position_world)[:2]
    signals = environment.scenario.signals(world.task, scene)
    crossing = np.zeros(begin.shape[-1], bool)
    if "goal_world" not in signals:
        return crossing
    end = np.asarray(signals["goal_world"])[:2]
    for i, j in itertools.combinations(range(begin.shape[1]), 2):
        crossing = crossing | (
            _sides(begin[:, i], end[:, i], begin[:, j], end[:, j])
            & _sides(begin[:, j], end[:, j], begin[:, i], end[:, i])
        )
    return crossing


def _sides(a: np.ndarray, b: np.ndarray, p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Return whether p and q (2, E) lie on different sides of the line through a and b."""

    def side(point: np.ndarray) -> np.ndarray:
        return (b[0] - a[0]) * (point[1] - a[1]) - (b[1] - a[1]) * (point[0] - a[0])

    return side(p) * side(q) < 0
