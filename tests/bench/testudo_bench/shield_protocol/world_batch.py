"""Worlds of a batch: starts, goals and faults of episodes, as arrays."""

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from testudo_bench.shield_protocol.compiled_setting import ROOM, CompiledStage, circle_m, door_places, ticks
from testudo_bench.shield_protocol.protocol_cell import OTHERS, Claim, Formation, ProtocolCell, Rule
from testudo_hardware.motion.rotor_drone import GRAVITY_M_S2
from testudo_sim.team.fault_schedule import FALSE_SENDER, FIELDS, NEVER, Faults, RadioLoss
from testudo_sim.team.message_radio import peer_numbers

_JITTER_M = 0.02
_SIDE_M = 0.05  # Largest lateral offset of two robots that meet head-on


@dataclass(frozen=True)
class Start:
    """Starts and goals of one world."""

    position_world: np.ndarray  # (D, N) [m]
    goal_world: np.ndarray  # (D, N) [m]
    yaw: np.ndarray  # (N,) [rad]


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
    place = _jittered(_circle(stage, random.uniform(0, 2 * math.pi)), random)
    return place, -place


def _jittered(place: np.ndarray, random: np.random.Generator) -> np.ndarray:
    return place + random.normal(0, _JITTER_M, place.shape).clip(-2 * _JITTER_M, 2 * _JITTER_M)


def _aside(stage: CompiledStage, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return a swap of all robots but one of any rank, which stands at least two lanes outside of the circle."""
    size = stage.team.size
    one, angle = random.integers(size), random.uniform(0, 2 * math.pi)
    reach = circle_m(size - 1, stage.team.shield.separation_m)
    turn = angle + 2 * math.pi * np.arange(size - 1) / (size - 1)
    place = _jittered(reach * np.stack([np.cos(turn), np.sin(turn)]), random)
    half = stage.team.arena.high_world[0] - stage.wall_m - 0.01
    stands = np.zeros(2)
    while np.linalg.norm(stands) < reach + 2 * stage.apart_m:
        stands = random.uniform(-half, half, 2)
    return np.insert(place, one, stands, axis=1), np.insert(-place, one, stands, axis=1)


def _blocks(stage: CompiledStage, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    place, _ = _swap(stage, random)
    return ROOM * place, -ROOM * place


def _head_on(stage: CompiledStage, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    place = _circle(stage, 0.0)
    beside = random.uniform(-_SIDE_M, _SIDE_M, place.shape[1])
    goal = np.stack([-place[0], place[1] + beside])
    return np.stack([place[0], place[1] + beside]), goal


def _crossing(stage: CompiledStage, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return positions on a grid in the box; each goal is another robot's start."""
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
    """Return two queues that meet in the corridor; each goal is at the other end."""
    size = stage.team.size
    first = np.arange(size) % 2 == 0
    rank = np.arange(size) // 2
    along = 0.8 + 1.1 * stage.apart_m * rank
    beside = random.uniform(-1, 1, size) * (stage.team.arena.high_world[1] - stage.wall_m - 0.01)
    place = np.stack([np.where(first, along, -along), beside])
    return place, np.stack([-place[0], random.permutation(beside)])


def _doorway(stage: CompiledStage, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return every other robot on the other side of the door, and goals on the places that are free at the start."""
    size = stage.team.size
    left = door_places(Formation.DOORWAY, size, stage.apart_m)
    sides = (left, left * [[-1.0], [1.0]])
    orders = [random.permutation(size) for _ in sides]
    place, goal = np.empty((2, size)), np.empty((2, size))
    for side in (0, 1):
        mine = np.arange(side, size, 2)
        place[:, mine] = sides[side][:, orders[side][: len(mine)]]
        goal[:, mine] = sides[1 - side][:, orders[1 - side][::-1][: len(mine)]]
    return _jittered(place, random), goal


def _one_way(stage: CompiledStage, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    left = door_places(Formation.ONE_WAY, stage.team.size, stage.apart_m)
    order = random.permutation(stage.team.size)
    return _jittered(left[:, random.permutation(stage.team.size)], random), left[:, order] * [[-1.0], [1.0]]


def _vertical(stage: CompiledStage, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return two positions, one above the other with or without offset; they exchange heights."""
    half = max(1.0, 0.55 * stage.apart_m * stage.team.shield.height_ratio)
    beside = random.uniform(-_SIDE_M, _SIDE_M, (2, 2)) * random.integers(0, 2)
    place = np.concatenate([beside, half * np.array([[1.0, -1.0]])])
    return place, np.concatenate([beside, -place[2:]])


def _stacked(stage: CompiledStage, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return positions of which every other one hovers above the centre, and the others pass below."""
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
    Formation.ASIDE: _aside,
    Formation.CROSSING: _crossing,
    Formation.CORRIDOR: _corridor,
    Formation.DOORWAY: _doorway,
    Formation.ONE_WAY: _one_way,
    Formation.BLOCKS: _blocks,
    Formation.VERTICAL: _vertical,
    Formation.STACKED: _stacked,
}


_LINGER_S = 1.0  # Time for which an episode continues after arrival
_FALSE_OFFSET_M = 0.7
_SHORTEST_PAUSE = 2
_JUMP_S = 1.0


@dataclass(frozen=True)
class CellEpisode:
    """One episode of a cell."""

    cell: ProtocolCell
    number: int

    def random(self) -> np.random.Generator:
        """Return its random generator, independent of the batch."""
        return np.random.default_rng([zlib.crc32(self.pair.encode()), self.number])

    @property
    def pair(self) -> str:
        """Return the name that a control shares with its twin, so that both have the same worlds."""
        return self.cell.twin or self.cell.name


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Batch:
    """Initial state and parameters of E worlds."""

    position_world: jax.Array  # (D, N, E) [m]
    goal_world: jax.Array  # (D, N, E) [m]
    yaw: jax.Array  # (N, E) [rad]
    seed: jax.Array  # (E,) uint32: seed of the dynamics
    loss: jax.Array  # (E,) probability
    brake_share: jax.Array  # (E,)
    resolves: jax.Array  # (E,) bool
    rule: jax.Array  # (E,) int: index in `OTHERS`, -1 for the shield's rule
    hold_s: jax.Array  # (E,): hold time of commands in layer 1
    horizon: jax.Array  # (E,) int: ticks
    linger: jax.Array  # (E,) int: ticks after the arrival
    hostile: jax.Array  # (N, E) bool
    gone: jax.Array  # (N, E) bool: permanently lost, so that it cannot arrive
    faults: Faults


def draw_batch(stage: CompiledStage, episodes: Sequence[CellEpisode]) -> Batch:
    """Return the worlds of the episodes."""
    worlds = [_draw_world(stage, episode) for episode in episodes]
    return jax.tree.map(lambda *parts: jnp.asarray(np.stack(parts, axis=-1)), *worlds)


def _draw_world(stage: CompiledStage, episode: CellEpisode) -> Batch:
    """Return one world: the arrays of `Batch` without their last axis."""
    cell, random, spec = episode.cell, episode.random(), stage.spec
    start = draw_start(stage, cell.formation, random)
    size = cell.size
    last = np.arange(size) == size - 1
    hostile = last & (cell.conditions.hostile_kind > 0)
    hold = stage.team.shield.hold_s if cell.conditions.rule is not Rule.ONE_TICK else spec.control_period_s
    faults = _draw_faults(stage, cell, random, start)
    other = OTHERS.index(cell.conditions.rule) if cell.conditions.rule in OTHERS else -1
    linger = cell.horizon_s if cell.claim is Claim.HOSTILE or cell.killed else _LINGER_S
    return Batch(
        np.float32(start.position_world),
        np.float32(start.goal_world),
        np.float32(start.yaw),
        np.uint32(random.integers(1 << 32)),
        np.float32(cell.conditions.loss),
        np.float32(cell.conditions.brake_share),
        np.bool_(cell.resolves and cell.conditions.rule is not Rule.NONE),  # no shield, no rule beside it
        np.int32(other),
        np.float32(hold),
        np.int32(ticks(cell.horizon_s, spec)),
        np.int32(ticks(linger, spec)),
        hostile,
        _gone(faults),
        faults,
    )


def _gone(faults: Faults) -> np.ndarray:
    """Return which robots (N,) are permanently lost: process killed, or radio link lost."""
    gone = (faults.dead_from < NEVER) & (faults.dead_until == NEVER)
    if faults.radio is None:
        return gone
    return gone | ((faults.radio.lost_from < NEVER) & (faults.radio.lost_until == NEVER))


def _draw_faults(stage: CompiledStage, cell: ProtocolCell, random: np.random.Generator, start: Start) -> Faults:
    wrong, spec, size = cell.conditions, stage.spec, cell.size
    still = int(np.argmin(np.linalg.norm(start.goal_world - start.position_world, axis=0)))
    aside = cell.formation is Formation.ASIDE
    # disturbances begin while the robots meet, around half of the travel time at full speed
    mover = (still + 1) % size if aside else 0
    travel_s = np.linalg.norm(start.position_world[:, mover]) / spec.control_point_speed_m_s
    begin = ticks(random.uniform(0.3, 1.5) * travel_s, spec)
    blackout = np.array([begin, begin + ticks(wrong.blackout_s, spec)]) if wrong.blackout_s else np.full(2, NEVER)
    jump = wrong.jump_m > 0 or wrong.jump_rad > 0
    heading = random.normal(size=spec.dimension)
    heading = heading / np.linalg.norm(heading)
    dead, back = np.full(size, NEVER), np.full(size, NEVER)
    affected = size - 1 if wrong.hostile_kind else still if aside else random.integers(size)
    if wrong.dead_s:
        dead[affected] = begin
        back[affected] = NEVER if cell.killed else begin + ticks(wrong.dead_s, spec)
    delay = max(1, ticks(wrong.message_s, spec))
    lag = delay if wrong.message_s else 1
    driver = stage.dead_man_ticks if wrong.driver_s is None else ticks(wrong.driver_s, spec)
    return Faults(
        phase=np.int32(random.integers(0, wrong.stride, size)),
        late_chance=np.float32(wrong.late_chance),
        late_ticks=np.int32([_SHORTEST_PAUSE, wrong.late_periods]) * wrong.stride,
        dead_from=np.int32(dead),
        dead_until=np.int32(back),
        driver_ticks=np.int32(driver),
        link_loss=np.float32(wrong.one_way_loss * (peer_numbers(size) == size - 1)),
        message_ticks=np.int32([min(lag, max(1, delay - 2)), delay]),
        blackout=np.int32(blackout),
        jump=np.int32([begin, begin + ticks(_JUMP_S, spec)] if jump else [NEVER, NEVER]),
        jump_world=np.float32(wrong.jump_m * heading),
        jump_yaw=np.float32(wrong.jump_rad * random.choice([-1, 1])),
        hostile_kind=np.int32(wrong.hostile_kind),
        false_offset_world=np.float32((_FALSE_OFFSET_M if wrong.hostile_kind == FALSE_SENDER else 0.0) * heading),
        false_fields=np.array([field in wrong.false_fields for field in FIELDS]),
        blind_tracking=np.bool_(wrong.blind_tracking),
        blind_age=np.bool_(wrong.blind_age),
        blind_take=np.bool_(wrong.blind_take),
        radio=_draw_radio(stage, cell, random, begin) if spec.silence else None,
    )


def _draw_radio(stage: CompiledStage, cell: ProtocolCell, random: np.random.Generator, begin: int) -> RadioLoss:
    """Return the lost set-points of drones, and their reaction; ``begin`` is a tick."""
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
