"""Counterfactual replay: simulates the team from times of a recorded run, unchanged or with one change.

The robots begin with their recorded positions and velocities, under the deployed stack: all layers of the shield, late
poses, lost messages. All start times and random dynamics are worlds of one batch. Where robots push bodies, C MuJoCo
moves both, with the robots on wheels, as in the plant.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from testudo_analysis.replay.recorded_task import RecordedTask
from testudo_analysis.replay.replayed_team import RunMoment, commands_from, goals_of, moment_at
from testudo_analysis.replay.task_decisions import TaskDecisions
from testudo_analysis.replay.variants import CounterfactualOutcomes
from testudo_deploy.contract.command_types import check_simulated, limited_yaw_rate_of, tracking_of
from testudo_deploy.contract.contract import Command, policy_signals, robot_signals
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.fleet.fleet import FleetBody
from testudo_deploy.shield.arena import Arena
from testudo_deploy.shield.projection_margins import ProjectionParameters
from testudo_deploy.shield.shield import Shield
from testudo_deploy.shield.stop_tube import stop_tube_parameters
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import motion_model
from testudo_hardware.motion.motion_model import control_velocity
from testudo_hardware.spec import RobotSpec
from testudo_plant.worlds.robot_bodies import Box, box_of
from testudo_runs.alignment import TeamRecording
from testudo_sim.environment import to_batch
from testudo_sim.physics.scene import BodyState
from testudo_sim.physics.world_parameters import Channels, draw_parameters
from testudo_sim.physics_choice import PhysicsChoice, make_physics
from testudo_sim.scenarios.robot_number import ROBOT_NUMBER, has_numbers
from testudo_sim.team.batch_policy import artefact_policy, by_world
from testudo_sim.team.deployed_team import DeployedTeam, DeployedTeamState, start_deployed, tick_deployed
from testudo_sim.team.fault_schedule import no_faults
from testudo_sim.team.residual_motion import begin_residual, residual_noise
from testudo_sim.team.team_tick import SimulatedTeam

QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
"""Compilation takes longer than a run of some hundred ticks: no expensive optimisation."""
_CHUNK = 10  # ticks of one call with recorded commands; a policy decides at its own period


@dataclass(frozen=True)
class CounterfactualVariant:
    """One counterfactual variant."""

    name: str
    artefact: PolicyArtefact | None  # None: the recorded commands
    shielded: bool
    task: RecordedTask | None = None  # the task that goes on, for a policy that reads more than goals


@dataclass(frozen=True)
class HorizonSettings:
    """Horizon and sample count."""

    horizon_s: float = 10.0
    draws: int = 16
    """Worlds for each start time: the first with the dynamics of the robot file, the others from its intervals."""
    seed: int = 0

    def check(self) -> None:
        """Check the values.

        Raises:
            TestudoError: the horizon is not positive, or there are no worlds.
        """
        if not 0 < self.horizon_s < float("inf"):
            raise TestudoError(f"--horizon: found {self.horizon_s}, expected a positive number of seconds")
        if self.draws < 1:
            raise TestudoError(f"--draws: found {self.draws}, expected at least 1")


def counterfactual_variants(
    recording: TeamRecording, policy: Path | None, *, commands: bool = False, shield: bool = True
) -> list[CounterfactualVariant]:
    """Return the variants: with the policy of the run or another, or with the recorded commands.

    ``commands`` uses the recorded commands even if there is a policy; so does a run whose task cannot go on in
    simulation. ``shield`` is for variants with and without the shield, else only without.

    Raises:
        TestudoError: the policy file is invalid, or its task cannot go on in simulation.
    """
    artefact, task, name, run = None, None, "commands", recording.run
    if not commands and policy is not None:
        artefact, name = PolicyArtefact.load(policy), policy.name
        task = recorded_task(recording, artefact)
    elif not commands and run is not None and recording.contract is not None:
        own = PolicyArtefact.load(run.policy_path)
        try:
            task = recorded_task(recording, own)
        except TestudoError:
            task = None
        if task is not None or run.fleet.task is None:
            artefact, name = own, "policy"
    made = [CounterfactualVariant(f"{name}, shield", artefact, shielded=True, task=task)] if shield else []
    return [*made, CounterfactualVariant(f"{name}, no shield", artefact, shielded=False, task=task)]


def recorded_task(recording: TeamRecording, artefact: PolicyArtefact) -> RecordedTask | None:
    """Return the task of a run that goes on under a policy; None for a policy that reads goals alone.

    Raises:
        TestudoError: the policy is for other robots, or as `RecordedTask.create`.
    """
    _check_robot(artefact, recording.spec)
    read = set(_task_signals(artefact, recording.spec))
    if not read or (read == {ROBOT_NUMBER} and goals_of(recording) is not None):
        return None
    return RecordedTask.create(recording, artefact.contract)


def simulate_from(
    recording: TeamRecording,
    times_s: Sequence[float],
    variant: CounterfactualVariant,
    ahead: HorizonSettings,
    tell: Callable[[float], None] = lambda _: None,
) -> CounterfactualOutcomes:
    """Return the outcomes of one variant; worlds of one start time are adjacent.

    ``times_s`` are seconds since the start of the run; ``tell`` gets the completed fraction.

    Raises:
        TestudoError: the robots are not recorded at a start time, or the policy is for other robots or another task.
    """
    ahead.check()
    bodies = _bodies_of(recording, variant)
    moments = [moment_at(recording, time_s, [body.name for body in bodies]) for time_s in times_s]
    goal = goals_of(recording)
    needed = None
    if variant.artefact is not None and variant.task is None:
        needed = _checked_goal(recording, variant.artefact, goal)
    stage = _Stage.create(recording, variant, tuple(map(box_of, bodies)))
    ticks = max(1, round(ahead.horizon_s / stage.team.model.spec.control_period_s))
    if variant.artefact is None:
        parts = [commands_from(recording, time_s, ticks) for time_s in times_s]
        nominal = partial(_recorded, np.repeat(np.stack(parts, axis=-1), ahead.draws, axis=-1), stage.chunk)
    elif variant.task is not None:
        nominal = TaskDecisions(
            stage.team, stage.deployment, variant.artefact, variant.task, times_s, ahead.draws, ahead.seed, QUICK
        )
    else:
        nominal = _Decisions(stage, variant.artefact, cast(np.ndarray, needed))
    state = stage.begin(moments, ahead)
    seen: list[Any] = []
    key = jax.random.key(ahead.seed + 1)
    for begin in range(0, ticks, stage.chunk):
        chunk, standing = nominal(state, begin)
        state, logged = stage.run(state, jnp.asarray(chunk, jnp.float32), jax.random.fold_in(key, begin), standing)
        seen.append(jax.tree.map(np.asarray, logged))
        tell(min(1.0, (begin + stage.chunk) / ticks))
    logs = jax.tree.map(lambda *parts: np.concatenate(parts)[:ticks], *seen)
    returns = nominal.return_at_end(state) if isinstance(nominal, TaskDecisions) else None
    return CounterfactualOutcomes.create(recording, variant.name, moments, ahead.draws, logs, goal, returns)


def _bodies_of(recording: TeamRecording, variant: CounterfactualVariant) -> tuple[FleetBody, ...]:
    """Return the bodies that robots push: those of the task in its order, else those of the run."""
    known = {body.name: body for body in recording.run.fleet.bodies} if recording.run else {}
    names = tuple(known) if variant.task is None else variant.task.bodies
    return tuple(known[name] for name in names)


def _checked_goal(recording: TeamRecording, artefact: PolicyArtefact, goal: np.ndarray | None) -> np.ndarray:
    """Return the goals (D, N) [m] for a policy that fits the recording."""
    check_goal_policy(artefact, recording.spec, "a counterfactual", frozenset({ROBOT_NUMBER}))
    if goal is None:
        raise TestudoError(
            f"{recording.folder}: no goals are recorded, which {artefact.path} needs; leave --policy out to "
            "simulate the recorded commands"
        )
    team = artefact.contract.team_size
    if has_numbers(artefact.contract) and team != len(recording.robots):
        raise TestudoError(
            f"{artefact.path}: each robot has its own parameters: found {len(recording.robots)} robots in "
            f"{recording.folder}, expected {team}"
        )
    return goal


def check_goal_policy(artefact: PolicyArtefact, spec: RobotSpec, what: str, also: frozenset[str] = frozenset()) -> None:
    """Refuse a policy for other robots than ``spec``, or one that reads more than the robots' own signals and goals.

    ``what`` names in errors what simulates it; ``also`` are further signals that it knows.

    Raises:
        TestudoError: such a policy.
    """
    _check_robot(artefact, spec)
    other = [name for name in _task_signals(artefact, spec) if name not in also]
    if other:
        raise TestudoError(
            f"{artefact.path}: needs {', '.join(other)} of a task, which {what} does not run; expected a "
            "policy that reads only the robots' own signals and goals"
        )


def _check_robot(artefact: PolicyArtefact, spec: RobotSpec) -> None:
    contract = artefact.contract
    check_simulated(contract.command, str(artefact.path))
    if contract.robot != spec.name or contract.dimension != spec.dimension:
        raise TestudoError(
            f"{artefact.path}: found a policy for {contract.robot}, expected one for {spec.name}, the robots of the run"
        )


def _task_signals(artefact: PolicyArtefact, spec: RobotSpec) -> list[str]:
    """Return the signals that a policy reads beside the robots' own and their goals."""
    known = {signal.name for signal in robot_signals(spec)} | {"goal_world"}
    return sorted({signal.name for signal in artefact.contract.signals} - known)


@dataclass(frozen=True)
class Logged:
    """Log of each tick."""

    position_world: jax.Array  # (T, D, N, E) [m]
    yaw: jax.Array  # (T, N, E) [rad]
    contacts: jax.Array  # (T, E) int: pairs, and robots at walls, in contact
    status: jax.Array  # (T, N, E) int: `ShieldStatus`


jax.tree_util.register_dataclass(Logged)


@dataclass(frozen=True)
class _Stage:
    """The team of a variant, and its compiled programs."""

    team: SimulatedTeam
    deployment: DeployedTeam
    chunk: int
    run: Callable[..., tuple[DeployedTeamState, Logged]]
    signals: Callable[..., dict[str, jax.Array]]

    @classmethod
    def create(cls, recording: TeamRecording, variant: CounterfactualVariant, boxes: tuple[Box, ...]) -> "_Stage":
        contract = variant.artefact.contract if variant.artefact else None
        spec = recording.spec
        shield, arena = (
            (contract.shield, contract.arena or recording.arena) if contract else (recording.shield, recording.arena)
        )
        command = contract.command if contract else None
        size, shielded = len(recording.robots), variant.shielded
        team, deployment = deployed_team(spec, shield, arena, size, command, shielded=shielded, boxes=boxes)
        chunk = contract.decision_ticks if contract else _CHUNK
        run = jax.jit(partial(_run, team, deployment, contract is not None), compiler_options=QUICK)
        signals = jax.jit(partial(goal_signals, team), compiler_options=QUICK)
        return cls(team, deployment, chunk, run, signals)

    def begin(self, moments: Sequence[RunMoment], ahead: HorizonSettings) -> DeployedTeamState:
        """Return the worlds at their start times."""
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
        begin = jax.jit(partial(self._begin, faults), compiler_options=QUICK)
        pushed = spread_out("bodies") if moments[0].bodies is not None else None
        return begin(keys, spread, *(spread_out(name) for name in ("position_world", "yaw", "velocity")), pushed)

    def _begin(
        self,
        faults: Any,
        keys: jax.Array,
        spread: jax.Array,
        place: jax.Array,
        yaw: jax.Array,
        velocity: jax.Array,
        pushed: jax.Array | None,
    ) -> DeployedTeamState:
        spec, channels = self.team.model.spec, self.team.channels
        parameters = draw_parameters(keys, spec, channels, spread)  # pyright: ignore[reportArgumentType] -- (E,)
        # the deadlock rule belongs to what is left out with the shield
        resolves = jnp.full(yaw.shape[1:], self.team.shielded)
        residual = begin_residual(self.team.noise, keys, self.team.size)
        bodies = None if pushed is None else BodyState(pushed[:2], pushed[2])
        motion = (place, yaw, parameters, faults, velocity)
        return start_deployed(self.team, self.deployment, *motion, bodies=bodies, resolves=resolves, residual=residual)


def deployed_team(
    spec: RobotSpec,
    shield: ProjectionParameters,
    arena: Arena | None,
    size: int,
    command: Command | None,
    *,
    shielded: bool,
    boxes: tuple[Box, ...] = (),
) -> tuple[SimulatedTeam, DeployedTeam]:
    """Return a team and its deployment: all layers of the shield, or none.

    ``command`` is that of its policy; None for recorded commands. ``boxes`` are bodies that robots push.
    """
    model = motion_model(spec)
    channels = replace(Channels(), pose_age_s=(min(0.02, spec.pose_max_age_s), min(0.06, spec.pose_max_age_s)))
    physics = make_physics(PhysicsChoice("mujoco" if boxes else "kinematic"), model, arena, size, boxes)
    noise = residual_noise(spec, physics)
    team = SimulatedTeam(model, shield, arena, physics, size, channels, shielded=shielded, noise=noise)
    if command is not None:
        turning, said = limited_yaw_rate_of(command), command.message_size
        team = replace(team, tracking=tracking_of(command), yaw_rate_limit=turning, message_size=said)
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
    nominal: jax.Array,
    key: jax.Array,
    standing: jax.Array | None,
) -> tuple[DeployedTeamState, Logged]:
    """Run ticks under nominal commands (T, C, N, E): of the policy, or else recorded ones of actuators with C = D.

    Robots ``standing`` (N, E) take no part in the task, and brake.
    """

    def step(current: DeployedTeamState, given: tuple[jax.Array, jax.Array]) -> tuple[DeployedTeamState, Logged]:
        values, tick_key = given
        stop = team.model.stopping_point(current.estimate)
        velocity = values if decides else control_velocity(team.model, stop, values)
        after, result = tick_deployed(team, deployment, current, velocity, tick_key, standing)
        watch, motion = team.physics.watch(after.physics), team.physics.scene(after.physics).robots
        return after, Logged(motion.position_world, motion.yaw, watch.contacts, result.status.astype(jnp.int8))

    return jax.lax.scan(step, state, (nominal, jax.random.split(key, nominal.shape[0])))


def goal_signals(team: SimulatedTeam, state: DeployedTeamState, goal_world: jax.Array) -> dict[str, jax.Array]:
    """Return the signals of each robot's policy, with the robots of all worlds in one batch axis.

    ``goal_world`` (D, N, E), or (D, N, 1) for the same in all worlds.
    """
    stop = team.model.stopping_point(state.estimate)
    goal = jnp.broadcast_to(goal_world, stop.position_world.shape)
    named = policy_signals(state.estimate, stop, state.table, team.shield.hold_s, {"goal_world": goal})
    batched = {name: to_batch(value) for name, value in named.items()}
    return {name: value.reshape(-1, *value.shape[2:]) for name, value in batched.items()}


def _recorded(commands: np.ndarray, chunk: int, _: DeployedTeamState, begin: int) -> tuple[np.ndarray, None]:
    """Return the recorded commands (chunk, D, N, E) from tick ``begin`` on; zero after the last. All take part."""
    part = commands[begin : begin + chunk]
    missing = chunk - len(part)
    return np.concatenate([part, np.zeros((missing, *part.shape[1:]))]) if missing else part, None


class _Decisions:
    """Nominal velocities of the policy, with its memory."""

    def __init__(self, stage: _Stage, artefact: PolicyArtefact, goal: np.ndarray) -> None:
        self._stage, self._goal = stage, jnp.asarray(goal, jnp.float32)[..., None]
        self._policy, self._memory = artefact_policy(artefact), artefact.contract.hidden_size
        self._numbered = has_numbers(artefact.contract)
        self._hidden: Any = None

    def __call__(self, state: DeployedTeamState, _: int) -> tuple[np.ndarray, None]:
        """Return the commands (chunk, C, N, E) of the policy for the next ticks; all robots take part."""
        size, worlds = state.estimate.yaw.shape
        if self._hidden is None:
            self._hidden = np.zeros((size * worlds, self._memory), np.float32)
        signals = self._stage.signals(state, self._goal)
        if self._numbered:
            signals[ROBOT_NUMBER] = jnp.tile(jnp.arange(size, dtype=jnp.float32), worlds)[:, None]
        command, self._hidden = self._policy(signals, self._hidden)
        nominal = by_world(command, size)
        return np.broadcast_to(nominal, (self._stage.chunk, *nominal.shape)), None
