"""`testudo bench tiers`: drift between physics tiers under the same commands."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from testudo_bench.accuracy.tier_drift import (
    HORIZONS_S,
    TierDrift,
    compare,
    drawn_worlds,
    profiles,
    run_commands,
    sent_commands,
    single_start,
)
from testudo_deploy.commands.report import BenchResult
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import MotionModel, MotionState, motion_model
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import RobotSpec, load_robot, robot_files
from testudo_policies.evaluation.policy_under_test import PolicyUnderTest, load_policy_under_test
from testudo_sim.physics.world_parameters import WorldParameters
from testudo_sim.physics_choice import PhysicsChoice, make_physics
from testudo_sim.team.team_tick import tick

_DURATION_S = max(HORIZONS_S) + 0.1
_POLICY = "policy"
_SHOWN = (0, 2, 3, 4)  # Horizons in the table, which must fit a terminal; the JSON has all

Signal = tuple[MotionState, jax.Array, WorldParameters]
"""Start, effective commands (T, D, N, E) and parameters of one test signal."""


def bench_tiers(
    *,
    robot: str | None = None,
    policy: Path | None = None,
    worlds: int = 16,
    say: Callable[[str], None] = lambda _: None,
) -> BenchResult:
    """Apply steps, a chirp, a figure-eight and commands of a trained team to all tiers, from the same start.

    Lag, delay, scale, friction and mass are drawn from the robot's intervals, equal for all tiers. The kinematic tier
    is the reference. The policy's commands are the shielded commands of a team in `navigation`.

    Args:
        robot: registered robot; default: all.
        policy: policy file or training run, for the commands of a trained team of its robot.
        worlds: number of parameter draws.
        say: called with progress messages.

    Raises:
        TestudoError: the robot or policy is unknown, or ``worlds`` is below 1.
    """
    if worlds < 1:
        raise TestudoError(f"--worlds: found {worlds}, expected at least 1")
    tested = load_policy_under_test(policy) if policy else None
    names = [robot] if robot else sorted(robot_files())
    found = [
        (name, tier, signal, drift)
        for name in names
        for tier, signal, drift in _robot_drifts(load_robot(name), tested, worlds, say)
    ]
    if not found:
        raise TestudoError(
            f"--policy: found a policy for {tested.spec.name if tested else 'no robot'}, expected {robot}"
        )
    rows = [
        (
            name,
            tier,
            signal,
            *((f"{1e3 * drift[at].position_worst_m:.2f}" if at < len(drift) else "") for at in _SHOWN),
            f"{np.degrees(max(one.yaw_worst_rad for one in drift)):.2f}",
        )
        for name, tier, signal, drift in found
    ]
    columns = ("robot", "tier", "signal", *(f"{HORIZONS_S[at]:g} s" for at in _SHOWN), "turn [°]")
    values = {
        "reference": "kinematic",
        "worlds": worlds,
        "horizons_s": list(HORIZONS_S),
        "device": jax.devices()[0].device_kind,
        "drift": [
            {"robot": name, "tier": tier, "signal": signal, "by_horizon": [asdict(one) for one in drift]}
            for name, tier, signal, drift in found
        ],
    }
    return BenchResult("largest distance from the kinematic tier [mm]", columns, rows, values)


def _robot_drifts(
    spec: RobotSpec, tested: PolicyUnderTest | None, worlds: int, say: Callable[[str], None]
) -> Iterator[tuple[str, str, list[TierDrift]]]:
    """Yield tier, signal and drift by horizon."""
    model = motion_model(spec)
    start, parameters = single_start(model.spec, worlds), drawn_worlds(model.spec, worlds)
    signals = {
        name: (start, sent_commands(model, commands), parameters)
        for name, commands in profiles(model.spec, _DURATION_S).items()
    }
    if tested and tested.spec.name == spec.name:
        say(f"{spec.name}: commands of the policy")
        signals = {**signals, _POLICY: _policy_signal(tested, worlds)}
    reference = {name: _drive(PhysicsChoice(), model, signal) for name, signal in signals.items()}
    # every tier of a robot except the kinematic one; the form matters for wheels only
    forms = ("planar", "wheels") if spec.kind == DIFFERENTIAL_DRIVE else ("wheels",)
    flown = [PhysicsChoice("attitude")] if spec.attitude else []
    flown += [PhysicsChoice("rotors")] if spec.attitude and spec.rotors else []
    for choice in flown + [PhysicsChoice(tier, form) for tier in ("mjx", "mujoco") for form in forms]:
        tier = f"{choice.physics} {choice.form}" if spec.kind == DIFFERENTIAL_DRIVE else choice.physics
        for name, signal in signals.items():
            say(f"{spec.name}: {tier}, {name}")
            drift = compare(reference[name], _drive(choice, model, signal), spec.control_period_s)
            yield tier, name, drift


def _policy_signal(tested: PolicyUnderTest, worlds: int) -> Signal:
    """Return the shielded commands of a trained team on the kinematic tier."""
    environment = tested.environment(tested.team_size)
    size, scenario = environment.team.size, environment.scenario
    world = environment.reset(jax.random.split(jax.random.key(0), worlds))
    first, state = environment.scene(world).robots, world.team
    hidden = jnp.zeros((worlds * size, tested.memory))
    sent = []
    step = jax.jit(lambda team, nominal, key: tick(environment.team, team, nominal, key)[0])
    for index in range(round(_DURATION_S / environment.team.model.spec.control_period_s)):
        if index % scenario.decision_ticks == 0:
            named = environment.signals(replace(world, team=state))
            flat = {name: value.reshape(-1, *value.shape[2:]) for name, value in named.items()}
            velocity, hidden = tested.policy(flat, hidden)
            nominal = jnp.transpose(jnp.asarray(velocity).reshape(worlds, size, -1), (2, 1, 0))
        state = step(state, nominal, jax.random.fold_in(jax.random.key(1), index))
        sent.append(state.sent[0])
    return first, jnp.stack(sent), state.parameters


def _drive(choice: PhysicsChoice, model: MotionModel, signal: Signal) -> MotionState:
    start, sent, parameters = signal
    # without walls, which do not change the motion of a robot that touches none
    physics = make_physics(choice, model, None, start.yaw.shape[0])
    return run_commands(physics, start, sent, parameters)
