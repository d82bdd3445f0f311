"""Simulates many fleets under the deployed shield stack: robots with drawn parameters, from given starts to goals."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from testudo_analysis.forecast.measured_series import as_measured
from testudo_analysis.forecast.outcomes import HOLD_S, TOLERANCE_M, TeamSeries, outcomes
from testudo_analysis.replay.counterfactual import QUICK, deployed_team, goal_signals
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.control.goal_hold import GOAL_TOLERANCE_M, HOLD_AFTER_S
from testudo_deploy.shield.arena import Arena
from testudo_deploy.shield.velocity_projection import ShieldStatus
from testudo_hardware.motion import motion_model
from testudo_hardware.motion.motion_noise import MotionNoise, NoiseChannel
from testudo_hardware.motion.motion_state import length
from testudo_hardware.spec import RobotSpec
from testudo_runs.progress_bar import Share, quiet
from testudo_sim.physics.fleet_parameters import draw_fleet_parameters, with_longest_delay
from testudo_sim.physics.world_parameters import WorldParameters
from testudo_sim.team.batch_policy import BatchPolicy, artefact_policy, by_world
from testudo_sim.team.deployed_team import DeployedTeamState, start_deployed, tick_deployed
from testudo_sim.team.fault_schedule import no_faults
from testudo_sim.team.residual_motion import begin_residual

_BATCH = 256
"""Worlds that run together: more need more memory and are no faster on a CPU."""


@dataclass(frozen=True)
class TeamStart:
    """Where a team begins, and its goals."""

    position_world: np.ndarray = field(repr=False)  # (D, N) [m]
    yaw: np.ndarray = field(repr=False)  # (N,) [rad]
    goal_world: np.ndarray = field(repr=False)  # (D, N) [m]


@dataclass(frozen=True)
class SampledTeam:
    """A team whose fleets are sampled: policy, robots, and what their software believes."""

    names: tuple[str, ...]  # (N,)
    described: RobotSpec  # what the software of all robots believes
    files: tuple[RobotSpec, ...]  # (N,): from whose intervals the true parameters of each robot are drawn
    artefact: PolicyArtefact
    arena: Arena | None
    horizon_s: float
    measured: bool = False  # runs are seen by the robots' own poses, with their errors, see `as_measured`

    @property
    def ticks(self) -> int:
        """Return the control ticks until the horizon."""
        return max(1, round(self.horizon_s / self.described.control_period_s))


@dataclass(frozen=True)
class Worlds:
    """Worlds E that are simulated together."""

    parameters: WorldParameters = field(repr=False)  # of NumPy: in JAX each change of the worlds would be a program
    starts: tuple[TeamStart, ...]  # (E,)

    def take(self, chosen: np.ndarray) -> "Worlds":
        """Return some of the worlds, by index."""
        parameters = jax.tree.map(lambda x: x[..., chosen], self.parameters)
        return Worlds(parameters, tuple(self.starts[k] for k in chosen))

    def and_also(self, other: "Worlds") -> "Worlds":
        """Return these worlds, and those of the same team behind them."""
        parameters = jax.tree.map(lambda *x: np.concatenate(x, axis=-1), self.parameters, other.parameters)
        return Worlds(parameters, self.starts + other.starts)


@dataclass(frozen=True)
class _Logged:
    """Log of each tick: what was sent at it, and the motion after it."""

    position_world: jax.Array  # (T, D, N, E)
    velocity: jax.Array  # (T, D, N, E)
    sent: jax.Array  # (T, D, N, E)
    changed: jax.Array  # (T, N, E) bool


jax.tree_util.register_dataclass(_Logged)


@dataclass(frozen=True)
class FleetSimulator:
    """Runs worlds of a team; its programs are compiled once for each size of a batch."""

    team: SampledTeam
    optimised: bool = True  # compile for many worlds; False: for a few, for which the compiler takes longer than they

    def drawn(self, seed: int, count: int, starts: Sequence[TeamStart]) -> Worlds:
        """Return ``count`` worlds with parameters from the intervals of the robots' files, at ``starts`` in turn."""
        return self.worlds(seed, count, starts, self.team.files, 1.0)

    def nominal(self, seed: int, count: int, starts: Sequence[TeamStart]) -> Worlds:
        """Return ``count`` worlds with the values of the file that the robots believe, without motion noise."""
        described = [self.team.described] * len(self.team.names)
        return self.worlds(seed, count, starts, described, 0.0, noisy=False)

    def outcomes(
        self, worlds: Worlds, seed: int, share: Share = quiet, policy: BatchPolicy | None = None
    ) -> dict[str, np.ndarray]:
        """Return each quantity (E,) by name; ``policy`` drives in place of that of the team."""
        policy = policy or artefact_policy(self.team.artefact)
        count, parts = len(worlds.starts), []
        size = math.ceil(count / math.ceil(count / _BATCH))  # equal batches: one program
        for begin in range(0, count, size):
            chosen = np.minimum(np.arange(begin, begin + size), count - 1)
            batch = worlds.take(chosen)
            done = partial(_part, share, begin / count, size / count)
            series = self.run(batch, policy, seed + begin, done)
            if self.team.measured:
                series = as_measured(series, self.team.described, seed + begin)
            goal = np.stack([start.goal_world for start in batch.starts], axis=-1)
            parts.append(outcomes(series, self.team.names, goal, self.team.horizon_s, self.team.described))
        return {name: np.concatenate([part[name] for part in parts])[:count] for name in parts[0]}

    def run(self, worlds: Worlds, policy: BatchPolicy, seed: int, share: Share = quiet) -> TeamSeries:
        """Return the series of worlds E until all robots are at their goals in every one, or the horizon."""
        starts = worlds.starts
        place, yaw, goal = (
            np.stack([getattr(one, name) for one in starts], axis=-1).astype(np.float32)
            for name in ("position_world", "yaw", "goal_world")
        )
        begin, advance, signals = self._programs
        root = jax.random.key(seed)
        state = begin(worlds.parameters, place, yaw, root)
        contract = self.team.artefact.contract
        _, size, count = place.shape
        hidden: Any = np.zeros((size * count, contract.hidden_size), np.float32)
        near: Any = jnp.zeros((size, count), jnp.int32)
        stays, logs, done = np.zeros(count), [], 0
        period_s = self.team.described.control_period_s
        while done < self.team.ticks and not np.all(stays >= HOLD_S + period_s):
            command, hidden = policy(signals(state, goal), hidden)
            nominal = by_world(command, size)
            state, near, logged = advance(state, near, nominal, goal, jax.random.fold_in(root, done))
            logs.append(jax.tree.map(np.asarray, logged))
            away = np.linalg.norm(logs[-1].position_world - goal[None], axis=1)
            for there in (away < TOLERANCE_M).all(axis=1):
                stays = np.where(there, stays + period_s, np.where(stays >= HOLD_S + period_s, stays, 0.0))
            done += contract.decision_ticks
            share(min(1.0, done / self.team.ticks))
        log = jax.tree.map(lambda *parts: np.concatenate(parts)[: self.team.ticks], *logs)
        rest = np.zeros_like(log.velocity[:1])
        return TeamSeries(
            period_s,
            np.concatenate([place[None], log.position_world[:-1]]),
            np.concatenate([rest, log.velocity[:-1]]),
            log.sent,
            log.changed,
        )

    def worlds(
        self,
        seed: int,
        count: int,
        starts: Sequence[TeamStart],
        files: Sequence[RobotSpec],
        spread: float,
        *,
        noisy: bool = True,
    ) -> Worlds:
        """Return ``count`` worlds with parameters from a share ``spread`` of the intervals of ``files`` (N).

        Their delays are at most those of the files of the team; motion noise is that of the team's files.
        """
        team, channels = self.team, self._team[0].channels

        def draw(root: jax.Array) -> WorldParameters:
            keys = jax.vmap(partial(jax.random.fold_in, root))(jnp.arange(count))
            return draw_fleet_parameters(keys, team.described, files, channels, spread, team.files)

        chosen = tuple(starts[k % len(starts)] for k in range(count))
        parameters = jax.device_get(jax.jit(draw, compiler_options=QUICK)(jax.random.key(seed)))
        return Worlds(replace(parameters, residual_share=np.full(count, noisy, np.float32)), chosen)

    @cached_property
    def _team(self) -> Any:
        team = self.team
        contract = team.artefact.contract
        size = len(team.names)
        made, deployment = deployed_team(
            team.described, contract.shield, team.arena, size, contract.command, shielded=True
        )
        roomy = motion_model(with_longest_delay(team.described, team.files))
        return replace(made, model=roomy, noise=fleet_noise(team.files)), deployment

    @cached_property
    def _programs(self) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
        """Return the compiled start, ticks of a decision, and signals of the policies."""
        team, deployment = self._team
        spec, ticks = self.team.described, self.team.artefact.contract.decision_ticks

        def begin(parameters: WorldParameters, place: jax.Array, yaw: jax.Array, key: jax.Array) -> DeployedTeamState:
            held = int(spec.dead_man_s / spec.control_period_s) + 1
            faults = no_faults(spec.dimension, place.shape[1], place.shape[2], held)
            keys = jax.vmap(partial(jax.random.fold_in, key))(jnp.arange(place.shape[2]))
            residual = begin_residual(team.noise, keys, place.shape[1])
            return start_deployed(team, deployment, place, yaw, parameters, faults, residual=residual)

        stays, wait = spec.dimension == 2, math.ceil(HOLD_AFTER_S / spec.control_period_s)

        def advance(
            state: DeployedTeamState, near: jax.Array, nominal: jax.Array, goal: jax.Array, key: jax.Array
        ) -> tuple[DeployedTeamState, jax.Array, _Logged]:
            def step(
                now: tuple[DeployedTeamState, jax.Array], tick_key: jax.Array
            ) -> tuple[tuple[DeployedTeamState, jax.Array], _Logged]:
                current, near = now
                place = current.measured.position_world
                near = jnp.where(stays & (length(place - goal) < GOAL_TOLERANCE_M), near + 1, 0)
                after, result = tick_deployed(team, deployment, current, nominal, tick_key, holds=near > wait)
                motion = team.physics.scene(after.physics).robots
                changed = result.status != int(ShieldStatus.PASSED)
                near = jnp.where(result.status == int(ShieldStatus.BRAKED), 0, near)
                return (after, near), _Logged(motion.position_world, motion.velocity, after.sent[0], changed)

            (state, near), logged = jax.lax.scan(step, (state, near), jax.random.split(key, ticks))
            return state, near, logged

        options = None if self.optimised else QUICK
        begin_, advance_, signals = (
            jax.jit(made, compiler_options=options) for made in (begin, advance, partial(goal_signals, team))
        )
        return begin_, advance_, signals


def fleet_noise(files: Sequence[RobotSpec]) -> MotionNoise | None:
    """Return the motion noise of robots (N) with arrays (N, 1) for numbers; None where no file has one.

    A robot whose file has none has deviations of zero.
    """
    found = [MotionNoise.from_spec(spec) for spec in files]
    some = next((one for one in found if one is not None), None)
    if some is None:
        return None
    every = [one or some.silent() for one in found]

    def column(values: Sequence[float]) -> Any:
        return jnp.asarray(values, jnp.float32)[:, None]

    channels = tuple(
        NoiseChannel(
            *(
                column([getattr(one, name) for one in of])
                for name in ("deviation", "share", "timing_s", "correlation_s")
            )
        )
        for of in zip(*(one.channels for one in every), strict=True)
    )
    return replace(some, channels=channels)


def _part(share: Share, begin: float, width: float, done: float) -> None:
    share(min(1.0, begin + width * done))
