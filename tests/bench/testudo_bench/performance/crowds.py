"""`testudo bench crowd`: time and memory of one world with more and more robots, shield on."""

import math
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from testudo_bench.performance.world_stepping import drive_to_goals
from testudo_deploy.commands.report import BenchResult
from testudo_deploy.shield.arena import Arena
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_hardware.motion import motion_model
from testudo_hardware.spec import load_robot
from testudo_sim.devices import devices
from testudo_sim.environment import Environment
from testudo_sim.physics.kinematic_tier import KinematicPhysics
from testudo_sim.scenarios.goal_scenario import SPAWN_EDGE_M
from testudo_sim.scenarios.navigation import Navigation
from testudo_sim.team.team_tick import SimulatedTeam

_SIZES = ((8, 1), (32, 1), (32, 32), (128, 1), (512, 1), (1024, 1))
"""Robots and worlds; 32 worlds of 32 robots are as many robots as the largest world."""
_BASE = (32, 1)
_DECISIONS = 6
_CELLS_PER_ROBOT = 2  # of the grid of starts: the same crowding for all sizes


@dataclass(frozen=True)
class _Program:
    """The compiled course of worlds from one start."""

    robots: int
    worlds: int
    run: Callable[[], Any]
    compile_s: float
    temporary_bytes: int  # memory beside inputs and outputs
    ticks: int


def bench_crowd(
    *, robot: str = "gritsbot_x", repeats: int = 7, say: Callable[[str], None] = lambda _: None
) -> BenchResult:
    """Time worlds of 8 to 1,024 robots with layer 1 of the shield, and their cost per robot beside that at 32.

    Kinematic tier; every robot drives straight to its goal in an arena that grows with the team, with delay, lag, noise
    and loss of messages. All sizes run in turn, and medians are reported, in wall time and in processor time of all
    cores. 32 robots run in one world, and in 32 worlds, where small arrays cost no time by themselves.

    Args:
        robot: registered robot.
        repeats: timed runs of each size.
        say: called with progress messages.
    """
    programs = []
    for robots, worlds in _SIZES:
        say(f"compiling {robots} robots in {worlds} world{'s' * (worlds > 1)}")
        programs.append(_compiled(crowd(robot, robots), worlds))
    wall: list[list[float]] = [[] for _ in programs]
    cpu: list[list[float]] = [[] for _ in programs]
    for k in range(repeats):
        say(f"timing, run {k + 1} of {repeats}")
        for program, walls, cpus in zip(programs, wall, cpu, strict=True):
            begin = time.perf_counter(), time.process_time()
            jax.block_until_ready(program.run())
            walls.append(time.perf_counter() - begin[0])
            cpus.append(time.process_time() - begin[1])
    period_s = load_robot(robot).control_period_s
    found = [_figures(*each, period_s) for each in zip(programs, wall, cpu, strict=True)]
    base = next(row for row in found if (row["robots"], row["worlds"]) == _BASE)
    for row in found:
        row["cost_over_32"] = row["cpu_us_per_robot_tick"] / base["cpu_us_per_robot_tick"]
    values = {
        "robot": robot,
        "repeats": repeats,
        "decisions": _DECISIONS,
        "worlds": found,
        "load_average": list(os.getloadavg()),
        "device": devices().to_dict(),
    }
    bar = "bar at 1,024: real time, and at most twice the cost at 32"
    title = f"navigation, {robot}, kinematic tier, layer 1; {bar}; {devices().text}"
    return BenchResult(title, _COLUMNS, [_row(row) for row in found], values)


def crowd(robot: str, robots: int) -> Environment:
    """Return `navigation` for a team of this size, in an arena with room for it at the same density."""
    spec = load_robot(robot)
    shield, model = projection_parameters(spec), motion_model(spec)
    scenario = Navigation.create(spec, shield)
    edge = max(SPAWN_EDGE_M) + scenario.room_m
    cells = math.ceil((_CELLS_PER_ROBOT * robots) ** (1 / spec.dimension))
    half = (cells - 0.9) * scenario.spacing_m / 2  # rounding takes no cell away
    high = (half, half, half * scenario.height_ratio)[: spec.dimension]
    low = tuple(-x for x in high)
    arena = Arena(tuple(x - edge for x in low), tuple(x + edge for x in high))
    scenario = replace(scenario, arena=arena, spawn_low_world=low, spawn_high_world=high)
    physics = KinematicPhysics(model, arena)
    return Environment(scenario, SimulatedTeam(model, shield, arena, physics, robots))


def _compiled(environment: Environment, worlds: int) -> _Program:
    state = jax.jit(environment.reset)(jax.random.split(jax.random.key(0), worlds))
    key = jax.random.key(1)
    begin = time.perf_counter()
    course = jax.jit(lambda s, k: drive_to_goals(environment, s, k, _DECISIONS)).lower(state, key).compile()
    compile_s = time.perf_counter() - begin
    memory: Any = course.memory_analysis()
    ticks = _DECISIONS * environment.scenario.decision_ticks
    jax.block_until_ready(course(state, key))
    return _Program(
        environment.team.size,
        worlds,
        lambda: course(state, key),
        compile_s,
        int(memory.temp_size_in_bytes),
        ticks,
    )


def _figures(program: _Program, wall: list[float], cpu: list[float], period_s: float) -> dict[str, Any]:
    _, (_, _, metrics) = program.run()
    steps = program.robots * program.worlds * program.ticks
    wall_s, cpu_s = statistics.median(wall), statistics.median(cpu)
    return {
        "robots": program.robots,
        "tick_ms": 1e3 * wall_s / program.ticks,
        "real_time_factor": period_s * program.ticks / wall_s,
        "wall_us_per_robot_tick": 1e6 * wall_s / steps,
        "cpu_us_per_robot_tick": 1e6 * cpu_s / steps,
        "temporary_bytes_per_robot": program.temporary_bytes / program.robots / program.worlds,
        "compile_s": program.compile_s,
        "contacts": int(jnp.sum(metrics.contacts)),
        "separation_m": float(jnp.min(metrics.separation_m)),
        "peers_left_out_per_robot": float(jnp.max(metrics.left_out)) / program.robots,
        "worlds": program.worlds,
    }


_COLUMNS = (
    "robots",
    "worlds",
    "a tick",
    "real time",
    "processor, per robot and tick",
    "over 32",
    "memory per robot",
    "contacts",
    "peers without a slot",
    "compilation",
)


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        f"{row['robots']:,}",
        f"{row['worlds']}",
        f"{row['tick_ms']:.2f} ms",
        f"{row['real_time_factor']:,.1f} times",
        f"{row['cpu_us_per_robot_tick']:.2f} µs",
        f"{row['cost_over_32']:.2f}",
        f"{row['temporary_bytes_per_robot'] / 1e3:.1f} kB",
        f"{row['contacts']}",
        f"{row['peers_left_out_per_robot']:.3f} per robot",
        f"{row['compile_s']:.1f} s",
    )
