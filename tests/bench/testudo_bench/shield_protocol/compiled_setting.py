"""What a program is compiled for: cells that share it run as worlds of one batch."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp

from testudo_bench.shield_protocol.baselines import OtherShield
from testudo_bench.shield_protocol.obstacle_ring import ROOM, blocks
from testudo_bench.shield_protocol.protocol_cell import (
    ALL_LAYERS,
    GATE_ONLY,
    HOSTILE_SIZE,
    OTHERS,
    PROJECTION_ONLY,
    Formation,
    ProtocolCell,
)
from testudo_deploy.shield.arena import Arena, Obstacle
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_deploy.shield.shield import Shield
from testudo_deploy.shield.stop_tube import stop_tube_parameters
from testudo_hardware.motion import MotionModel, MotionState, StoppingPoint, motion_model
from testudo_hardware.motion.differential_drive import DifferentialDrive
from testudo_hardware.motion.velocity_point import VelocityPoint
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import RobotSpec, load_robot
from testudo_sim.physics.world_parameters import Channels
from testudo_sim.physics_choice import PhysicsChoice, make_physics
from testudo_sim.team.deployed_team import DeployedTeam
from testudo_sim.team.team_tick import SimulatedTeam

_COVERED_SHARE = 0.33
"""Of the floor in a crossing, by discs of the enforced separation."""
_RADIO_S = 0.32
"""How far back messages are kept: longer than nearly any takes, the same for all, so that they share programs."""


@dataclass(frozen=True)
class Setting:
    """All that is fixed while a batch runs; hashable."""

    robot: str
    size: int
    layers: str
    place: Formation
    """The formation where it shapes the arena, else the swap."""
    stride: int
    strangers: bool
    others: bool
    """The rules of `OTHERS`, in place of all layers."""
    dead_man_s: float | None
    radio_s: float
    choice: PhysicsChoice
    onboard_brake: bool | None = None
    """Of drones: see `Conditions`."""
    level: bool = False

    @classmethod
    def of(cls, cell: ProtocolCell, choice: PhysicsChoice) -> Setting:
        """Return the setting of a cell."""
        conditions = cell.conditions
        shaped = cell.formation in (Formation.CROSSING, Formation.CORRIDOR, Formation.BLOCKS)
        # so that hostile cells need no program of their own
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
        )

    def describe(self) -> str:
        """Return a name for progress."""
        layers = "other rules" if self.others else f"layers {self.layers}"
        brake = {None: "", True: ", with a brake of its own", False: ", without a brake of its own"}[self.onboard_brake]
        return f"{self.size} {self.robot}{brake}, {layers}, {self.place.value}, {self.choice.physics}"


@dataclass(frozen=True)
class CompiledStage:
    """A setting built: the team, its deployment, and the measures that formations need."""

    setting: Setting
    spec: RobotSpec
    """With the period of the simulation."""
    team: SimulatedTeam
    deployment: DeployedTeam
    apart_m: float
    """Distance that starts must have: what layer 1 enforces, and what lanes need."""
    wall_m: float
    """What layer 1 or the gate keeps from walls, the larger."""
    dead_man_ticks: int


def build_stage(setting: Setting) -> CompiledStage:
    """Return the team and its deployment.

    Raises:
        TestudoError: there is no such robot.
    """
    real = load_robot(setting.robot)
    real = replace(real, dead_man_s=setting.dead_man_s) if setting.dead_man_s else real
    real = with_brake(real, setting.onboard_brake)
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
    team = SimulatedTeam(shield_model, parameters, arena, physics, setting.size, Channels(message_ticks=(1, 1)))
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
        strangers=setting.strangers,
    )
    return CompiledStage(
        setting, spec, team, deployment, apart, wall, ticks(real.dead_man_s, spec, rounding=math.floor) + 1
    )


def with_brake(spec: RobotSpec, brakes: bool | None) -> RobotSpec:
    """Return a drone whose file says that it brakes by itself in silence, or that it does not; None: as it says."""
    if brakes is None:
        return spec
    key = "silence.onboard_brake"
    said = replace(spec.silence[key], value=float(brakes), low=float(brakes), high=float(brakes))
    return replace(spec, silence={**spec.silence, key: said})


def ticks(time_s: float, spec: RobotSpec, rounding: object = math.ceil) -> int:
    """Return a time in ticks of the simulation, rounded up (or as said)."""
    share = time_s / spec.control_period_s
    return math.floor(share + 1e-6) if rounding is math.floor else math.ceil(share - 1e-6)


def circle_m(size: int, separation_m: float) -> float:
    """Return the radius of the circle of a swap: max(1 m, N D / 2.2)."""
    return max(1.0, size * separation_m / 2.2)


def arena_of(setting: Setting, dimension: int, apart_m: float, wall_m: float, separation_m: float) -> Arena:
    """Return the walls around a formation and the obstacles in it; in space it is as high as it is deep."""
    size = setting.size
    radius = circle_m(size, separation_m)
    obstacles: tuple[Obstacle, ...] = ()
    if setting.place is Formation.CROSSING:
        half = 0.5 * math.sqrt(size * math.pi * separation_m**2 / 4 / _COVERED_SHARE)
        sides = (half, half)
    elif setting.place is Formation.CORRIDOR:
        sides = (1.5 + 1.2 * apart_m * size / 2, corridor_half_m(apart_m, wall_m))
    elif setting.place is Formation.BLOCKS:
        sides = (ROOM * radius + 1.0, ROOM * radius + 1.0)
        obstacles = blocks(ROOM * radius, dimension)
    else:
        sides = (radius + max(1.0, wall_m + 0.1),) * 2
    sides = (*sides, *(sides[1:] * (dimension - 2)))
    return Arena(tuple(-side for side in sides), sides, obstacles)


def corridor_half_m(apart_m: float, wall_m: float) -> float:
    """Return half the width of the corridor: two robots can just pass."""
    return wall_m + 0.6 * apart_m


def _plain(model: MotionModel) -> MotionModel:
    """Return the model of a textbook barrier: the body is where it will stop."""
    kind = _PlainDrive if model.spec.kind == DIFFERENTIAL_DRIVE else _PlainPoint
    return kind(model.spec)


class _PlainPoint(VelocityPoint):
    """A velocity point whose body is taken for its stopping point, and its command for its velocity."""

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
    """A differential drive whose control point is ahead of the body as it is now."""

    def stopping_point(self, state: MotionState) -> StoppingPoint:
        still = super().stopping_point(MotionState(state.position_world, state.yaw, jnp.zeros_like(state.velocity)))
        return replace(still, deceleration=state.velocity / self.spec.velocity_lag_s)

    def braking_share(self, stop: StoppingPoint, control_velocity_world: jax.Array) -> None:
        return None
