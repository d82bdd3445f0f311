"""`testudo bench gpu`: step rates with 1,024 and more worlds, and training time, compared with the CPU.

The same command runs on a CPU. The table lists what does not fit into time or memory.
"""

import math
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from testudo_bench.performance.world_stepping import drive_to_goals
from testudo_deploy.commands.report import BenchResult
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_deploy.shield.velocity_projection import Arena
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import motion_model
from testudo_hardware.spec import load_robot
from testudo_policies.learning.builder import build
from testudo_policies.learning.episode_window import SUCCESS, Aim, EpisodeWindow
from testudo_policies.train_config import TrainConfig
from testudo_sim.devices import devices
from testudo_sim.environment import Environment, WorldState
from testudo_sim.physics_choice import PhysicsChoice, make_physics
from testudo_sim.scenarios.navigation import Navigation
from testudo_sim.team.team_tick import SimulatedTeam

_DECISIONS = 4
_LEARNING_SHARE = 0.5  # Largest share of the time for training
_NO_TIME = "no time left"
_KINEMATIC, _PLANAR, _WHEELS = (PhysicsChoice(), PhysicsChoice("mjx", "planar"), PhysicsChoice("mjx", "wheels"))


@dataclass(frozen=True)
class GpuCell:
    """One measurement."""

    choice: PhysicsChoice
    team_size: int
    worlds: int
    on_cpu: bool = False  # Measure on the host's CPU if the default device is another
    alone: bool = False  # Only the physics, under turning commands: no sensing, shield or reset


CELLS: tuple[GpuCell, ...] = (
    GpuCell(_KINEMATIC, 4, 4096),
    GpuCell(_KINEMATIC, 4, 1024, on_cpu=True),
    GpuCell(_PLANAR, 4, 1024, alone=True),
    GpuCell(_PLANAR, 4, 4096),
    GpuCell(_WHEELS, 4, 1024, alone=True),
    GpuCell(_WHEELS, 4, 1024),
    GpuCell(_KINEMATIC, 4, 65536),
    GpuCell(_KINEMATIC, 16, 4096),
    GpuCell(_PLANAR, 4, 16384),
    GpuCell(_KINEMATIC, 64, 1024),
    GpuCell(_KINEMATIC, 2, 65536),
    GpuCell(_KINEMATIC, 8, 16384),
    GpuCell(_KINEMATIC, 4, 1024),
    GpuCell(_KINEMATIC, 4, 16384),
    GpuCell(_PLANAR, 16, 1024),
    GpuCell(_WHEELS, 4, 8192),
    GpuCell(_KINEMATIC, 32, 4096),
    GpuCell(_PLANAR, 2, 65536),
    GpuCell(_PLANAR, 64, 1024),
    GpuCell(_KINEMATIC, 64, 4096),
    GpuCell(_WHEELS, 16, 1024),
    GpuCell(_PLANAR, 4, 65536),
)
"""Measurements in order of importance, because the time may not suffice for all."""


@dataclass(frozen=True)
class Stepping:
    """Step rates of one measurement; zero and a note without a result."""

    tier: str
    team_size: int
    worlds: int
    device: str
    decisions_per_s: float = 0.0  # environment decisions of all worlds, each `decision_ticks` control ticks
    physics_steps_per_s: float = 0.0  # Physics steps of all worlds
    compile_s: float = 0.0
    memory_bytes: int = 0  # Arguments, results and temporaries of the compiled program
    note: str = ""


def bench_gpu(
    *, robot: str = "gritsbot_x", minutes: float = 10.0, repeats: int = 3, say: Callable[[str], None] = lambda _: None
) -> BenchResult:
    """Time shielded `navigation` on the kinematic tier and on MJX, and training until it succeeds.

    Every decision is ten control ticks with estimate, neighbour table, shield, physics, reward and reset.

    Args:
        robot: registered robot.
        minutes: time limit; measurements without time left are listed as such.
        repeats: timed runs of each measurement; the median is reported.
        say: called with progress messages.

    Raises:
        TestudoError: ``minutes`` or ``repeats`` is not above 0.
    """
    if not 0 < minutes < math.inf or repeats < 1:
        raise TestudoError(f"--minutes, --repeats: found {minutes} and {repeats}, expected both above 0")
    begin = time.perf_counter()
    say("training navigation until it succeeds")
    learning = learn_until_success(robot, begin + 60 * minutes * _LEARNING_SHARE)
    stepping = list(_step_all(robot, repeats, begin + 60 * minutes, say))
    measured = [one for one in stepping if one.note != _NO_TIME]
    left = len(stepping) - len(measured)
    skipped = [(f"{left} more", "", "", "give --minutes more", "", "", "")] if left else []
    here = devices()
    values = {
        "device": here.to_dict(),
        "robot": robot,
        "minutes": minutes,
        "repeats": repeats,
        "stepping": [asdict(one) for one in stepping],
        "learning": asdict(learning),
        "peak_memory_bytes": (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use"),
    }
    return BenchResult(
        f"navigation with the shield at every tick, {here.text}",
        ("what", "robots", "worlds", "decisions/s", "physics steps/s", "compile", "memory"),
        [*_learning_rows(learning), *map(_row, measured), *skipped],
        values,
    )


def _row(one: Stepping) -> tuple[str, ...]:
    if one.note:
        return (one.tier, str(one.team_size), f"{one.worlds:,}", one.note, "", "", "")
    where = "" if one.device == jax.default_backend() else f" ({one.device})"
    return (
        one.tier + where,
        str(one.team_size),
        f"{one.worlds:,}",
        f"{one.decisions_per_s:,.0f}",
        f"{one.physics_steps_per_s:,.0f}",
        f"{one.compile_s:.1f} s",
        f"{one.memory_bytes / 2**20:,.0f} MiB",
    )


def _learning_rows(learning: "Learning") -> Iterable[tuple[str, ...]]:
    reached = f"{learning.seconds:.1f} s" if learning.reached else f"not within {learning.seconds:.0f} s"
    size, worlds = str(learning.team_size), f"{learning.worlds:,}"
    yield "training", size, worlds, f"{learning.decisions_per_s:,.0f}", "", f"{learning.compile_s:.1f} s", ""
    yield f"training to success {learning.success:g}", size, worlds, reached, "", "", ""


def _step_all(robot: str, repeats: int, end: float, say: Callable[[str], None]) -> Iterable[Stepping]:
    for cell in CELLS:
        tier = cell.choice.physics + ("" if cell.choice.physics == "kinematic" else f" {cell.choice.form}")
        device = jax.local_devices(backend="cpu")[0] if cell.on_cpu else jax.local_devices()[0]
        tier += ", physics alone" if cell.alone else ""
        blank = Stepping(tier, cell.team_size, cell.worlds, device.platform)
        if cell.on_cpu and jax.default_backend() == "cpu":
            continue
        if time.perf_counter() > end:
            yield replace(blank, note=_NO_TIME)
            continue
        say(f"{tier}, {cell.team_size} robots, {cell.worlds:,} worlds")
        with jax.default_device(device):
            yield _step_one(robot, cell, blank, repeats, end)


def _step_one(robot: str, cell: GpuCell, blank: Stepping, repeats: int, end: float) -> Stepping:
    environment = make_benchmark_environment(robot, cell.choice, cell.team_size)
    begin = time.perf_counter()
    try:
        state = jax.jit(environment.reset)(jax.random.split(jax.random.key(0), cell.worlds))
        run = run_physics if cell.alone else run_decisions
        program = jax.jit(lambda s, k: run(environment, s, k)).lower(state, jax.random.key(1)).compile()
        state = jax.block_until_ready(program(state, jax.random.key(1)))
        compile_s = time.perf_counter() - begin
        times = []
        while len(times) < repeats and (not times or time.perf_counter() < end):
            begin = time.perf_counter()
            state = jax.block_until_ready(program(state, jax.random.key(len(times))))
            times.append(time.perf_counter() - begin)
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return replace(blank, note="out of memory")
    rate = cell.worlds * _DECISIONS / statistics.median(times)
    steps = getattr(getattr(environment.team.physics, "tier", None), "steps", 1)
    return replace(
        blank,
        decisions_per_s=rate,
        physics_steps_per_s=rate * environment.scenario.decision_ticks * steps,
        compile_s=compile_s,
        memory_bytes=_memory(program),
    )


def _memory(program: Any) -> int:
    found = program.memory_analysis()
    if found is None:
        return 0
    return int(found.argument_size_in_bytes + found.output_size_in_bytes + found.temp_size_in_bytes)


def make_benchmark_environment(robot: str, choice: PhysicsChoice, team_size: int) -> Environment:
    """Return `navigation` in the Robotarium's arena, scaled with the team size."""
    spec = load_robot(robot)
    shield, model = projection_parameters(spec), motion_model(spec)
    scenario = Navigation.create(spec, shield)
    scale = math.sqrt(max(1.0, team_size / 8))

    def grown(values: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(scale * value for value in values)

    arena = Arena(grown(scenario.arena.low_world), grown(scenario.arena.high_world))
    scenario = replace(
        scenario,
        arena=arena,
        spawn_low_world=grown(scenario.spawn_low_world),
        spawn_high_world=grown(scenario.spawn_high_world),
    )
    physics = make_physics(choice, model, arena, team_size)
    return Environment(scenario, SimulatedTeam(model, shield, arena, physics, team_size))


def run_decisions(environment: Environment, state: WorldState, key: jax.Array) -> WorldState:
    """Return the worlds some decisions later."""
    return drive_to_goals(environment, state, key, _DECISIONS)[0]


def run_physics(environment: Environment, state: WorldState, _: jax.Array) -> WorldState:
    """Return the worlds after as many ticks, with robots driving in circles."""
    team = environment.team
    rate = jnp.asarray((0.1, 0.5, 0.0)[: team.model.spec.dimension])[:, None, None]
    sent = jnp.broadcast_to(rate, state.team.sent.shape)

    def tick(physics: Any, _: None) -> tuple[Any, None]:
        return team.physics.advance(physics, sent, state.team.parameters), None

    ticks = _DECISIONS * environment.scenario.decision_ticks
    physics = jax.lax.scan(tick, state.team.physics, None, length=ticks)[0]
    return replace(state, team=replace(state.team, physics=physics))


_AIM = Aim(
    SUCCESS, 0.97
)  # success that counts as solved; an untrained policy, which drives straight to its goal, has about 0.93
_CPU_WORLDS, _WORLDS = 256, 2048


@dataclass(frozen=True)
class Learning:
    """One training of `navigation`, stopped when its episodes succeed."""

    team_size: int
    worlds: int
    success: float  # required success of the training episodes over the updates of two time limits
    reached: bool
    seconds: float  # Training time [s] without compilation
    updates: int
    decisions: int
    decisions_per_s: float
    compile_s: float


def learn_until_success(robot: str, end: float) -> Learning:
    """Train four robots until they succeed, or until ``end`` on the clock `time.perf_counter`."""
    worlds = _CPU_WORLDS if jax.default_backend() == "cpu" else _WORLDS
    config = TrainConfig(robot=robot, worlds=worlds, decisions=worlds * 32 * 400)
    components = build(config)
    with jax.default_matmul_precision(config.precision):
        begin = time.perf_counter()
        state = components.learner.start(jax.random.key(0))
        update = jax.jit(components.learner.update).lower(state).compile()
        compile_s = time.perf_counter() - begin
        window = EpisodeWindow(2 * components.environment.horizon, config.rollout, worlds * config.rollout)
        begin = time.perf_counter()
        reached, updates = False, 0
        while not reached and time.perf_counter() < end and updates < config.updates:
            state, metrics = update(state)
            updates += 1
            reached = _AIM.is_reached(window.add(jax.device_get(metrics)))
        seconds = time.perf_counter() - begin
    decisions = updates * worlds * config.rollout
    return Learning(
        config.team_size,
        worlds,
        _AIM.value,
        reached,
        seconds,
        updates,
        decisions,
        decisions / max(seconds, 1e-9),
        compile_s,
    )
