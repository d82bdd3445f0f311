"""Settings for which a program is compiled; cells with the same setting run as worlds of one batch."""

import math
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from testudo_bench.shield_protocol.baselines import OtherShield
from testudo_bench.shield_protocol.protocol_cell import (
    ALL_LAYERS,
    GATE_ONLY,
    HOSTILE_SIZE,
    OTHERS,
    PROJECTION_ONLY,
    Commands,
    Formation,
    ProtocolCell,
)
from testudo_deploy.shield.arena import Arena, Ball, Block, Capsule, Obstacle
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_deploy.shield.shield import Shield
from testudo_deploy.shield.stop_tube import stop_tube_parameters
from testudo_hardware.motion import MotionModel, MotionState, StoppingPoint, motion_model
from testudo_hardware.motion.differential_drive import DifferentialDrive
from testudo_hardware.motion.velocity_point import VelocityPoint
from testudo_hardware.schema import DIFFERENTIAL_DRIVE, MOTION_NOISE
from testudo_hardware.spec import Quantity, RobotSpec, load_robot
from testudo_sim.physics.world_parameters import Channels
from testudo_sim.physics_choice import PhysicsChoice, make_physics
from testudo_sim.team.deployed_team import DeployedTeam
from testudo_sim.team.residual_motion import residual_noise
from testudo_sim.team.team_tick import SimulatedTeam

_COVERED_SHARE = 0.33  # share of the floor of a crossing that discs of the enforced separation cover
_CORRELATION_S = 0.5  # of the residual motion: that of the identified ground robots
_RADIO_S = 0.32
"""Length of the message buffer: longer than most delays and equal for all cells, so that they share programs."""


@dataclass(frozen=True)
class Setting:
    """Everything that is constant for a batch; hashable."""

    robot: str
    size: int
    layers: str
    place: Formation  # The formation if the arena depends on it, else the swap
    stride: int
    has_hostile_robot: bool
    others: bool  # Use the rules of `OTHERS` instead of all layers
    dead_man_s: float | None
    radio_s: float
    choice: PhysicsChoice
    onboard_brake: bool | None = None  # See `Conditions.onboard_brake`
    level: bool = False
    residual_share: float = 0.0  # See `Conditions.residual_share`
    commands: Commands = Commands.STRAIGHT

    @classmethod
    def of(cls, cell: ProtocolCell, choice: PhysicsChoice) -> "Setting":
        """Return the setting of a cell."""
        conditions = cell.conditions
        shaped = cell.formation in (Formation.CROSSING, Formation.CORRIDOR, Formation.BLOCKS, *DOORS)
        # so that hostile cells share a program with others
        hostile_too = cell.layers == ALL_LAYERS and cell.size == HOSTILE_SIZE and conditions.stride == 1 and not shaped
        return cls(
            cell.robot,
            cell.size,
            cell.layers,
            cell.formation if shaped else Formation.SWAP,
            conditions.stride,
            hostile_too,
            conditions.rule in OTHERS,
            conditions.dead_man_s,
            max(_RADIO_S, conditions.message_s + 0.02),
            choice,
            conditions.onboard_brake,
            conditions.level,
            conditions.residual_share,
            cell.commands,
        )

    def describe(self) -> str:
        """Return a name for progress messages."""
        layers = "other rules" if self.others else f"layers {self.layers}"
        brake = {None: "", True: ", with onboard brake", False: ", without onboard brake"}[self.onboard_brake]
        moved = ", residual motion" if self.residual_share else ""
        return f"{self.size} {self.robot}{brake}{moved}, {layers}, {self.place.value}, {self.choice.physics}"


@dataclass(frozen=True)
class CompiledStage:
    """The team and deployment of a setting, and the distances that formations need."""

    setting: Setting
    spec: RobotSpec  # The robot, with the period of the simulation
    team: SimulatedTeam
    deployment: DeployedTeam
    apart_m: float  # Required distance of starts, for layer 1 and for reserved segments
    wall_m: float  # Larger of the wall distances of layer 1 and of the stop-tube check
    dead_man_ticks: int


def build_stage(setting: Setting) -> CompiledStage:
    """Return the team and its deployment.

    Raises:
        TestudoError: the robot is unknown.
    """
    real = load_robot(setting.robot)
    real = replace(real, dead_man_s=setting.dead_man_s) if setting.dead_man_s else real
    real = with_residual_motion(with_brake(real, setting.onboard_brake), setting.residual_share)
    parameters, space = projection_parameters(real), stop_tube_parameters(real)
    if setting.level:
        parameters, space = replace(parameters, height_ratio=1.0), replace(space, height_ratio=1.0)
    spec = replace(real, control_period_s=real.control_period_s / setting.stride)
    space = replace(space, hold_ticks=setting.stride * space.hold_ticks)
    model = motion_model(spec)
    apart = max(parameters.separation_m, space.clearance_m) + 0.02
    wall = max(parameters.wall_m, space.wall_m)
    arena = arena_of(setting, spec.dimension, apart, wall, parameters.separation_m)
    physics = make_physics(setting.choice, model, arena, setting.size)
    shield_model = _plain(model) if setting.others else model
    project = setting.layers in (ALL_LAYERS, PROJECTION_ONLY)
    noise = residual_noise(spec, physics)
    team = SimulatedTeam(
        shield_model, parameters, arena, physics, setting.size, Channels(message_ticks=(1, 1)), noise=noise
    )
    shield = (
        OtherShield(shield_model, parameters, arena)
        if setting.others
        else Shield(shield_model, parameters, space, arena, project)
    )
    deployment = DeployedTeam(
        shield,
        gate=setting.layers in (ALL_LAYERS, GATE_ONLY),
        stride=setting.stride,
        longest_message_ticks=ticks(setting.radio_s, spec),
        has_hostile_robot=setting.has_hostile_robot,
    )
    return CompiledStage(
        setting, spec, team, deployment, apart, wall, ticks(real.dead_man_s, spec, rounding=math.floor) + 1
    )


def with_brake(spec: RobotSpec, brakes: bool | None) -> RobotSpec:
    """Return a drone with or without onboard brake at a lost link; None keeps the value of its file."""
    if brakes is None:
        return spec
    key = "silence.onboard_brake"
    quantity = replace(spec.silence[key], value=float(brakes), low=float(brakes), high=float(brakes))
    return replace(spec, silence={**spec.silence, key: quantity})


def with_residual_motion(spec: RobotSpec, share: float) -> RobotSpec:
    """Return a robot whose file states a residual motion along and across of this share of its top speed; 0: none."""
    if not share:
        return spec
    table: dict[str, Quantity] = {}
    for key, rule in MOTION_NOISE.items():
        if spec.kind in rule.kinds:
            value = _CORRELATION_S if key.endswith("correlation") else 0.0
            if key in ("motion_noise.along_deviation", "motion_noise.across_deviation"):
                value = share * spec.speed_limit_m_s
            table[key] = Quantity(value, rule.unit, "condition of the cell", value, value)
    return replace(spec, motion_noise=table)


def ticks(time_s: float, spec: RobotSpec, rounding: object = math.ceil) -> int:
    """Return a time in ticks of the simulation, rounded up or with ``rounding``."""
    share = time_s / spec.control_period_s
    return math.floor(share + 1e-6) if rounding is math.floor else math.ceil(share - 1e-6)


def circle_m(size: int, separation_m: float) -> float:
    """Return the radius of the circle of a swap: max(1 m, N D / 2.2)."""
    return max(1.0, size * separation_m / 2.2)


def arena_of(setting: Setting, dimension: int, apart_m: float, wall_m: float, separation_m: float) -> Arena:
    """Return the arena of a formation with its obstacles; in 3-D its height equals its depth."""
    size = setting.size
    radius = circle_m(size, separation_m)
    obstacles: tuple[Obstacle, ...] = ()
    if setting.place is Formation.CROSSING:
        half = 0.5 * math.sqrt(size * math.pi * separation_m**2 / 4 / _COVERED_SHARE)
        sides = (half, half)
    elif setting.place is Formation.CORRIDOR:
        sides = (1.5 + 1.2 * apart_m * size / 2, corridor_half_m(apart_m, wall_m))
    elif setting.place in DOORS:
        reach = door_reach_m(setting.place, size, apart_m) + wall_m + 0.1
        sides = (reach, reach)
        obstacles = door(reach, door_half_m(apart_m, wall_m), dimension)
    elif setting.place is Formation.BLOCKS:
        sides = (ROOM * radius + 1.0, ROOM * radius + 1.0)
        obstacles = blocks(ROOM * radius, dimension)
    else:
        sides = (radius + max(1.0, wall_m + 0.1),) * 2
    sides = (*sides, *(sides[1:] * (dimension - 2)))
    return Arena(tuple(-side for side in sides), sides, obstacles)


def corridor_half_m(apart_m: float, wall_m: float) -> float:
    """Return half the width of the corridor [m], in which two robots can just pass."""
    return wall_m + 0.6 * apart_m


DOORS = (Formation.DOORWAY, Formation.ONE_WAY)
JAMB_M = 0.1  # half of the thickness of the wall with the door
_ARC_RAD = math.radians(120)  # arc about the door on which robots start and have their goals, on one side of the wall


def door_half_m(apart_m: float, wall_m: float) -> float:
    """Return half the width of a door [m] through which one robot fits at a time, with a quarter of a lane to spare."""
    return wall_m + 0.25 * apart_m


def door_reach_m(place: Formation, size: int, apart_m: float) -> float:
    """Return the radius [m] of the arc about the door with a place for each robot, 1.3 times the distance of two."""
    return 1.3 * apart_m * (size - 1) / _ARC_RAD + (0.0 if place is Formation.ONE_WAY else 0.5 * apart_m)


def door_places(place: Formation, size: int, apart_m: float) -> np.ndarray:
    """Return the places (2, N) [m] of an arc on the side of negative x."""
    angle = np.linspace(-_ARC_RAD / 2, _ARC_RAD / 2, size)
    return door_reach_m(place, size, apart_m) * np.stack([-np.cos(angle), np.sin(angle)])


def door(reach_m: float, half_m: float, dimension: int) -> tuple[Obstacle, ...]:
    """Return the two parts of a wall across an arena of half the depth ``reach_m``, with a door in the middle."""
    length_m = (reach_m - half_m) / 2
    height = (_HEIGHT_M,) * (dimension - 2)
    return tuple(
        Block((0.0, side * (half_m + length_m), *(0.0,) * (dimension - 2)), (JAMB_M, length_m, *height), 0.0)
        for side in (-1, 1)
    )


def _plain(model: MotionModel) -> MotionModel:
    """Return the model of a textbook barrier, whose stopping point is the current position."""
    kind = _PlainDrive if model.spec.kind == DIFFERENTIAL_DRIVE else _PlainPoint
    return kind(model.spec)


class _PlainPoint(VelocityPoint):
    """A velocity point with its position as stopping point and its command as velocity."""

    def stopping_point(self, state: MotionState) -> StoppingPoint:
        one, lag = jnp.ones_like(state.yaw), self.spec.velocity_lag_s
        size = state.velocity.shape[0]
        unit = jnp.stack([jnp.stack([one if i == j else 0 * one for j in range(size)]) for i in range(size)])
        return StoppingPoint(
            state.position_world,
            state.yaw,
            unit * lag,
            unit / lag,
            jnp.zeros_like(state.velocity),
            state.velocity / lag,
        )

    def braking_share(self, stop: StoppingPoint, control_velocity_world: jax.Array) -> None:
        return None

    def firm_command(self, stop: StoppingPoint, effective: jax.Array) -> jax.Array:
        return effective


class _PlainDrive(DifferentialDrive):
    """A differential drive with its control point ahead of the current pose."""

    def stopping_point(self, state: MotionState) -> StoppingPoint:
        still = super().stopping_point(MotionState(state.position_world, state.yaw, jnp.zeros_like(state.velocity)))
        return replace(still, deceleration=state.velocity / self.spec.velocity_lag_s)

    def braking_share(self, stop: StoppingPoint, control_velocity_world: jax.Array) -> None:
        return None


ROOM = 1.5  # radius of the circle of starts relative to that of a swap without obstacles
_RING, _SIZE = 0.5, 0.1  # radius of the ring of obstacles, and half of their size, relative to the circle of starts
_HEIGHT_M = 0.5  # Half height of obstacles in 3-D


def blocks(radius_m: float, dimension: int) -> tuple[Obstacle, ...]:
    """Return a ball, a capsule and a box within a circle of starts; in 3-D capsule and box are upright."""
    size, ring = _SIZE * radius_m, _RING * radius_m
    missing = dimension - 2
    places = [
        (ring * math.cos(angle), ring * math.sin(angle), *(0.0,) * missing)
        for angle in (0.0, 2 * math.pi / 3, 4 * math.pi / 3)
    ]
    ball, capsule, box = places
    along = (0.0, 0.0, _HEIGHT_M) if missing else (size, 0.0)
    ends = [tuple(x + side * step for x, step in zip(capsule, along, strict=True)) for side in (-1, 1)]
    return (
        Ball(ball, size),
        Capsule(ends[0], ends[1], size / 2),
        Block(box, (size, size / 2, *(_HEIGHT_M,) * missing), math.pi / 5),
    )
