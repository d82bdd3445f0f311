"""`testudo bench drones`: step rate of the fitted tier, compared with crazyflow in the same run."""

import statistics
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from testudo_bench.performance import crazyflow_reference as oracle
from testudo_bench.performance.world_stepping import compiled, seconds
from testudo_deploy.commands.report import BenchResult
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import attitude_drone
from testudo_hardware.motion.attitude_drone import AnglesState, AttitudeDroneParameters, AttitudeResponse
from testudo_hardware.motion.rotor_drone import GRAVITY_M_S2
from testudo_hardware.spec import load_robot
from testudo_sim.devices import devices
from testudo_sim.physics import drone_tier as _drones  # noqa: F401  (registers the states)

_TICKS = 100  # Attitude commands in a timed run; each holds for `HOLD_STEPS` steps
_TIER = "so_rpy_rotor_drag"
_DRONE = "cf2x_L250"
_MISSING = (
    "crazyflow is not installed, so only the rate of testudo was measured: install it with `pip install crazyflow`"
)


def bench_drones(
    *, robot: str = _DRONE, worlds: int = 1024, repeats: int = 7, say: Callable[[str], None] = lambda _: None
) -> BenchResult:
    """Step single drones under random attitude commands at 500 Hz in testudo and crazyflow, and compare flights.

    Both step the fitted attitude response with thrust lag and drag in float32, with a command every 20 ms, in one
    compiled loop; crazyflow uses its default integrator. Then both fly two seconds of random commands in every tier, in
    float64, with crazyflow's parameters.

    Args:
        robot: robot file with a table `[attitude]`; crazyflow uses its own parameters of cf2x_L250.
        worlds: drones in parallel, each in a separate world.
        repeats: timed runs of each.
        say: called with progress messages.

    Raises:
        TestudoError: the robot is unknown, or ``worlds`` is below 1.
    """
    if worlds < 1:
        raise TestudoError(f"--worlds: found {worlds}, expected at least 1")
    say("compiling")
    programs = {"testudo": _testudo_loop(AttitudeDroneParameters.from_spec(load_robot(robot)), worlds)}
    if oracle.has_crazyflow():
        programs["crazyflow"] = _crazyflow_loop(worlds)
    ready, compile_s = {}, {}
    for name, (function, *arguments) in programs.items():
        program, compile_s[name] = compiled(function, *arguments)
        ready[name] = (program, *arguments)
    say("timing")
    times: dict[str, list[float]] = {name: [] for name in ready}
    for _ in range(repeats):
        for name, (program, *arguments) in ready.items():
            times[name].append(seconds(program, *arguments))
    steps = worlds * _TICKS * oracle.HOLD_STEPS
    values: dict[str, Any] = {
        "robot": robot,
        "worlds": worlds,
        "rate_hz": oracle.RATE_HZ,
        "repeats": repeats,
        "compile_s": compile_s,
        "steps_per_s": {name: steps / statistics.median(each) for name, each in times.items()},
        "crazyflow": oracle.crazyflow_version(),
        "device": devices().to_dict(),
    }
    rows = [(f"{name}, drone steps", f"{rate / 1e6:.2f} million/s", "") for name, rate in values["steps_per_s"].items()]
    if "crazyflow" in times:
        values["ratio"] = statistics.median(
            theirs / ours for ours, theirs in zip(times["testudo"], times["crazyflow"], strict=True)
        )
        rows.append(("testudo over crazyflow", f"{values['ratio']:.2f}", "≥ 1.0"))
    else:
        values["note"] = _MISSING
        rows.append(("crazyflow", "not installed", "≥ 1.0"))
    rows += [(f"compilation, {name}", f"{each:.1f} s", "") for name, each in compile_s.items()]
    title = f"single drones under attitude commands, {oracle.RATE_HZ} Hz, {worlds} worlds; {devices().text}"
    return BenchResult(title, ("what", "median", "bar"), rows, values, _agreement(values, say))


def _testudo_loop(parameters: AttitudeDroneParameters, worlds: int) -> tuple[Any, ...]:
    """Return the loop of testudo and its arguments."""
    zero = jnp.zeros((3, worlds))
    hover = parameters.hover_thrust_n
    start = AnglesState(zero.at[2].set(100.0), zero, zero, zero, jnp.full(worlds, hover))
    # constants are computed once, outside the loop
    response = AttitudeResponse.create(parameters, 1 / oracle.RATE_HZ, zero)

    def fly(state: AnglesState, commands: jax.Array) -> AnglesState:
        def tick(current: AnglesState, command: jax.Array) -> tuple[AnglesState, None]:
            def once(moving: AnglesState, _: None) -> tuple[AnglesState, None]:
                return attitude_drone.advance(parameters, response, moving, command), None

            return jax.lax.scan(once, current, length=oracle.HOLD_STEPS)

        return jax.lax.scan(tick, state, commands)[0]

    return fly, start, _commands(hover, worlds)


def _commands(hover_n: float, worlds: int) -> jax.Array:
    """Return random attitude commands (T, 4, E)."""
    rng = np.random.default_rng(0)
    return jnp.asarray(
        np.concatenate(
            [rng.uniform(-0.3, 0.3, (_TICKS, 3, worlds)), hover_n * rng.uniform(0.8, 1.2, (_TICKS, 1, worlds))], axis=1
        ),
        jnp.float32,
    )


def _crazyflow_loop(worlds: int) -> tuple[Any, ...]:
    """Return crazyflow's loop and its arguments."""
    from crazyflow.control import Control
    from crazyflow.sim import Sim, functional

    simulation = Sim(
        n_worlds=worlds, n_drones=1, drone=_DRONE, dynamics=_TIER, control=Control.attitude, freq=oracle.RATE_HZ
    )
    data = simulation.data
    high = data.states.pos.at[..., 2].set(100.0)
    hover = oracle.shipped(_TIER, _DRONE)["mass"] * GRAVITY_M_S2
    spun = jnp.full_like(data.states.rotor_vel, hover)

    def fly(start: Any, commands: jax.Array) -> Any:
        def tick(current: Any, command: jax.Array) -> tuple[Any, None]:
            sent = functional.attitude_control(current, command.T[:, None, :])
            after = simulation._step(sent, n_steps=oracle.HOLD_STEPS)
            # crazyflow's step turns this flag into a Python bool, which a loop cannot carry
            return after.replace(core=after.core.replace(mjx_synced=start.core.mjx_synced)), None

        return jax.lax.scan(tick, start, commands)[0]

    return fly, data.replace(states=data.states.replace(pos=high, rotor_vel=spun)), _commands(hover, worlds)


def _agreement(values: dict[str, Any], say: Callable[[str], None]) -> tuple[BenchResult, ...]:
    """Return the table of distances from crazyflow's flights, and add them to ``values``."""
    if not oracle.has_crazyflow():
        return ()
    rows, found = [], {}
    for tier in oracle.TIERS:
        for drone in oracle.DRONES:
            say(f"flying {tier}, {drone}")
            shipped = oracle.shipped(tier, drone)
            commands = oracle.random_commands(tier, shipped)
            theirs = oracle.their_flights(tier, drone, shipped, commands)
            ours = oracle.gap(oracle.our_flights(tier, shipped, commands), theirs)
            euler = oracle.gap(oracle.their_flights(tier, drone, shipped, commands, "euler"), theirs)
            found[f"{tier}/{drone}"] = {"testudo": asdict(ours), "crazyflow_euler": asdict(euler)}
            rows.append(
                (
                    tier,
                    drone,
                    f"{1e3 * ours.position_m:.4f}",
                    f"{np.degrees(ours.turn_rad):.4f}",
                    f"{1e3 * euler.position_m:.2f}",
                    f"{np.degrees(euler.turn_rad):.3f}",
                )
            )
    values["agreement"] = found
    title = "distance from crazyflow with its RK4 in float64 after 2 s at most; bar 1 mm, 0.1°"
    columns = ("tier", "drone", "ours [mm]", "ours [°]", "its Euler [mm]", "its Euler [°]")
    return (BenchResult(title, columns, rows, {}),)
