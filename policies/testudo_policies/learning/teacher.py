"""A student learns from a teacher: DAgger first, then PPO with the teacher's divergence.

1. The teacher is the policy of another run, frozen. Its scenario is the student's, or another one of the same task,
   which sees more of it. Or it is the hand-written velocities of the scenario, see `hand_teacher`.
2. The student drives. In each state that it visits, the teacher says how it would act there (Ross et al., 2011).
3. `Schedule`: in the first updates the student only imitates; then it learns from the reward as well, while the weight
   of the divergence falls to zero, so that a teacher who is wrong, or blind to what the student cannot see, is left.
4. The loss is that of PPO, with its part of the actor weighed by the schedule, and the divergence added.

Only the newest rollout is learned from, as in PPO: no older states are kept. What the student reads are the signals of
its own scenario, so its file is one as any other: the teacher's inputs are in no part of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol, cast

import jax
import jax.numpy as jnp

from testudo_hardware.errors import TestudoError
from testudo_hardware.strict_files import read_as
from testudo_policies.learning.losses import ppo_loss
from testudo_policies.learning.opponents import actor_only
from testudo_policies.learning.ppo import PPO, Lesson
from testudo_policies.learning.rollout import RolloutState, flat
from testudo_policies.learning.train_state import Metrics, TrainState, typed
from testudo_policies.networks.agent import Agent, AgentParameters
from testudo_policies.networks.observation_encoding import Features
from testudo_policies.train_config import TrainConfig
from testudo_sim.environment import Environment, WorldState
from testudo_sim.scenarios.scenario import Scenario, StartState

# 1. The teacher


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Taught:
    """The teacher in the state of a run, which therefore resumes without the teacher's own run folder."""

    parameters: Any  # `AgentParameters` without critic; empty for hand-written velocities
    hidden: jax.Array  # (B, M): its memory in the worlds of the student


@dataclass(frozen=True)
class Teacher:
    """The networks of another run, and the signals that they read of the student's worlds."""

    agent: Agent
    scenario: Scenario

    def begin(self, key: jax.Array, rollout: RolloutState, environment: Environment) -> Taught:
        """Return its part of the state of a run, blank: `with_teacher` gives it the parameters."""
        features = self.features(environment, rollout.worlds)
        blank = actor_only(self.agent.init(key, features, features))
        return Taught(blank, self.agent.blank_memory(features.own.shape[0]))

    def features(self, environment: Environment, worlds: WorldState) -> Features:
        """Return what it reads (B, ...) of the student's worlds: the task as it is, not as old as messages bring it."""
        known = replace(environment, scenario=self.scenario, task_channel=None)
        return flat(self.agent.encode(known.signals(replace(worlds, told=None))))

    def label(
        self, environment: Environment, taught: Taught, worlds: WorldState, fresh: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Return the parameters of its distribution (B, P) in the states of worlds, and its memory (B, M) after them.

        ``fresh`` (B,) marks the begin of an episode.
        """
        now = jax.tree.map(lambda x: x[None], self.features(environment, worlds))
        logits, hidden = self.agent.act(taught.parameters, now, taught.hidden, fresh[None])
        return jax.lax.stop_gradient(logits[0]), hidden


# 2. The student


class Labels(Protocol):
    """A teacher, as its student needs it."""

    def begin(self, key: jax.Array, rollout: RolloutState, environment: Environment) -> Taught:
        """Return its part of the state of a run."""
        ...

    def label(
        self, environment: Environment, taught: Taught, worlds: WorldState, fresh: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Return the parameters of its distribution in the states of worlds, and its memory after them."""
        ...


@dataclass(frozen=True)
class Student(PPO):
    """The learner of a run with a teacher."""

    teacher: Labels | None = None  # always given, see `make_student`

    def init(self, key: jax.Array) -> TrainState:
        """Return the state before the first update."""
        state = super().init(key)
        taught = cast(Labels, self.teacher).begin(key, state.rollout, self.environment)
        return replace(state, rollout=replace(state.rollout, taught=jax.tree.map(typed, taught)))

    def live(self, state: TrainState, rollout_key: jax.Array) -> tuple[Lesson, RolloutState, Metrics]:
        """Run one rollout in which the teacher says of each state how it would act."""
        lesson, rollout, summary = super().live(state, rollout_key)
        weights = self.schedule.weights(state.updates)
        summary |= {"teacher/reward_weight": weights[0], "teacher/divergence_weight": weights[1]}
        return replace(lesson, weights=weights), rollout, summary

    @property
    def label(self) -> Callable[..., tuple[jax.Array, jax.Array]]:  # type: ignore[override]
        """What the teacher says of each step of a rollout."""
        return cast(Labels, self.teacher).label

    @cached_property
    def schedule(self) -> Schedule:
        """The weights of reward and divergence over the run."""
        return Schedule(self.config.updates, self.config.imitation, self.config.divergence)

    def loss(
        self, trial: AgentParameters, lesson: Lesson, columns: jax.Array, key: jax.Array
    ) -> tuple[jax.Array, Metrics]:
        """Return the loss of a minibatch, see `PPO.loss`, with the teacher's divergence."""
        part, memory, after, central = self.minibatch(lesson, columns)
        weights = lesson.weights
        return ppo_loss(trial, self.agent, self.config, part, memory, after, key, central, weights=weights)


# 3. The schedule


@dataclass(frozen=True)
class Schedule:
    """Weights of the actor's part of PPO, and of the divergence KL(teacher || student), at each update."""

    updates: int  # of the run
    imitation: float  # share of them, from the first on, with imitation alone
    divergence: float  # weight of the divergence until then; from there it falls linearly, to zero at the end

    def weights(self, update: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return both weights () at an update, counted from 0."""
        alone = self.imitation * self.updates
        left = (self.updates - update) / jnp.maximum(self.updates - alone, 1.0)
        imitates = update < alone
        return jnp.where(imitates, 0.0, 1.0), self.divergence * jnp.where(imitates, 1.0, jnp.clip(left, 0.0, 1.0))


# Files: the configuration of a run names its teacher, and its first state gets the teacher's parameters


def teacher_text(folder: Path, theirs: TrainConfig) -> str:
    """Return `TrainConfig.teacher`: where a teacher's run is, and its configuration."""
    return json.dumps({"run": str(folder), "config": asdict(replace(theirs, teacher=""))}, sort_keys=True)


@dataclass(frozen=True)
class TeacherEntry:
    """`TrainConfig.teacher`, read."""

    run: str
    config: TrainConfig

    @classmethod
    def read(cls, text: str) -> TeacherEntry:
        """Return the entry of a configuration; raises `TestudoError` if it is none."""
        try:
            values = json.loads(text)
        except ValueError as error:
            raise TestudoError(f"teacher: not JSON: {error}; train anew with --teacher RUN") from error
        entry: TeacherEntry = read_as(cls, values, "teacher", TestudoError)
        return entry


def make_student(config: TrainConfig, agent: Agent, environment: Environment, theirs: Any) -> Student:
    """Return the learner of a run; ``theirs`` are the `TrainingComponents` of the teacher.

    Raises:
        TestudoError: the teacher cannot say what the student should do: another robot, command, frame or task.
    """
    entry = TeacherEntry.read(config.teacher)
    where, own, other = f"--teacher {entry.run}", environment.scenario, theirs.environment.scenario
    if theirs.spec.sha256 != environment.team.model.spec.sha256:
        raise TestudoError(f"{where}: found a policy for {theirs.spec.name}, expected one for {config.robot}")
    tasks = [jax.eval_shape(partial(_start, of, config.team_size), jax.random.key(0)).task for of in (own, other)]
    outlines = [jax.tree.map(lambda x: (x.shape, x.dtype), task) for task in tasks]
    if own.arena != other.arena or outlines[0] != outlines[1]:
        raise TestudoError(
            f"{where}: found scenario {entry.config.scenario!r}, expected {config.scenario!r}, or one of the same task "
            "that sees more of it"
        )
    for name, found, expected in (
        ("--command", entry.config.command, config.command),
        ("--message", entry.config.message, config.message),
        ("frame of the actions", theirs.agent.observation.frame, agent.observation.frame),
        ("share of full speed", theirs.agent.observation.speed, agent.observation.speed),
        ("control ticks in a decision", other.decision_ticks, own.decision_ticks),
        ("parameters of robots", theirs.agent.groups or agent.groups, agent.groups),
    ):
        if found != expected:
            raise TestudoError(
                f"{where}: {name}: found {found or 'none'}, expected {expected or 'none'} as the student"
            )
    return Student(config, agent, environment, teacher=Teacher(theirs.agent, other))


def _start(scenario: Scenario, team_size: int, key: jax.Array) -> StartState:
    return scenario.start(key, team_size)


def with_teacher(state: TrainState, teacher: AgentParameters) -> TrainState:
    """Return the start of a run of one seed, or of several, with the teacher's parameters."""
    taught: Taught = state.rollout.taught
    parameters = jax.tree.map(
        lambda old, new: jax.device_put(jnp.broadcast_to(jnp.asarray(new, old.dtype), old.shape), old.sharding),
        taught.parameters,
        actor_only(teacher),
    )
    return replace(state, rollout=replace(state.rollout, taught=replace(taught, parameters=parameters)))
