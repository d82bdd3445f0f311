"""Counterfactual replay: from a moment of a real run on the team goes on in simulation, as it was or otherwise.

The robots begin where they were, at the velocity that they had, under the deployed stack: all layers of the shield,
late poses, messages that are lost. All moments and draws of dynamics are worlds of one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from testudo_analysis.replay.run_moment import RunMoment, commands_from, goals_of, moment_at
from testudo_analysis.replay.variants import CounterfactualOutcomes
from testudo_deploy.contract.command_types import check_velocities_alone
from testudo_deploy.contract.contract import policy_signals, robot_signals
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.shield.arena import Arena
from testudo_deploy.shield.projection_margins import ProjectionParameters
from testudo_deploy.shield.shield import Shield
from testudo_deploy.shield.stop_tube import stop_tube_parameters
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import motion_model
from testudo_hardware.motion.motion_model import control_velocity
from testudo_hardware.spec import RobotSpec
from testudo_runs.alignment import TeamRecording
from testudo_sim.environment import to_batch
from testudo_sim.physics.kinematic_tier import KinematicPhysics
from testudo_sim.physics.world_parameters import Channels, draw_parameters
from testudo_sim.team.batch_policy import artefact_policy
from testudo_sim.team.deployed_team import DeployedTeam, DeployedTeamState, start_deployed, tick_deployed
from testudo_sim.team.fault_schedule import no_faults
from testudo_sim.team.team_tick import SimulatedTeam

_QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
"""A program that runs for some hundred ticks is compiled for longer than it runs."""
_CHUNK = 10
"""Ticks between two looks at recorded commands; a policy decides at its own period."""


@dataclass(frozen=True)
class CounterfactualVariant:
    """One way to go on."""

    name: str
    artefact: PolicyArtefact | None
    """None: as the robots were told in the run."""
    shielded: bool


@dataclass(frozen=True)
class HorizonSettings:
    """How far, and how often."""

    horizon_s: float = 10.0
    draws: int = 16
    """Worlds for each moment: the first with the dynamics as described, the others drawn from the intervals."""
    seed: int = 0

    def check(self) -> None:
        """Refuse what cannot be.

        Raises:
            TestudoError: no time, or no worlds.
        """
        if not 0 < self.horizon_s < float("inf"):
            raise TestudoError(f"--horizon: found {self.horizon_s}, expected a positive number of seconds")
        if self.draws < 1:
            raise TestudoError(f"--draws: found {self.draws}, expected at least 1")


def counterfactual_variants(
    recording: TeamRecording, policy: Path | None, *, commands: bool = False, shield: bool = True
) -> list[CounterfactualVariant]:
    """Return how to go on: with the policy of the run or another, or else with the recorded commands.

    Args:
        recording: the run.
        policy: another policy than that of the run.
        commands: the recorded commands, whatever policy there is.
        shield: with the shield and without; False is without alone.

    Raises:
        TestudoError: the policy file does not hold.
    """
    artefact, name = None, "commands"
    if not commands and policy is not None:
        artefact, name = PolicyArtefact.load(policy), policy.name
    elif not commands and recording.run is not None and recording.contract is not None:
        artefact, name = PolicyArtefact.load(recording.run.policy_path), "policy"
    made = [CounterfactualVariant(f"{name}, shield", artefact, shielded=True)] if shield else []
    return [*made, CounterfactualVariant(f"{name}, no shield", artefact, shielded=False)]


def simulate_from(
    recording: TeamRecording,
    times_s: Sequence[float],
    way: CounterfactualVariant,
    ahead: HorizonSettings,
    tell: Callable[[float], None] = lambda _: None,
) -> CounterfactualOutcomes:
    """Return what becomes of the team from moments on; worlds of one moment are side by side.

    Args:
        recording: the run.
        times_s: moments, seconds since its start.
        way: how it goes on.
        ahead: for how long, and in how many worlds.
        tell: is told the share that is done.

    Raises:
        TestudoError: a moment at which the robots were not seen, or a policy for other robots or another task.
    """
    ahead.check()
    moments = [moment_at(recording, time_s) for time_s in times_s]
    goal = goals_of(recording)
    if way.artefact is not None:
        _check_policy(recording, way.artefact, goal)
    stage = _Stage.create(recording, way)
    ticks = max(1, round(ahead.horizon_s / stage.team.model.spec.control_period_s))
    told = None
    if way.artefact is None:
        parts = [commands_from(recording, time_s, ticks) for time_s in times_s]
        told = np.repeat(np.stack(parts, axis=-1), ahead.draws, axis=-1)
    driver = _Driver(stage, way, told, goal)
    state = stage.begin(moments, ahead)
    seen: list[Any] = []
    key = jax.random.key(ahead.seed + 1)
    for begin in range(0, ticks, stage.chunk):
        wanted = driver.wanted(state, begin)
        state, what = stage.run(state, jnp.asarray(wanted, jnp.float32), jax.random.fold_in(key, begin))
        seen.append(jax.tree.map(np.asarray, what))
        tell(min(1.0, (begin + stage.chunk) / ticks))
    logs = jax.tree.map(lambda *parts: np.concatenate(parts)[:ticks], *seen)
    return CounterfactualOutcomes.create(recording, way.name, moments, ahead.draws, logs, goal)


def _check_policy(recording: TeamRecording, artefact: PolicyArtefact, goal: np.ndarray | None) -> None:
    contract, spec = artefact.contract, recording.spec
    if contract.robot != spec.name or contract.dimension != spec.dimension:
        raise TestudoError(
            f"{artefact.path}: found a policy for {contract.robot}, expected one for {spec.name}, the robots of the run"
        )
    check_velocities_alone(contract.command, f"{artefact.path}: a counterfactual")
    known = {signal.name for signal in robot_signals(spec)} | {"goal_world"}
    other = sorted({signal.name for signal in contract.signals} - known)
    if other:
        raise TestudoError(
            f"{artefact.path}: needs {', '.join(other)}, which no run records; a counterfactual goes on "
            "with policies that read the robots' own signals and their goals"
        )
    if goal is None:
        raise TestudoError(
            f"{recording.folder}: no goals are recorded, which {artefact.path} needs; leave --policy out to "
            "go on with the recorded commands"
        )


@dataclass(frozen=True)
class Logged:
    """What is kept of each tick."""

    position_world: jax.Array
    """(T, D, N, E) [m]."""
    yaw: jax.Array
    """(T, N, E) [rad]."""
    contacts: jax.Array
    """(T, E) int: pairs, and robots at walls, that touch."""
    status: jax.Array
    """(T, N, E) int: `ShieldStatus`."""


jax.tree_util.register_dataclass(Logged)


@dataclass(frozen=True)
class _Stage:
    """The team of a way, and its compiled programs."""

    team: SimulatedTeam
    deployment: DeployedTeam
    chunk: int
    run: Callable[..., tuple[DeployedTeamState, Logged]]
    signals: Callable[..., dict[str, jax.Array]]

    @classmethod
    def create(cls, recording: TeamRecording, way: CounterfactualVariant) -> _Stage:
        contract = way.artefact.contract if way.artefact else None
        spec = recording.spec
        shield, arena = (
            (contract.shield, contract.arena or recording.arena) if contract else (recording.shield, recording.arena)
        )
        team, deployment = deployed_team(spec, shield, arena, len(recording.robots), shielded=way.shielded)
        chunk = contract.decision_ticks if contract else _CHUNK
        run = jax.jit(partial(_run, team, deployment, contract is not None), compiler_options=_QUICK)
        signals = jax.jit(partial(_signals, team), compiler_options=_QUICK)
        return cls(team, deployment, chunk, run, signals)

    def begin(self, moments: Sequence[RunMoment], ahead: HorizonSettings) -> DeployedTeamState:
        """Return the worlds at their start."""
        count = len(moments) * ahead.draws
        keys = jax.vmap(partial(jax.random.fold_in, jax.random.key(ahead.seed)))(
            jnp.tile(jnp.arange(ahead.draws), len(moments))
        )
        spread = jnp.tile((jnp.arange(ahead.draws) > 0).astype(jnp.float32), len(moments))

        def spread_out(name: str) -> jax.Array:
            rows = np.stack([getattr(moment, name) for moment in moments], axis=-1)
            return jnp.asarray(np.repeat(rows, ahead.draws, axis=-1), jnp.float32)

        spec = self.team.model.spec
        faults = no_faults(spec.dimension, self.team.size, count, int(spec.dead_man_s / spec.control_period_s) + 1)
        begin = jax.jit(partial(self._begin, faults), compiler_options=_QUICK)
        return begin(keys, spread, *(spread_out(name) for name in ("position_world", "yaw", "velocity")))

    def _begin(
        self, faults: Any, keys: jax.Array, spread: jax.Array, place: jax.Array, yaw: jax.Array, velocity: jax.Array
    ) -> DeployedTeamState:
        parameters = draw_parameters(keys, self.team.model.spec, self.team.channels, spread)
        return start_deployed(self.team, self.deployment, place, yaw, parameters, faults, velocity)


def deployed_team(
    spec: RobotSpec, shield: ProjectionParameters, arena: Arena | None, size: int, *, shielded: bool
) -> tuple[SimulatedTeam, DeployedTeam]:
    """Return a team and its deployment: all layers of the shield, or none."""
    model = motion_model(spec)
    channels = replace(Channels(), pose_age_s=(min(0.02, spec.pose_max_age_s), min(0.06, spec.pose_max_age_s)))
    team = SimulatedTeam(model, shield, arena, KinematicPhysics(model, arena), size, channels, shielded=shielded)
    return team, DeployedTeam(
        Shield(model, shield, stop_tube_parameters(spec), arena),
        gate=shielded,
        longest_message_ticks=channels.message_ticks[1],
    )


def _run(
    team: SimulatedTeam,
    deployment: DeployedTeam,
    decides: bool,
    state: DeployedTeamState,
    wanted: jax.Array,
    key: jax.Array,
) -> tuple[DeployedTeamState, Logged]:
    """Run ticks under what is wanted (T, D, N, E): control-point velocities, or actuator commands as recorded."""

    def step(current: DeployedTeamState, given: tuple[jax.Array, jax.Array]) -> tuple[DeployedTeamState, Logged]:
        values, tick_key = given
        stop = team.model.stopping_point(current.estimate)
        nominal = values if decides else control_velocity(team.model, stop, values)
        after, result = tick_deployed(team, deployment, current, nominal, tick_key)
        watch, motion = team.physics.watch(after.physics), team.physics.scene(after.physics).robots
        return after, Logged(motion.position_world, motion.yaw, watch.contacts, result.status.astype(jnp.int8))

    return jax.lax.scan(step, state, (wanted, jax.random.split(key, wanted.shape[0])))


def _signals(team: SimulatedTeam, state: DeployedTeamState, goal_world: jax.Array) -> dict[str, jax.Array]:
    """Return what each robot's policy reads, robots of all worlds in one batch axis."""
    stop = team.model.stopping_point(state.estimate)
    goal = jnp.broadcast_to(goal_world[..., None], stop.position_world.shape)
    named = policy_signals(state.estimate, stop, state.table, team.shield.hold_s, {"goal_world": goal})
    batched = {name: to_batch(value) for name, value in named.items()}
    return {name: value.reshape(-1, *value.shape[2:]) for name, value in batched.items()}


class _Driver:
    """What the robots want: their policies' decisions, or what they were told."""

    def __init__(
        self, stage: _Stage, way: CounterfactualVariant, told: np.ndarray | None, goal: np.ndarray | None
    ) -> None:
        self._stage, self._told, self._goal = stage, told, goal
        self._policy = None if way.artefact is None else artefact_policy(way.artefact)
        self._hidden: Any = None
        self._memory = way.artefact.contract.hidden_size if way.artefact else 0

    def wanted(self, state: DeployedTeamState, begin: int) -> np.ndarray:
        """Return what is wanted (T, D, N, E) in the ticks of the chunk that begins."""
        chunk = self._stage.chunk
        if self._policy is None:
            part = self._told[begin : begin + chunk]
            missing = chunk - len(part)
            return np.concatenate([part, np.zeros((missing, *part.shape[1:]))]) if missing else part
        dimension, size, worlds = state.estimate.position_world.shape
        if self._hidden is None:
            self._hidden = np.zeros((size * worlds, self._memory), np.float32)
        named = self._stage.signals(state, jnp.asarray(self._goal, jnp.float32))
        velocity, self._hidden = self._policy(named, self._hidden)
        nominal = np.asarray(velocity).reshape(worlds, size, dimension).transpose(2, 1, 0)
        return np.broadcast_to(nominal, (chunk, *nominal.shape))
