"""A recorded run as transitions for `FineTuner`, and as start states of a scenario."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from testudo_analysis.replay.recorded_task import best_track
from testudo_deploy.contract.contract import Contract
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import MotionState
from testudo_hardware.spec import RobotSpec
from testudo_policies.dataset.episodes import DatasetEpisode, body_states, team_states
from testudo_policies.improve.fine_tuning import RecordedTransitions
from testudo_policies.learning.builder import TrainingComponents
from testudo_policies.learning.losses import Batch
from testudo_policies.learning.rollout import critic_features, flat
from testudo_policies.learning.sharing import whole_worlds
from testudo_policies.networks.agent import AgentParameters
from testudo_policies.networks.observation_encoding import out_of_frame
from testudo_runs.run_reader import RecordedRun
from testudo_sim.environment import WorldState
from testudo_sim.online_task.task_state import make_task, scoring_of, task_of
from testudo_sim.physics.scene import BodyState, Scene
from testudo_sim.scenarios.scenario import Scenario, StartState

_EDGE = 0.999  # largest action: at 1 the normal variable before the tanh is infinite


def recorded_of(
    episodes: Sequence[DatasetEpisode], components: TrainingComponents, behaviour: AgentParameters
) -> RecordedTransitions:
    """Return the transitions of episodes as sequences of a rollout's length.

    The actions are treated as samples of the policy that drove the robots. A deployed policy sends its most probable
    action, so the data contain the outcome of that action but not of others.

    Args:
        episodes: episodes of one task.
        components: networks, rollout length and minibatches.
        behaviour: parameters of the policy that drove the robots.

    Raises:
        TestudoError: the episodes contain no complete decision.
    """
    length, parts = components.config.rollout, components.config.minibatches
    sequences = [
        _sequence(episode, components, behaviour, begin, length)
        for episode in episodes
        for begin in range(0, len(episode), length)
    ]
    if not sequences:
        raise TestudoError("found no complete decision in the run, expected at least one to learn from")
    joined = jax.tree.map(lambda *x: jnp.concatenate(x, axis=1), *[(r.batch, r.last, r.weight) for r in sequences])
    hidden = jnp.concatenate([r.hidden for r in sequences])
    robots = len(hidden)
    # minibatches have equal size, so some sequences are used twice; robots with own parameters stay side by side
    parts *= components.config.team_size if whole_worlds(components.config) else 1
    padded = -(-robots // parts) * parts
    rows = jnp.arange(padded) % robots
    batch, last, weight = jax.tree.map(lambda x: x[:, rows], joined)
    return RecordedTransitions(batch, hidden[rows], last, weight)


def _sequence(
    episode: DatasetEpisode, components: TrainingComponents, behaviour: AgentParameters, begin: int, length: int
) -> RecordedTransitions:
    """Return ``length`` decisions of an episode from ``begin``, padded with the last one."""
    agent, count = components.agent, len(episode.robots)
    rows = np.minimum(np.arange(begin, begin + length), len(episode) - 1)
    whole = np.arange(begin, begin + length) < len(episode)
    signals, after = (
        {name: jnp.asarray(value[rows]) for name, value in named.items()}
        for named in (episode.signals, episode.next_signals)
    )
    features, next_features = agent.encode(signals), agent.encode(after)
    central, last = (
        _central(components, behaviour, state[rows], announced, own)
        for state, announced, own in (
            (episode.state, episode.signals["neighbour_velocity_world"][rows], features),
            (episode.next_state, episode.next_signals["neighbour_velocity_world"][rows], next_features),
        )
    )
    action = _action(agent, features, jnp.asarray(episode.actions[rows]).reshape(length, count, -1))
    hidden = jnp.asarray(episode.hidden[begin]).reshape(count, -1)[:, : agent.config.memory]
    fresh = np.zeros((length, count), bool)
    fresh[0] = begin == 0
    logits, _ = agent.act(behaviour, features, hidden, jnp.asarray(fresh))
    ends = np.repeat(whole[:, None], count, axis=1)
    zero = jnp.zeros((length, count))
    batch = Batch(
        features,
        central,
        jnp.asarray(fresh),
        action,
        agent.distribution.log_prob(logits, action),
        zero,
        zero,
        jnp.asarray(episode.rewards[rows]),
        jnp.asarray(episode.terminals[rows][:, None] & ends),
        jnp.asarray((episode.truncations[rows] | ~whole)[:, None] | ~ends),
        jnp.ones((length, count), bool),
        jnp.zeros((length, count), bool),
    )
    return RecordedTransitions(batch, hidden, last, jnp.asarray(episode.valid[rows] & ends, jnp.float32))


def _action(agent: Any, features: Any, velocity_world: jax.Array) -> jax.Array:
    """Return the actions (T, N, D), before the tanh, that command these velocities."""
    mirrored = features.frame * jnp.array([1.0, -1.0])
    action = out_of_frame(velocity_world, mirrored) / agent.speed_limit_m_s
    return jnp.arctanh(jnp.clip(action, -_EDGE, _EDGE))


def _central(
    components: TrainingComponents, behaviour: AgentParameters, state: np.ndarray, announced: np.ndarray, own: Any
) -> Any:
    """Return the critic's features (T, N, ...) of recorded states (T, S)."""
    environment, agent = components.environment, components.agent
    if not agent.config.central_critic:
        return agent.normalise(behaviour, own)
    size, count = agent.dimension, own.own.shape[1]
    parts = state.reshape(len(state), count, -1).astype(np.float32)
    place, yaw, velocity, goals = (
        parts[..., :size],
        parts[..., size],
        parts[..., size + 1 : 2 * size + 1],
        parts[0, :, 2 * size + 1 :],
    )
    motion = MotionState(*(jnp.asarray(x.T) for x in (place, yaw, velocity)))
    stop = environment.team.model.stopping_point(motion)
    # robot i receives the velocity that robot i + 1 announces in its first slot
    velocities = jnp.asarray(np.roll(announced[:, :, 0], 1, axis=1).T)
    task = jax.tree.map(
        lambda x: jnp.broadcast_to(x, (*x.shape[:-1], len(state))), make_task(environment.scenario, cast(Any, goals))
    )
    team = SimpleNamespace(physics=motion, announcement=jnp.concatenate([stop.position_world, velocities]), links=None)
    rows = len(state)
    world = WorldState(team, task, jnp.zeros(rows, jnp.int32), jnp.zeros((2, rows), jnp.uint32))
    found = critic_features(agent, environment, behaviour, world, flat(own))
    return jax.tree.map(lambda x: x.reshape(len(state), count, *x.shape[1:]), found)


_EVERY_S = 1.0


@dataclass(frozen=True)
class RunStarts:
    """A scenario that starts from recorded poses of a run, with robots at rest; otherwise unchanged."""

    inner: Scenario
    task: Any  # task state of one world, without the world axis
    position_world: jax.Array  # (D, N, S) [m]
    yaw: jax.Array  # (N, S) [rad]
    bodies: BodyState | None = None  # poses of the boxes (..., B, S)

    def __getattr__(self, name: str) -> Any:
        if name == "inner":  # not set yet during construction and copying
            raise AttributeError(name)
        return getattr(self.inner, name)

    def start(self, key: jax.Array, team_size: int) -> StartState:
        """See `Scenario.start`; draws one of the recorded times."""
        if team_size != self.yaw.shape[0]:
            raise TestudoError(f"starts of a run: found a team of {team_size}, expected {self.yaw.shape[0]} robots")
        chosen = jax.random.randint(key, (), 0, self.yaw.shape[1])
        bodies = jax.tree.map(lambda x: x[..., chosen], self.bodies)
        return StartState(self.position_world[..., chosen], self.yaw[..., chosen], self.task, bodies)


def run_starts(run: RecordedRun, contract: Contract, spec: RobotSpec) -> RunStarts:
    """Return the scenario of a run's policy with one start per second of the run, until success.

    Raises:
        TestudoError: the recording lacks the task's state or poses.
    """
    scenario = scoring_of(contract, spec).scenario
    task = task_of(scenario, run.fleet)
    tracks = {name: best_track(run, name) for name in run.robots}
    begin = max(track.stamp_s[0] for track in tracks.values())
    end = min(track.stamp_s[-1] for track in tracks.values())
    moments = np.arange(begin, max(end, begin + _EVERY_S), _EVERY_S)
    state = team_states(run, tracks, moments).reshape(len(moments), len(tracks), -1)
    size = spec.dimension
    place, yaw = np.moveaxis(state[..., :size], (2, 1, 0), (0, 1, 2)), state[..., size].T
    bodies = jax.tree.map(jnp.asarray, body_states(run, [box.name for box in scenario.boxes], moments))
    scene = Scene(MotionState(jnp.asarray(place), jnp.asarray(yaw), jnp.zeros_like(place)), bodies)
    keys = jax.random.split(jax.random.key(0), len(moments))
    reached = scenario.advance(task, scene, scene, keys).success
    open_ = ~np.broadcast_to(False if reached is None else np.asarray(reached), (len(moments),))
    open_[0] = True
    return RunStarts(
        scenario,
        jax.tree.map(lambda x: x[..., 0], task),
        jnp.asarray(place[..., open_]),
        jnp.asarray(yaw[..., open_]),
        jax.tree.map(lambda x: x[..., open_], bodies),
    )
