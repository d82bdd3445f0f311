"""Drift between physics tiers under the same commands from the same start."""

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from testudo_hardware.motion import MotionModel, MotionState
from testudo_hardware.motion.motion_model import effective_command
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import RobotSpec
from testudo_sim.physics.scene import Physics
from testudo_sim.physics.world_parameters import Channels, WorldParameters, draw_parameters

HORIZONS_S = (0.1, 0.25, 0.5, 1.0, 2.0)  # times after which the drift is measured
_HEIGHT_M = 5.0  # Start height of drones, well above the floor


@dataclass(frozen=True)
class TierDrift:
    """Distances between two tiers after one horizon, over all robots and worlds."""

    horizon_s: float
    position_median_m: float
    position_worst_m: float
    yaw_worst_rad: float


def profiles(spec: RobotSpec, duration_s: float) -> Mapping[str, np.ndarray]:
    """Return commands (T, D) of a robot by name: steps, a chirp and a figure-eight, within its limits."""
    time = np.arange(round(duration_s / spec.control_period_s)) * spec.control_period_s
    speed = spec.speed_limit_m_s
    rng = np.random.default_rng(0)
    levels = rng.uniform(-1, 1, (int(duration_s / 0.5) + 1, spec.dimension))
    steps = levels[(time / 0.5).astype(int)]
    # from 0.2 Hz up to 2 Hz at the end
    phase = 2 * np.pi * (0.2 * time + 0.9 * time**2 / duration_s)
    turn = 2 * np.pi * time / 4.0
    if spec.kind == DIFFERENTIAL_DRIVE:
        scale = np.array([speed, 0.5 * spec.turn_rate_limit_rad_s])
        eight_turn = min(0.5 * spec.turn_rate_limit_rad_s, 2.405 * 2 * np.pi / 4.0)
        found = {
            "steps": steps * scale,
            "chirp": np.stack([0.6 + 0.4 * np.sin(phase), np.cos(phase)], axis=1) * scale * 0.7,
            "eight": np.stack([0.6 * speed + 0 * time, eight_turn * np.cos(turn)], axis=1),
        }
    else:
        found = {
            "steps": steps * speed / np.sqrt(spec.dimension),
            "chirp": np.stack([np.sin(phase), np.cos(phase), 0.3 * np.sin(2 * phase)], axis=1) * 0.6 * speed,
            "eight": np.stack([np.cos(turn), np.cos(2 * turn), 0.2 * np.sin(turn)], axis=1) * 0.6 * speed,
        }
    return {name: values[:, : spec.dimension].astype(np.float32) for name, values in found.items()}


def sent_commands(model: MotionModel, commands: np.ndarray) -> jax.Array:
    """Return the effective commands (T, D, 1, 1) of commands (T, D), clipped as the driver does."""

    @jax.jit
    def clipped(values: jax.Array) -> jax.Array:  # one program, not one an operation; so below
        return jnp.moveaxis(effective_command(model, values), 1, 0)

    return clipped(np.asarray(commands).T[:, :, None, None])


def single_start(spec: RobotSpec, worlds: int) -> MotionState:
    """Return one robot at rest in each world."""
    place = np.zeros((spec.dimension, 1, worlds), np.float32)
    place[2:] = _HEIGHT_M
    start = MotionState(place, np.zeros((1, worlds), np.float32), np.zeros_like(place))
    return jax.tree.map(jax.device_put, start)


def drawn_worlds(spec: RobotSpec, worlds: int, seed: int = 0, spread: float = 1.0) -> WorldParameters:
    """Return parameters drawn from the robot's whole intervals, or from this share of them."""
    draw = jax.jit(lambda keys: draw_parameters(keys, spec, Channels(), spread))
    return draw(jax.random.split(jax.random.key(seed), worlds))


def run_commands(physics: Physics, start: MotionState, sent: jax.Array, parameters: WorldParameters) -> MotionState:
    """Return the motion (T, ...) of robots from ``start`` under effective commands ``sent`` (T, D, N, E)."""

    def tick(carry: tuple, command: jax.Array) -> tuple:
        state, past = carry
        past = jnp.concatenate([command[None], past[:-1]])
        state = physics.advance(state, past, parameters)
        return (state, past), physics.scene(state).robots

    @jax.jit
    def drive(start: MotionState, sent: jax.Array) -> MotionState:
        history = jnp.zeros((parameters.delay_weights.shape[0], *start.position_world.shape))
        sent = jnp.broadcast_to(sent, (*sent.shape[:2], *start.yaw.shape))
        begin = (physics.reset(start.position_world, start.yaw, None), history)
        return jax.lax.scan(tick, begin, sent)[1]

    return drive(start, sent)


def compare(reference: MotionState, other: MotionState, period_s: float) -> list[TierDrift]:
    """Return the drift of motions (T, ...) at each horizon that they reach."""
    found = []
    for horizon in HORIZONS_S:
        index = round(horizon / period_s) - 1
        if index >= len(reference.yaw):
            break
        offset = np.asarray(other.position_world[index] - reference.position_world[index])
        distance = np.sqrt((offset**2).sum(axis=0))
        turned = np.asarray(other.yaw[index] - reference.yaw[index])
        turned = np.abs(np.arctan2(np.sin(turned), np.cos(turned)))
        found.append(TierDrift(horizon, float(np.median(distance)), float(distance.max()), float(turned.max())))
    return found
