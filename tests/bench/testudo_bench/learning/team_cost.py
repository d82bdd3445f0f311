"""Cost of a team's shields by team size: build, check and step; compared with one joint problem."""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from testudo_deploy.admission.safety_contract_rules import check_fleet
from testudo_deploy.admission.safety_contracts import Obligation, obligation
from testudo_deploy.contract.contract import Contract
from testudo_deploy.contract.rules import check_robot
from testudo_deploy.shield.projection_margins import ProjectionParameters, projection_parameters
from testudo_deploy.shield.stop_tube import stop_tube_parameters
from testudo_deploy.shield.velocity_projection import PeerTable, pair_rows, project_velocity
from testudo_hardware.motion import MotionModel, MotionState, StoppingPoint, motion_model
from testudo_hardware.spec import RobotSpec, load_robot
from testudo_policies.exporting.packaging import make_contract
from testudo_policies.learning.builder import build
from testudo_policies.train_config import TrainConfig
from testudo_sim.physics.kinematic_tier import KinematicPhysics
from testudo_sim.physics.world_parameters import draw_parameters
from testudo_sim.team.team_tick import SimulatedTeam, start, tick

SIZES = (2, 4, 8, 16, 32, 64)
_ROBOTS = 2048  # Robots in all parallel worlds, for every team size
_TICKS = 20
_SCENES, _CALLS = 9, 200
_SPACING, _JITTER = 1.15, 0.15
"""Grid of the robots, as multiples of the separation: no start violates it, and many rows are active."""


@dataclass(frozen=True)
class Cost:
    """The cost of one team; times are medians."""

    team_size: int
    build_ms: float  # build time of all robots: margins of all layers, contract check and safety contract
    check_fleet_ms: float
    rows_of_a_robot: int
    """Rows of one robot's projection: nearest neighbours and own limits; other robots give one speed limit."""
    robot_us: float  # Time of layer 1 of one robot in NumPy, as on the robot's computer
    compile_s: float  # Compilation time of the simulation of this team size
    robot_ticks_per_s: float  # Robot-ticks per second of the simulation with layer 1 at every tick
    joint_rows: int  # Rows of one problem for the whole team
    joint_us: float | None  # Time to solve it with quadprog; None if quadprog is not installed
    change_m_s: float  # Root mean square change of commands by separate shields
    joint_change_m_s: float | None  # the same for the joint problem, which is the minimum under the same pair limits


@dataclass(frozen=True)
class Crowd:
    """Robots on an open floor, each with its table of all others."""

    stop: StoppingPoint  # (D, N)
    table: PeerTable  # (D, N-1, N)
    nominal_world: np.ndarray  # (D, N) [m/s]


def team_cost(robot: str, contract: Contract, size: int, ticks: int = _TICKS) -> Cost:
    """Measure one team size; ``contract`` is that of `study_contract`, ``ticks`` are those of one timed run."""
    spec = load_robot(robot)
    model, shield = motion_model(spec), projection_parameters(spec)
    build_s, fleet = _timed(lambda: _build_fleet(robot, contract, size))
    check_s, _ = _timed(lambda: check_fleet(fleet))
    crowds = [draw_crowd(model, shield, size, seed) for seed in range(_SCENES)]
    own = [_solve_separately(model, shield, crowd) for crowd in crowds]
    joint = [solve_jointly(model, shield, crowd) for crowd in crowds]
    compile_s, rate = _stepping(spec, model, shield, size, ticks)
    changes = [
        np.mean(np.sum((velocity - crowd.nominal_world) ** 2, axis=0))
        for crowd, velocity in zip(crowds, own, strict=True)
    ]
    solved = [one for one in joint if one.velocity_world is not None]
    least = [
        np.mean(np.sum((one.velocity_world - crowd.nominal_world) ** 2, axis=0))
        for crowd, one in zip(crowds, joint, strict=True)
        if one.velocity_world is not None
    ]
    limits = model.limit_rows(crowds[0].stop)
    rows = min(size - 1, shield.neighbour_rows) + (0 if limits is None else limits[1].shape[0])
    return Cost(
        size,
        1e3 * build_s,
        1e3 * check_s,
        rows,
        1e6 * _one_robot_s(model, shield, crowds[0]),
        compile_s,
        rate,
        joint[0].rows,
        1e6 * statistics.median(one.seconds for one in solved) if solved else None,
        float(np.sqrt(np.mean(changes))),
        float(np.sqrt(np.mean(least))) if least else None,
    )


def study_contract(robot: str) -> Contract:
    """Return the contract of a `navigation` policy for this robot."""
    return make_contract(build(TrainConfig(robot=robot)), [])


def draw_crowd(model: MotionModel, shield: ProjectionParameters, size: int, seed: int) -> Crowd:
    """Return robots on a jittered grid with random nominal velocities at full speed; all keep the separation."""
    random, dimension = np.random.default_rng(seed), model.spec.dimension
    side = math.ceil(size ** (1 / dimension) - 1e-9)
    cells = np.stack(np.meshgrid(*[np.arange(side)] * dimension), axis=-1).reshape(-1, dimension)[:size].T
    place = (_SPACING * cells + random.uniform(0, _JITTER, (dimension, size))) * shield.separation_m
    if dimension == 3:  # heights between drones are divided by the height ratio
        place[2] *= shield.height_ratio
    yaw = random.uniform(-math.pi, math.pi, size) if dimension == 2 else np.zeros(size)
    stop = model.stopping_point(MotionState(place, yaw, np.zeros((dimension, size))))
    # the grid is of control points, because control points of a grid of centres could be too close
    stop = replace(stop, position_world=place)
    nominal = random.normal(size=(dimension, size))
    nominal *= model.spec.control_point_speed_m_s / np.linalg.norm(nominal, axis=0)
    peers = np.stack([np.roll(place, -(k + 1), axis=1) for k in range(size - 1)], axis=1)
    age = np.zeros(peers.shape[1:])
    return Crowd(stop, PeerTable(peers, np.zeros_like(peers), age, np.ones(age.shape, bool)), nominal)


@dataclass(frozen=True)
class Joint:
    """The joint problem of a crowd, and its solution if quadprog is installed."""

    rows: int
    seconds: float
    velocity_world: np.ndarray | None  # (D, N) [m/s]


def solve_jointly(model: MotionModel, shield: ProjectionParameters, crowd: Crowd) -> Joint:
    """Solve one minimum-change problem for all robots, in which every pair keeps the sum of its two shares.

    The separate solutions are feasible here, so the joint change is not larger.
    """
    normals, bounds = joint_rows(model, shield, crowd)
    try:
        from quadprog import solve_qp
    except ImportError:
        return Joint(len(bounds), 0.0, None)
    dimension, size = crowd.nominal_world.shape
    begin = time.perf_counter()
    solution = solve_qp(np.eye(dimension * size), crowd.nominal_world.T.reshape(-1), -normals.T, -bounds)[0]
    seconds = time.perf_counter() - begin
    return Joint(len(bounds), seconds, solution.reshape(size, dimension).T)


def joint_rows(model: MotionModel, shield: ProjectionParameters, crowd: Crowd) -> tuple[np.ndarray, np.ndarray]:
    """Return rows (R, N * D) and bounds (R,) on the velocities of all robots."""
    dimension, size = crowd.nominal_world.shape
    (away, share), _, _ = pair_rows(replace(shield, neighbour_rows=size), crowd.stop, crowd.table)
    slot, first = np.nonzero(np.arange(size)[None, :] + 1 + np.arange(size - 1)[:, None] < size)
    second, pairs = first + 1 + slot, np.arange(len(first))
    rows = np.zeros((len(pairs), size, dimension))
    rows[pairs, first] = away[:, slot, first].T
    rows[pairs, second] = -away[:, slot, first].T
    bounds = 2 * share[slot, first]
    limits = model.limit_rows(crowd.stop)
    if limits is not None:
        count = limits[1].shape[0]
        own = np.zeros((count * size, size, dimension))
        robot = np.tile(np.arange(size), count)
        own[np.arange(count * size), robot] = limits[0].reshape(dimension, -1).T
        rows, bounds = np.concatenate([rows, own]), np.concatenate([bounds, limits[1].reshape(-1)])
    return rows.reshape(len(bounds), -1), bounds


def _solve_separately(model: MotionModel, shield: ProjectionParameters, crowd: Crowd) -> np.ndarray:
    return project_velocity(model, shield, None, crowd.stop, crowd.table, crowd.nominal_world).control_velocity_world


def _one_robot_s(model: MotionModel, shield: ProjectionParameters, crowd: Crowd) -> float:
    stop, table, nominal = jax.tree.map(
        lambda x: np.array(x[..., 0]), (_fields(crowd.stop), _fields(crowd.table), crowd.nominal_world)
    )
    alone, heard = replace(crowd.stop, **stop), replace(crowd.table, **table)
    times = [_timed(lambda: project_velocity(model, shield, None, alone, heard, nominal), 1)[0] for _ in range(_CALLS)]
    return statistics.median(times)


def _fields(value: Any) -> dict[str, np.ndarray]:
    return {name: item for name, item in vars(value).items() if item is not None}


def _build_fleet(robot: str, contract: Contract, size: int) -> Sequence[Obligation]:
    """Do what each robot's node does at its start; return the safety contracts."""
    fleet = []
    for index in range(size):
        spec = load_robot(robot)
        projection_parameters(spec)
        check_robot(contract, spec, f"r{index}")
        fleet.append(obligation(f"r{index}", spec, contract, space=stop_tube_parameters(spec)))
    return fleet


def _stepping(
    spec: RobotSpec, model: MotionModel, shield: ProjectionParameters, size: int, ticks: int
) -> tuple[float, float]:
    """Return the compile time [s] and the robot-ticks per second of worlds without walls."""
    team = SimulatedTeam(model, shield, None, KinematicPhysics(model, None), size)
    worlds = max(1, _ROBOTS // size)
    crowds = [draw_crowd(model, shield, size, seed) for seed in range(worlds)]
    place, nominal = (
        jnp.asarray(np.stack(values, axis=-1), jnp.float32)
        for values in zip(*((c.stop.position_world, c.nominal_world) for c in crowds), strict=True)
    )
    keys = jax.random.split(jax.random.key(0), worlds)
    state = start(team, place, jnp.zeros(place.shape[1:]), draw_parameters(keys, spec, team.channels))

    def run(state: Any, keys: jax.Array) -> Any:
        return jax.lax.scan(lambda now, key: (tick(team, now, nominal, key)[0], None), state, keys)[0]

    begin, tick_keys = time.perf_counter(), jax.random.split(jax.random.key(1), ticks)
    program = jax.jit(run).lower(state, tick_keys).compile()
    compile_s = time.perf_counter() - begin
    jax.block_until_ready(program(state, tick_keys))
    seconds, _ = _timed(lambda: jax.block_until_ready(program(state, tick_keys)))
    return compile_s, worlds * size * ticks / seconds


def _timed(function: Callable[[], Any], repeats: int = 3) -> tuple[float, Any]:
    """Return the median time [s] and the last result."""
    times, result = [], None
    for _ in range(repeats):
        begin = time.perf_counter()
        result = function()
        times.append(time.perf_counter() - begin)
    return statistics.median(times), result
