"""Where the robots of a formation start, which way they face, and where they want to go."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from testudo_bench.shield_protocol.compiled_setting import CompiledStage, circle_m
from testudo_bench.shield_protocol.obstacle_ring import ROOM
from testudo_bench.shield_protocol.protocol_cell import Formation

_JITTER_M = 0.02
_SIDE_M = 0.05
"""Largest distance by which two robots miss each other's line when they meet head-on."""


@dataclass(frozen=True)
class Start:
    """One world at its start."""

    position_world: np.ndarray
    """(D, N) [m]."""
    goal_world: np.ndarray
    """(D, N) [m]."""
    yaw: np.ndarray
    """(N,) [rad]."""


def draw_start(stage: CompiledStage, formation: Formation, random: np.random.Generator) -> Start:
    """Return a random start of a formation; robots are at least `CompiledStage.apart_m` apart."""
    place, goal = _PLACES[formation](stage, random)
    yaw = np.arctan2(goal[1] - place[1], goal[0] - place[0])
    if formation is not Formation.SYMMETRIC:
        yaw = yaw + random.uniform(-0.3, 0.3, yaw.shape)
    if place.shape[0] == stage.spec.dimension:
        return Start(place, goal, np.zeros_like(yaw))
    missing = stage.spec.dimension - 2
    high = np.zeros((missing, place.shape[1]))
    if formation is not Formation.SYMMETRIC:
        high = random.uniform(-_JITTER_M, _JITTER_M, high.shape)
    return Start(
        np.concatenate([place, high]), np.concatenate([goal, -high]), yaw if missing == 0 else np.zeros_like(yaw)
    )


def _circle(stage: CompiledStage, turn_rad: float) -> np.ndarray:
    size = stage.team.size
    angle = turn_rad + 2 * math.pi * np.arange(size) / size
    return circle_m(size, stage.team.shield.separation_m) * np.stack([np.cos(angle), np.sin(angle)])


def _symmetric(stage: CompiledStage, _: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    place = _circle(stage, 0.0)
    return place, -place


def _swap(stage: CompiledStage, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    place = _circle(stage, random.uniform(0, 2 * math.pi))
    place = place + random.normal(0, _JITTER_M, place.shape).clip(-2 * _JITTER_M, 2 * _JITTER_M)
    return place, -place


def _blocks(stage: CompiledStage, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    place, _ = _swap(stage, random)
    return ROOM * place, -ROOM * place


def _head_on(stage: CompiledStage, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    place = _circle(stage, 0.0)
    beside = random.uniform(-_SIDE_M, _SIDE_M, place.shape[1])
    goal = np.stack([-place[0], place[1] + beside])
    return np.stack([place[0], place[1] + beside]), goal


def _crossing(stage: CompiledStage, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return places of a grid in the box; everyone goes to another's place."""
    size = stage.team.size
    half = stage.team.arena.high_world[0] - stage.wall_m - 0.01
    side = math.ceil(math.sqrt(size))
    pitch = 2 * half / (side - 1)
    across, up = np.meshgrid(np.linspace(-half, half, side), np.linspace(-half, half, side))
    chosen = random.permutation(side * side)[:size]
    place = np.stack([across.ravel()[chosen], up.ravel()[chosen]])
    room = max(0.0, (pitch - stage.apart_m) / 2)
    inward = np.clip(place + random.uniform(-room, room, place.shape), -half, half)
    order = (np.arange(size) + random.integers(1, size)) % size
    return inward, inward[:, order]


def _corridor(stage: CompiledStage, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return two queues that meet in the corridor, each on its way to the other end."""
    size = stage.team.size
    first = np.arange(size) % 2 == 0
    rank = np.arange(size) // 2
    along = 0.8 + 1.1 * stage.apart_m * rank
    beside = random.uniform(-1, 1, size) * (stage.team.arena.high_world[1] - stage.wall_m - 0.01)
    place = np.stack([np.where(first, along, -along), beside])
    return place, np.stack([-place[0], random.permutation(beside)])


def _vertical(stage: CompiledStage, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return two places one above the other, nearly or exactly; each goes to the height of the other."""
    half = max(1.0, 0.55 * stage.apart_m * stage.team.shield.height_ratio)
    beside = random.uniform(-_SIDE_M, _SIDE_M, (2, 2)) * random.integers(0, 2)
    place = np.concatenate([beside, half * np.array([[1.0, -1.0]])])
    return place, np.concatenate([beside, -place[2:]])


def _stacked(stage: CompiledStage, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return places of which every other one is a hover above the middle, and the others pass below it."""
    size, reach = stage.team.size, circle_m(stage.team.size, stage.team.shield.separation_m)
    row = 1.05 * stage.apart_m * (np.arange(size) // 2 - (size // 2 - 1) / 2)
    below = 0.6 * stage.apart_m * stage.team.shield.height_ratio
    hovers = np.arange(size) % 2 == 0
    place = np.stack([np.where(hovers, 0.0, -reach), row, np.where(hovers, below / 2, -below / 2)])
    place[:2] += random.uniform(-_JITTER_M, _JITTER_M, (2, size))
    goal = np.where(hovers, place, place * np.array([[-1.0], [1.0], [1.0]]))
    return place, goal


_PLACES = {
    Formation.HEAD_ON: _head_on,
    Formation.SYMMETRIC: _symmetric,
    Formation.SWAP: _swap,
    Formation.CROSSING: _crossing,
    Formation.CORRIDOR: _corridor,
    Formation.BLOCKS: _blocks,
    Formation.VERTICAL: _vertical,
    Formation.STACKED: _stacked,
}
