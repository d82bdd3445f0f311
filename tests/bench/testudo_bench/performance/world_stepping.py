"""`testudo bench sim`: step rate of shielded worlds, compared with the bare kernel in the same run."""

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from testudo_deploy.commands.report import BenchResult
from testudo_deploy.shield.geometry import project_onto_halfspaces
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_deploy.shield.velocity_projection import PeerTable, pair_rows, wall_rows
from testudo_hardware.motion import LagResponse, MotionState, StoppingPoint, motion_model
from testudo_hardware.motion.motion_model import actuator_command
from testudo_hardware.spec import load_robot
from testudo_sim.devices import devices
from testudo_sim.environment import Environment, WorldState
from testudo_sim.physics.kinematic_tier import KinematicPhysics
from testudo_sim.scenarios.navigation import Navigation
from testudo_sim.team.team_tick import SimulatedTeam, true_table

_TICKS_A_STEP = 30
_STEPS = 20


def bench_sim(*, robot: str = "gritsbot_x", team_size: int = 3, worlds: int = 256, repeats: int = 7) -> BenchResult:
    """Time `navigation` with the shield at every control tick, and the bare kernel.

    The environment simulates delay, lag, stopping pose, noise, message loss, neighbour table, observation, reward and
    automatic reset. The kernel is constraint rows, projection and kinematics on the true state. Both run alternately,
    and medians are reported.

    Args:
        robot: registered robot.
        team_size: robots in a world.
        worlds: number of parallel worlds.
        repeats: timed runs of each.
    """
    spec = load_robot(robot)
    shield, model = projection_parameters(spec), motion_model(spec)
    scenario = replace(Navigation.create(spec, shield), decision_ticks=_TICKS_A_STEP)
    physics = KinematicPhysics(model, scenario.arena)
    environment = Environment(scenario, SimulatedTeam(model, shield, scenario.arena, physics, team_size))
    keys = jax.random.split(jax.random.key(0), worlds)
    state = jax.jit(environment.reset)(keys)
    full, full_compile = compiled(lambda s, k: drive_to_goals(environment, s, k, _STEPS), state, jax.random.key(1))
    motion = environment.scene(state).robots
    kernel, kernel_compile = compiled(lambda m: _run_kernel(environment, m), motion)
    times: dict[str, list[float]] = {"environment": [], "kernel": []}
    for _ in range(repeats):
        times["environment"].append(seconds(full, state, jax.random.key(1)))
        times["kernel"].append(seconds(kernel, motion))
    rate = {name: worlds * _STEPS / statistics.median(values) for name, values in times.items()}
    values = {
        "environment_steps_per_s": rate["environment"],
        "kernel_steps_per_s": rate["kernel"],
        "ratio": statistics.median(k / e for k, e in zip(times["kernel"], times["environment"], strict=True)),
        "robot_ticks_per_s": rate["environment"] * _TICKS_A_STEP * team_size,
        "robot": robot,
        "team_size": team_size,
        "worlds": worlds,
        "ticks_per_step": _TICKS_A_STEP,
        "environment_compile_s": full_compile,
        "kernel_compile_s": kernel_compile,
        "repeats": repeats,
        "device": devices().to_dict(),
    }
    rows = [
        ("environment steps of 30 ticks", f"{rate['environment']:,.0f} /s", "≥ 15,000 /s"),
        ("bare kernel, same ticks", f"{rate['kernel']:,.0f} /s", ""),
        ("environment over kernel", f"{values['ratio']:.2f}", "≥ 0.6"),
        ("robot-ticks with shield", f"{values['robot_ticks_per_s'] / 1e6:.2f} million/s", ""),
        ("compilation", f"{full_compile:.1f} s and {kernel_compile:.1f} s", ""),
    ]
    title = f"navigation, {team_size} {robot}, {worlds} worlds; {devices().text}"
    return BenchResult(title, ("what", "median", "bar"), rows, values)


def drive_to_goals(
    environment: Environment, state: WorldState, key: jax.Array, decisions: int
) -> tuple[WorldState, Any]:
    """Return worlds after decisions straight to the goals, and reward, success and metrics of each decision."""
    speed = environment.team.model.spec.control_point_speed_m_s

    def step(current: WorldState, step_key: jax.Array) -> Any:
        signals = environment.signals(current)
        offset = signals["goal_world"] - signals["control_point_world"]
        distance = jnp.sqrt(jnp.sum(offset**2, axis=-1, keepdims=True)) + 1e-6
        current, result = environment.step(current, offset / distance * speed, step_key)
        return current, (result.reward, result.terminated, result.metrics)

    return jax.lax.scan(step, state, jax.random.split(key, decisions))


def _run_kernel(environment: Environment, motion: MotionState) -> tuple[MotionState, StoppingPoint, PeerTable]:
    """Compute rows, projection and kinematics on the true state.

    The nominal velocity rotates, because velocities of robots at rest decay to denormal numbers, which are slow.
    """
    team, physics = environment.team, environment.team.model
    period = physics.spec.control_period_s
    lag = environment.team.model.spec.velocity_lag_s
    response = LagResponse.create(jnp.full(motion.yaw.shape[-1], period), jnp.float32(lag))

    def look(current: MotionState) -> tuple[MotionState, StoppingPoint, PeerTable]:
        stop = physics.stopping_point(current)
        silent = jnp.zeros((2 * physics.spec.dimension, *current.yaw.shape))
        return current, stop, true_table(stop, silent)

    def tick(carry: tuple[MotionState, StoppingPoint, PeerTable], wanted: jax.Array) -> Any:
        current, stop, table = carry
        rows = [
            pair_rows(team.shield, stop, table)[0],
            wall_rows(team.shield, team.arena, stop),
            physics.limit_rows(stop),
        ]
        found = [row for row in rows if row is not None]
        normals = jnp.concatenate([row[0] for row in found], axis=1)
        bounds = jnp.concatenate([row[1] for row in found], axis=0)
        target = wanted[:, None, None] + 0 * stop.position_world
        # without the barrier XLA solves the projection again for each use of its result
        velocity = jax.lax.optimization_barrier(project_onto_halfspaces(target, normals, bounds)[0])
        return look(physics.step(current, actuator_command(physics, stop, velocity), response)), None

    angle = 0.03 * jnp.arange(_STEPS * _TICKS_A_STEP)
    turning = physics.spec.control_point_speed_m_s * jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=1)
    extra = jnp.zeros((len(angle), physics.spec.dimension - 2))
    return jax.lax.scan(tick, look(motion), jnp.concatenate([turning, extra], axis=1))[0]


def compiled(function: Callable[..., Any], *arguments: Any) -> tuple[Callable[..., Any], float]:
    """Return the compiled function, and the time [s] to compile and run it once."""
    begin = time.perf_counter()
    program = jax.jit(function).lower(*arguments).compile()
    jax.block_until_ready(program(*arguments))
    return program, time.perf_counter() - begin


def seconds(function: Callable[..., Any], *arguments: Any) -> float:
    """Return the duration of one call [s]."""
    begin = time.perf_counter()
    jax.block_until_ready(function(*arguments))
    return time.perf_counter() - begin
