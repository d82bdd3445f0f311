"""Worlds of a batch: starts, goals and faults of single episodes, side by side as arrays."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from testudo_bench.shield_protocol.compiled_setting import CompiledStage, ticks
from testudo_bench.shield_protocol.formations import draw_start
from testudo_bench.shield_protocol.protocol_cell import OTHERS, Claim, ProtocolCell, Rule
from testudo_hardware.motion.rotor_drone import GRAVITY_M_S2
from testudo_sim.team.fault_schedule import LIAR, NEVER, Faults, RadioLoss

_LINGER_S = 1.0
"""An episode goes on for so long after the arrival."""
_LIE_M = 0.7
_SHORTEST_PAUSE = 2
_JUMP_S = 1.0


@dataclass(frozen=True)
class CellEpisode:
    """One episode of a cell."""

    cell: ProtocolCell
    number: int

    def random(self) -> np.random.Generator:
        """Return its source of randomness, whatever batch it is in."""
        return np.random.default_rng([zlib.crc32(self.pair.encode()), self.number])

    @property
    def pair(self) -> str:
        """Return the name that a control shares with its twin, so that both meet the same worlds."""
        return self.cell.twin or self.cell.name


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Batch:
    """What the worlds E begin with."""

    position_world: jax.Array
    """(D, N, E) [m]."""
    goal_world: jax.Array
    """(D, N, E) [m]."""
    yaw: jax.Array
    """(N, E) [rad]."""
    seed: jax.Array
    """(E,) uint32: draws the dynamics."""
    loss: jax.Array
    """(E,) probability."""
    brake_share: jax.Array
    """(E,)."""
    resolves: jax.Array
    """(E,) bool."""
    rule: jax.Array
    """(E,) int: place in `OTHERS`, -1 for ours."""
    hold_s: jax.Array
    """(E,): how long layer 1 takes a command to act."""
    horizon: jax.Array
    """(E,) int: ticks."""
    linger: jax.Array
    """(E,) int: ticks after the arrival."""
    hostile: jax.Array
    """(N, E) bool."""
    gone: jax.Array
    """(N, E) bool: never comes back, so that it cannot arrive."""
    faults: Faults


def draw_batch(stage: CompiledStage, episodes: Sequence[CellEpisode]) -> Batch:
    """Return the worlds of the episodes."""
    worlds = [_draw_world(stage, episode) for episode in episodes]
    return jax.tree.map(lambda *parts: jnp.asarray(np.stack(parts, axis=-1)), *worlds)


def _draw_world(stage: CompiledStage, episode: CellEpisode) -> Batch:
    """Return one world; the same arrays without their last axis."""
    cell, random, spec = episode.cell, episode.random(), stage.spec
    start = draw_start(stage, cell.formation, random)
    size = cell.size
    last = np.arange(size) == size - 1
    hostile = last & (cell.conditions.stranger > 0)
    hold = stage.team.shield.hold_s if cell.conditions.rule is not Rule.ONE_TICK else spec.control_period_s
    faults = _draw_faults(stage, cell, random, start.position_world)
    other = OTHERS.index(cell.conditions.rule) if cell.conditions.rule in OTHERS else -1
    linger = cell.horizon_s if cell.claim is Claim.HOSTILE or cell.killed else _LINGER_S
    return Batch(
        np.float32(start.position_world),
        np.float32(start.goal_world),
        np.float32(start.yaw),
        np.uint32(random.integers(1 << 32)),
        np.float32(cell.conditions.loss),
        np.float32(cell.conditions.brake_share),
        np.bool_(cell.resolves),
        np.int32(other),
        np.float32(hold),
        np.int32(ticks(cell.horizon_s, spec)),
        np.int32(ticks(linger, spec)),
        hostile,
        _gone(faults),
        faults,
    )


def _gone(faults: Faults) -> np.ndarray:
    """Return which robots (N,) never come back: process dead, or radio lost, for ever."""
    gone = (faults.dead_from < NEVER) & (faults.dead_until == NEVER)
    if faults.radio is None:
        return gone
    return gone | ((faults.radio.lost_from < NEVER) & (faults.radio.lost_until == NEVER))


def _draw_faults(
    stage: CompiledStage, cell: ProtocolCell, random: np.random.Generator, position_world: np.ndarray
) -> Faults:
    wrong, spec, size = cell.conditions, stage.spec, cell.size
    # what goes wrong at a moment goes wrong while the robots meet, half of the way at full speed
    way = np.linalg.norm(position_world[:, 0]) / spec.control_point_speed_m_s
    begin = ticks(random.uniform(0.3, 1.5) * way, spec)
    blackout = np.array([begin, begin + ticks(wrong.blackout_s, spec)]) if wrong.blackout_s else np.full(2, NEVER)
    jump = wrong.jump_m > 0 or wrong.jump_rad > 0
    heading = random.normal(size=spec.dimension)
    heading = heading / np.linalg.norm(heading)
    dead, back = np.full(size, NEVER), np.full(size, NEVER)
    who = size - 1 if wrong.stranger else random.integers(size)
    if wrong.dead_s:
        dead[who] = begin
        back[who] = NEVER if cell.killed else begin + ticks(wrong.dead_s, spec)
    delay = max(1, ticks(wrong.message_s, spec))
    lag = delay if wrong.message_s else 1
    peers = (np.arange(size) + 1 + np.arange(size - 1)[:, None]) % size
    driver = stage.dead_man_ticks if wrong.driver_s is None else ticks(wrong.driver_s, spec)
    return Faults(
        phase=np.int32(random.integers(0, wrong.stride, size)),
        late_chance=np.float32(wrong.late_chance),
        late_ticks=np.int32([_SHORTEST_PAUSE, wrong.late_periods]) * wrong.stride,
        dead_from=np.int32(dead),
        dead_until=np.int32(back),
        driver_ticks=np.int32(driver),
        link_loss=np.float32(wrong.one_way_loss * (peers == size - 1)),
        message_ticks=np.int32([min(lag, max(1, delay - 2)), delay]),
        blackout=np.int32(blackout),
        jump=np.int32([begin, begin + ticks(_JUMP_S, spec)] if jump else [NEVER, NEVER]),
        jump_world=np.float32(wrong.jump_m * heading),
        jump_yaw=np.float32(wrong.jump_rad * random.choice([-1, 1])),
        stranger=np.int32(wrong.stranger),
        lie_world=np.float32((_LIE_M if wrong.stranger == LIAR else 0.0) * heading),
        blind_age=np.bool_(wrong.blind_age),
        blind_take=np.bool_(wrong.blind_take),
        radio=_draw_radio(stage, cell, random, begin) if spec.silence else None,
    )


def _draw_radio(stage: CompiledStage, cell: ProtocolCell, random: np.random.Generator, begin: int) -> RadioLoss:
    """Return which set-points are lost on the way to drones, and what those do then; ``begin`` is a tick."""
    wrong, spec, size = cell.conditions, stage.spec, cell.size
    silence = {key.removeprefix("silence."): quantity for key, quantity in spec.silence.items()}
    brakes = spec.brakes_in_silence if wrong.really_brakes is None else wrong.really_brakes
    hold_s = spec.dead_man_s if brakes else silence["level_after"].value
    lost = np.full(size, wrong.radio_of_all) | (np.arange(size) == random.integers(size))
    start = np.where(lost & (wrong.radio_lost_s > 0), begin, NEVER)
    end = NEVER if math.isinf(wrong.radio_lost_s) else begin + ticks(wrong.radio_lost_s, spec)
    angle = random.uniform(0, 2 * math.pi, size)
    drift = GRAVITY_M_S2 * silence["level_error"].high * np.stack([np.cos(angle), np.sin(angle)])
    return RadioLoss(
        burst_chance=np.float32(wrong.radio_chance),
        burst_ticks=np.int32(ticks(wrong.radio_burst_s, spec)),
        lost_from=np.int32(start),
        lost_until=np.int32(np.where(start < NEVER, end, NEVER)),
        brakes=np.bool_(brakes),
        hold_ticks=np.int32(ticks(hold_s, spec, rounding=math.floor) + 1),
        cut_ticks=np.int32(ticks(silence["cut_after"].value, spec) + 1),
        drag_per_s=np.float32(random.uniform(silence["coast_drag"].low, silence["coast_drag"].high)),
        drift_m_s2=np.float32(drift),
    )
