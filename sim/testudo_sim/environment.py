"""Learning environment of a scenario: one step is one decision of `decision_ticks` control ticks.

Worlds are vectorised (last axis) and restart automatically; terminated and truncated are separate.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import jax
import jax.numpy as jnp

from testudo_deploy.contract.contract import policy_signals
from testudo_deploy.control.task_receiver import oldest_task_s
from testudo_deploy.shield.sensed_bodies import SensedBodies
from testudo_deploy.shield.velocity_projection import ShieldResult, ShieldStatus
from testudo_sim import devices  # noqa: F401  (sets the precision of matrix products)
from testudo_sim.physics.scene import Scene
from testudo_sim.physics.world_parameters import WorldParameters, draw_parameters
from testudo_sim.scenarios.scenario import (
    PEER,
    Scenario,
    StartState,
    TaskScore,
    TaskScoring,
    absent_robots,
    either,
    sensed,
)
from testudo_sim.team.crowd_links import CrowdLinks
from testudo_sim.team.residual_motion import begin_residual
from testudo_sim.team.robot_failures import RobotFailures, draw_failures
from testudo_sim.team.task_channel import TaskChannel, scene_between
from testudo_sim.team.team_tick import SimulatedTeam, start, tick, true_table, values_by_slot

CONTACT = "contact"
"""Part of the reward for contacts, with `Environment.contact_cost`."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class WorldState:
    """State of an environment."""

    team: Any  # `TeamState`, or the state of a deployed team
    task: Any  # state of the scenario
    elapsed: jax.Array  # (E,) int: decisions since the start
    random: jax.Array  # (2, E) integers: the random keys of the course of the task, as plain data
    failures: RobotFailures | None = None  # of robots in this episode; None where none is drawn
    difficulty: jax.Array | None = None  # (E,) in 0 to 1: that of the episode; None without a curriculum
    told: dict[str, jax.Array] | None = None
    """Task signals that the robots know, which messages have brought; None: the present ones."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class StepMetrics:
    """Statistics of one decision, over all physics steps."""

    contacts: jax.Array  # (E,) int: physics steps times touching pairs, robots and walls
    separation_m: jax.Array  # (E,) least distance between the centres of two robots
    interventions: jax.Array
    """(E,) share of robot-ticks in which the shield changed the command without a brake; as the next one of the robots
    that take part."""
    braked: jax.Array  # (E,) share of robot-ticks in which the shield braked
    change_m_s: jax.Array  # (N, E) mean change of the command
    idle: jax.Array
    """(E,) bool: robots take part, and none moved by more than a centimetre: a sign of deadlock before success."""
    left_out: jax.Array
    """(E,) int: most peers in range at one tick for which robots of a crowd had no slot; 0 where all hear all."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class StepResult:
    """The outcome of one decision; rewards belong to the state before the restart."""

    reward: jax.Array  # (N, E)
    terminated: jax.Array  # (E,) bool: success; with `Environment.contact_cost` also a contact
    truncated: jax.Array  # (E,) bool: time is up, or the physics diverged (which also counts as contact)
    metrics: StepMetrics
    last: WorldState  # state at the end of the decision, before any restart
    stood: jax.Array | None = None  # (N, E) bool: robots that took no part in the decision; None: all took part
    left: jax.Array | None = None  # (N, E) bool: robots that took part in it and take none in the next one
    terms: Mapping[str, jax.Array] = field(default_factory=dict)
    """(N, E) by name: the parts of the reward, see `TaskScore.terms`; and `CONTACT` with `Environment.contact_cost`."""
    counts: Mapping[str, jax.Array] = field(default_factory=dict)  # (E,) by name, see `TaskStep.metrics`


@dataclass(frozen=True)
class Environment:
    """A team in a scenario, in many parallel worlds."""

    scenario: Scenario
    team: SimulatedTeam
    spread: float = 1.0  # share of the robot's intervals that worlds are drawn from
    change_price: float = 0.0  # cost of a command change by the shield of full speed
    facing_price: float = 0.0  # cost per second of a heading at right angles to the goal
    failures: float = 0.0  # probability that a robot brakes for good, or for a while, during an episode
    curriculum: bool = False  # worlds begin at difficulty 0, which rises with their success, see `next_difficulty`
    contact_cost: float | None = None
    """Reward that a contact costs every robot of its world, which ends the episode; None: contacts are counted only."""
    task_channel: TaskChannel | None = None
    """How old the task's signals are that policies read; None: they are exact and of the present."""

    @property
    def horizon(self) -> int:
        """Return the decisions in an episode."""
        return self.scoring.horizon

    @property
    def layers(self) -> str:
        """Return the active layers of the shield: `1`, or `none`; `all` of a deployed team."""
        return "1" if self.team.shielded else "none"

    @property
    def steps_per_tick(self) -> int:
        """Return the simulation steps in a control period."""
        return 1

    @property
    def decision_s(self) -> float:
        """Return the time of one decision [s]."""
        return self.scoring.decision_s

    @property
    def scoring(self) -> TaskScoring:
        """Return the scoring of decisions."""
        return TaskScoring(self.scenario, self.team.model.spec, self.change_price, self.facing_price)

    def with_message(self, size: int) -> "Environment":
        """Return the environment of a team whose commands end with learned messages of ``size`` numbers; 0 for none."""
        return replace(self, team=replace(self.team, message_size=size))

    def reset(self, keys: jax.Array, difficulty: jax.Array | None = None) -> WorldState:
        """Return the start of one world for each key (E,), in a curriculum at a difficulty (E,), or else at 0."""
        if self.curriculum and difficulty is None:
            difficulty = jnp.zeros(keys.shape[0])
        begin, parameters = self.draw_start(keys, difficulty)
        residual = begin_residual(self.team.noise, keys, self.team.size)
        start_of = (begin.position_world, begin.yaw, parameters, begin.bodies, begin.velocity)
        state = start(self.team, *start_of, residual)
        return replace(self.world(keys, state, begin.task), difficulty=difficulty)

    def world(self, keys: jax.Array, team: Any, task: Any) -> WorldState:
        """Return worlds with these keys (E,) at the start of team and task.

        Robots know the task as it is, since without its signals they cannot be armed.
        """
        elapsed, failures = jnp.zeros(keys.shape[0], jnp.int32), None
        if self.failures:
            failures = draw_failures(keys, self.failures, self.team.size, self.horizon, self.decision_s)
        state = WorldState(team, task, elapsed, task_random(keys), failures)
        return replace(state, told=self._as_told(task, self.scene(state)))

    def draw_start(self, keys: jax.Array, difficulty: jax.Array | None = None) -> tuple[StartState, WorldParameters]:
        """Return start and dynamics of one world for each key (E,); ``difficulty`` (E,), or None for the plain task."""

        def one(key: jax.Array, of_world: jax.Array | None) -> StartState:
            scenario = self.scenario if of_world is None else cast(Any, self.scenario).at(of_world)
            return cast(StartState, scenario.start(key, self.team.size))

        begin = jax.vmap(one, out_axes=-1)(keys, difficulty)
        parameters = draw_parameters(
            jax.vmap(lambda key: jax.random.fold_in(key, 1))(keys),
            self.team.model.spec,
            self.team.channels,
            self.spread,
            self.team.batteries,
        )
        return begin, parameters

    def signals(self, state: WorldState) -> dict[str, jax.Array]:
        """Return the policy inputs of each robot, batch first: (E, N, ...), neighbours (E, N, K, ...)."""
        stop = self.team.model.stopping_point(state.team.estimate)
        named = policy_signals(
            state.team.estimate,
            stop,
            state.team.table,
            self.team.shield.hold_s,
            self.task_signals(state) if state.told is None else self._with_peers(state.told, state.team),
        )
        return {name: to_batch(value) for name, value in named.items()}

    def central_signals(self, state: WorldState) -> dict[str, jax.Array]:
        """Return the true state for a central critic: as `signals`, and ``neighbour_<task signal>`` (E, N, K, C)."""
        scene = self.scene(state)
        motion = scene.robots
        stop = self.team.model.stopping_point(motion)
        table = true_table(stop, state.team.announcement, self.links(state.team))
        task = self.task_signals(state)
        named = policy_signals(motion, stop, table, self.team.shield.hold_s, task)
        own = {name: value for name, value in task.items() if value.ndim == _OWN_AXES}
        named |= {f"{PEER}{name}": values_by_slot(value, self.links(state.team)) for name, value in own.items()}
        return {name: to_batch(value) for name, value in named.items()}

    def drawn_signals(self, state: WorldState) -> dict[str, jax.Array]:
        """Return what was drawn for each world and no robot can know, batch first (E, N, 1), in control periods.

        The lag of velocities, the delay of commands, the age of poses, and the time of messages; and their loss.
        """
        drawn, period_s = state.team.parameters, self.team.model.spec.control_period_s
        values = {
            "drawn_lag": drawn.velocity_lag_s / period_s,
            "drawn_delay": _mean_index(drawn.delay_weights),
            "drawn_age": _mean_index(drawn.age_weights),
            "drawn_message_time": drawn.message_ticks,
            "drawn_message_loss": drawn.message_loss,
        }
        shape = (self.team.size, state.elapsed.shape[0])
        return {name: to_batch(jnp.broadcast_to(value, shape)[None]) for name, value in values.items()}

    def task_signals(self, state: WorldState) -> dict[str, jax.Array]:
        """Return the present task signals by name: own (C, N, E), of entities and peers (C, K, N, E)."""
        return self._with_peers(dict(self.scenario.signals(state.task, self.scene(state))), state.team)

    def _with_peers(self, named: dict[str, jax.Array], team: Any) -> dict[str, jax.Array]:
        """Return signals of the scenario by name, and those of peers that are made of them."""
        peers = [signal.name for signal in self.scenario.task_signals if signal.name.startswith(PEER)]
        return named | {name: values_by_slot(named[name.removeprefix(PEER)], self.links(team)) for name in peers}

    def _as_told(self, task: Any, scene: Scene) -> dict[str, jax.Array] | None:
        """Return the signals of a message about a task and scene; None without a channel."""
        if self.task_channel is None:
            return None
        return {name: value.astype(jnp.float32) for name, value in self.scenario.signals(task, scene).items()}

    def _told(self, state: WorldState, before: Scene, after: Scene, keys: jax.Array) -> dict[str, jax.Array] | None:
        """Return the signals that robots know at the end of a decision, made in its course: from the task before it.

        No message is older than the decision. Between its ends the scene is interpolated, as the station does for its
        score.
        """
        if self.task_channel is None:
            return None
        limit_s = min(oldest_task_s(self.scenario.task_signals), self.decision_s)
        age_s = self.task_channel.ages_s(keys, state.elapsed, limit_s)
        return self._as_told(state.task, scene_between(before, after, 1 - age_s / self.decision_s))

    def links(self, team: Any) -> CrowdLinks | None:
        """Return who is in the neighbour slots of each robot, by the state of the team; None: everybody, in order."""
        links: CrowdLinks | None = team.links
        return links

    def scene(self, state: WorldState) -> Scene:
        """Return the true state of each world."""
        scene = self.team.physics.scene(state.team.physics)
        return scene if state.failures is None else replace(scene, lost=state.failures.lost(state.elapsed))

    def standing(self, state: WorldState) -> jax.Array | None:
        """Return (N, E) bool: robots that take no part in the decision that begins, and brake; None: all take part."""
        return either(absent_robots(self.scenario, state.task), _failed(state))

    def step(self, state: WorldState, nominal_world: jax.Array, key: jax.Array) -> tuple[WorldState, StepResult]:
        """Hold the nominal velocities (E, N, D) [m/s] for one decision; finished worlds restart.

        Where the team turns, a yaw rate [rad/s] is the last number of each; where it tracks way-points, they are those
        [m]. The numbers of a learned message come after them.
        """
        tick_key, reset_key = jax.random.split(key)
        team_state, metrics = self.run_ticks(state, jnp.transpose(nominal_world, (2, 1, 0)), tick_key)
        ended, score = self.advance(state, team_state, metrics.change_m_s)
        reward, terminated, elapsed, terms = score.reward, score.success, ended.elapsed, dict(score.terms)
        if self.contact_cost is not None:
            touched = metrics.contacts > 0
            cost = self.contact_cost * touched
            cost = cost if score.stood is None else jnp.where(score.stood, 0.0, cost)
            reward, terminated = reward - cost, terminated | touched
            terms[CONTACT] = jnp.broadcast_to(-cost, reward.shape)
        truncated = ((elapsed >= self.horizon) | score.broken) & ~terminated
        difficulty = None if state.difficulty is None else next_difficulty(state.difficulty, score.success)
        fresh = self.reset(jax.random.split(reset_key, elapsed.shape[0]), difficulty)
        done = terminated | truncated
        after_reset = self.restarted(done, fresh, ended)
        stands = self.standing(ended)
        left = None if stands is None or score.stood is None else stands & ~score.stood
        return after_reset, StepResult(
            reward, terminated, truncated, metrics, ended, score.stood, left, terms, score.metrics
        )

    def restarted(self, done: jax.Array, fresh: WorldState, ended: WorldState) -> WorldState:
        """Return the worlds of ``fresh`` where ``done`` (E,), and those of ``ended`` elsewhere."""
        return jax.tree.map(lambda new, old: jnp.where(done, new, old), fresh, ended)

    def advance(self, state: WorldState, team_state: Any, change_m_s: jax.Array) -> tuple[WorldState, TaskScore]:
        """Return the worlds after a decision, without any restart, and its score.

        ``team_state`` is that of the team after the ticks of the decision, ``change_m_s`` (N, E) the mean change of its
        commands.
        """
        ended = replace(state, team=team_state, elapsed=state.elapsed + 1)
        own = jax.random.wrap_key_data(state.random.T)
        keys = jax.vmap(jax.random.fold_in)(own, state.elapsed)
        scenes = (self.scene(state), self.scene(ended))
        score = self.scoring.decision(state.task, *scenes, change_m_s, keys, _failed(state))
        return replace(ended, task=score.task, told=self._told(state, *scenes, own)), score

    def tick(
        self,
        state: Any,
        nominal_world: jax.Array,
        key: jax.Array,
        standing: jax.Array | None = None,
        bodies: SensedBodies | None = None,
    ) -> tuple[Any, ShieldResult]:
        """Return the team one simulation step later, and the result of the shield.

        Robots ``standing`` (N, E) brake; ``bodies`` (2, R, N, E) are those that the ranges of the robots see.
        """
        return tick(self.team, state, nominal_world, key, standing, bodies)

    def run_ticks(self, state: WorldState, nominal_world: jax.Array, key: jax.Array) -> tuple[Any, StepMetrics]:
        """Run the ticks of one decision for nominal velocities (D, N, E) [m/s]; return the team after them."""
        team, standing, seen = self.team, self.standing(state), sensed(self.scenario, state.task, self.scene(state))
        acting = jnp.ones(nominal_world.shape[1:], bool) if standing is None else ~standing

        def share(robots: jax.Array) -> jax.Array:
            return jnp.sum(robots & acting, axis=0) / jnp.maximum(jnp.sum(acting, axis=0), 1)

        def body(carry: tuple[Any, StepMetrics], step: tuple[jax.Array, jax.Array]) -> tuple[Any, None]:
            (current, total), (tick_key, number) = carry, step
            bodies = None if seen is None else replace(seen, age_s=number * team.model.spec.control_period_s)
            current, result = self.tick(current, nominal_world, tick_key, standing, bodies)
            watch = team.physics.watch(current.physics)
            passed = (result.status == int(ShieldStatus.PASSED)) | (result.status == int(ShieldStatus.BRAKED))
            return (
                current,
                StepMetrics(
                    total.contacts + watch.contacts,
                    jnp.minimum(total.separation_m, watch.separation_m),
                    total.interventions + share(~passed),
                    total.braked + share(result.status == int(ShieldStatus.BRAKED)),
                    total.change_m_s + result.change_m_s,
                    total.idle,
                    jnp.maximum(total.left_out, left_out(current)),
                ),
            ), None

        def left_out(current: Any) -> jax.Array:
            links = self.links(current)
            return jnp.zeros(worlds, jnp.int32) if links is None else links.peers.left_out

        worlds = nominal_world.shape[-1]
        zero = jnp.zeros(worlds)
        empty = StepMetrics(
            jnp.zeros(worlds, jnp.int32),
            jnp.full(worlds, jnp.inf),
            zero,
            zero,
            jnp.zeros(nominal_world.shape[1:]),
            jnp.zeros(worlds, bool),
            jnp.zeros(worlds, jnp.int32),
        )
        ticks = self.scenario.decision_ticks
        steps = ticks * self.steps_per_tick
        (after, total), _ = jax.lax.scan(body, (state.team, empty), (jax.random.split(key, steps), jnp.arange(steps)))
        places = [team.physics.scene(s.physics).robots.position_world for s in (state.team, after)]
        moved = jnp.sqrt(jnp.sum((places[1] - places[0]) ** 2, axis=0))
        return after, replace(
            total,
            interventions=total.interventions / ticks,
            braked=total.braked / ticks,
            change_m_s=total.change_m_s / ticks,
            idle=jnp.all((moved < 0.01) | ~acting, axis=0) & jnp.any(acting, axis=0),
        )


def _mean_index(weights: jax.Array) -> jax.Array:
    """Return the mean index (...) of shares (H, ...) that add up to 1."""
    index = jnp.arange(weights.shape[0]).reshape(-1, *(1,) * (weights.ndim - 1))
    return jnp.sum(index * weights, axis=0)


def _failed(state: WorldState) -> jax.Array | None:
    return None if state.failures is None else state.failures.stands(state.elapsed)


_HARDER, _EASIER = 0.05, 0.1  # steps of the difficulty after an episode with success, and without
_OWN_AXES = 3  # of a robot's own signal (C, N, E)
_TASK_STREAM = 2  # random stream of the course of the task, beside those of start and dynamics


def next_difficulty(difficulty: jax.Array, success: jax.Array) -> jax.Array:
    """Return the difficulty (E,) of the next episode of each world; it rises while 2 of 3 episodes or more succeed."""
    return jnp.clip(difficulty + jnp.where(success, _HARDER, -_EASIER), 0.0, 1.0)


def task_random(keys: jax.Array) -> jax.Array:
    """Return `WorldState.random` (2, E) of worlds with these keys (E,)."""
    own = jax.vmap(lambda key: jax.random.fold_in(key, _TASK_STREAM))(keys)
    return jax.random.key_data(own).T


def to_batch(value: jax.Array) -> jax.Array:
    """Return (C, N, E) as (E, N, C), (K, N, E) as (E, N, K), and (C, K, N, E) as (E, N, K, C)."""
    return jnp.transpose(value, tuple(reversed(range(value.ndim))))
