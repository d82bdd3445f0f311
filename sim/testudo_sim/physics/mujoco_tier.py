"""The MuJoCo tiers: worlds, forces and contact counts, stepped by MJX or by C MuJoCo.

Arrays have the worlds E as their last axis. A control tick is a whole number of physics steps; each computes the forces
and counts the contacts.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from testudo_deploy.shield.velocity_projection import Arena
from testudo_hardware.motion import MotionModel, MotionState
from testudo_hardware.motion.attitude_drone import AttitudeDroneParameters
from testudo_hardware.motion.firmware_controllers import CascadeState
from testudo_hardware.motion.propellers import downwash
from testudo_plant.worlds.actuator_forces import discrete_gain
from testudo_plant.worlds.drone_dynamics import FlightCommands, FlightControllerState, FlyingGroup
from testudo_plant.worlds.robot_bodies import Box
from testudo_plant.worlds.robot_groups import GroupForces, RobotGroup, make_group
from testudo_plant.worlds.world_builder import Form, WorldRobot, build_world_spec
from testudo_sim.physics.drone_bodies import Batteries
from testudo_sim.physics.kinematic_tier import acting_command, arrived_at_drones, arrived_set_point
from testudo_sim.physics.scene import BodyState, ContactCounts, Scene
from testudo_sim.physics.world_parameters import WorldParameters


class BoxGroup:
    """The boxes of a scenario in a model."""

    def __init__(self, model: mujoco.MjModel, boxes: Sequence[Box]) -> None:
        joints = [[model.joint(f"{box.name}/{axis}").id for box in boxes] for axis in ("x", "y", "yaw")]
        self.start_ids: np.ndarray = model.jnt_qposadr[np.array(joints)]
        """(3, B): indices into qpos."""

    def start(self, bodies: BodyState) -> jax.Array:
        """Return qpos (3, B, E) of boxes that stand on the floor."""
        return jnp.concatenate([bodies.position_world, bodies.yaw[None]])

    def read(self, qpos: jax.Array) -> BodyState:
        """Return the poses of the boxes in a state (nq, E)."""
        x, y, yaw = (qpos[row] for row in self.start_ids)
        return BodyState(jnp.stack([x, y]), yaw)


jax.tree_util.register_dataclass(FlightControllerState)
jax.tree_util.register_dataclass(CascadeState)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RawState:
    """The state that MuJoCo integrates."""

    qpos: jax.Array  # (nq, E)
    qvel: jax.Array  # (nv, E)
    warmstart: jax.Array  # (nv, E): initial acceleration of the solver in the next step


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class MujocoState:
    """A state, with the contacts of the last control tick."""

    raw: RawState
    yaw: jax.Array  # (N, E) [rad], not wrapped
    watch: ContactCounts
    memory: Any = None  # controller state, see `RobotGroup.begin`
    used: jax.Array | None = None  # (N, E): share of a full battery used since the start; None without batteries


class Stepper(Protocol):
    """One step of the physics for many worlds."""

    def step(self, raw: RawState, forces: jax.Array, parameters: WorldParameters) -> RawState:
        """Return the state one step later under the controls ``forces`` (nu, E)."""
        ...


@dataclass(frozen=True)
class TierModel:
    """The world of a team of one kind of robot, for both tiers."""

    model: MotionModel
    arena: Arena | None
    size: int
    form: Form
    steps: int  # steps of the physics in a control tick
    boxes: tuple[Box, ...] = ()

    @property
    def step_s(self) -> float:
        """Return the physics step [s]."""
        return self.model.spec.control_period_s / self.steps

    @cached_property
    def world(self) -> mujoco.MjSpec:
        """Return the world."""
        robots = [WorldRobot(name, self.model.spec) for name in self.names]
        world = build_world_spec(robots, self.arena, self.step_s, form=self.form, boxes=self.boxes)
        if self.size > _ALL_PAIRS:
            # MJX considers only the nearest candidates of each kind; a disc touches at most six others
            world.add_numeric(name="max_geom_pairs", data=[4.0 * self.size])
        return world

    @cached_property
    def compiled(self) -> mujoco.MjModel:
        """Return the compiled model."""
        return self.world.copy().compile()

    @property
    def names(self) -> Sequence[str]:
        """Return the names of the robots."""
        return [f"r{i}" for i in range(self.size)]

    @property
    def sha256(self) -> str:
        """Return the hash of the XML of the world, with all masses, frictions and contact bits."""
        return hashlib.sha256(self.world.to_xml().encode()).hexdigest()


_NO = np.False_  # an order that no drone gets, as a constant under tracing
_ALL_PAIRS = 9  # up to this number of robots, all pairs are fewer than four for each robot


@dataclass(frozen=True)
class MujocoTier:
    """Physics tier `mjx` or `mujoco`; implements `Physics`."""

    tier: TierModel
    stepper: Stepper
    name: str
    downwash: bool = True  # whether drones with an attitude push down those in their wake
    battery: bool = False  # whether batteries of drones with an attitude empty, and their voltage limits the thrust

    def reset(
        self, position_world: jax.Array, yaw: jax.Array, bodies: BodyState | None, velocity: jax.Array | None = None
    ) -> MujocoState:
        """See `Physics.reset`; boxes begin at rest, as do drones with an attitude."""
        compiled, worlds = self.tier.compiled, yaw.shape[-1]
        qpos = jnp.broadcast_to(jnp.asarray(compiled.qpos0, jnp.float32)[:, None], (compiled.nq, worlds))
        qpos = qpos.at[self._group.start_ids].set(self._group.start(position_world, yaw))
        if bodies is not None:
            qpos = qpos.at[self._boxes.start_ids].set(self._boxes.start(bodies))
        rest = jnp.zeros((compiled.nv, worlds))
        moving = rest
        if velocity is not None:
            moving = rest.at[self._group.rate_ids].set(self._group.start_rates(yaw, velocity))
        raw = RawState(qpos, moving, rest)
        used = jnp.zeros_like(yaw) if self.battery else None
        watch = ContactCounts.of(position_world, self.tier.model.spec, self.tier.arena)
        return MujocoState(raw, yaw, watch, self._group.begin(yaw), used)

    def advance(
        self, state: MujocoState, sent: jax.Array, parameters: WorldParameters, turns: jax.Array | None = None
    ) -> MujocoState:
        """See `Physics.advance`."""
        target, drawn = self._target(sent, parameters)
        yaw_rate = None if turns is None else arrived_at_drones(turns, self.tier.model, drawn or {})
        gain = discrete_gain(parameters.velocity_lag_s, self.tier.step_s)
        able = self._batteries(parameters, drawn or {}) if self.battery else None

        def step(carry: tuple[Any, ...], _: None) -> tuple[tuple[Any, ...], None]:
            raw, watch, memory, used = carry
            orders = None
            if able is not None:
                most, used = able(memory, used)
                orders = FlightCommands(_NO, _NO, _NO, most)
            drive = GroupForces(gain, parameters.grip, memory, orders, self._wakes(raw, drawn), drawn, yaw_rate)
            controls, memory = self._group.forces(target, raw.qpos, raw.qvel, drive)
            forces = jnp.zeros((self.tier.compiled.nu, target.shape[-1]))
            forces = forces.at[self._group.controls].set(controls)
            raw = self.stepper.step(raw, forces, parameters)
            place = self._group.motion(raw.qpos, raw.qvel).position_world
            watch = watch.plus(ContactCounts.of(place, self.tier.model.spec, self.tier.arena))
            return (raw, watch, memory, used), None

        begin = (state.raw, state.watch.cleared(), state.memory, state.used)
        (raw, watch, memory, used), _ = jax.lax.scan(step, begin, None, length=self.tier.steps)
        turned = self._group.motion(raw.qpos, raw.qvel).yaw - state.yaw
        # the heading of a free body is wrapped; a robot turns by less than half a turn in a tick
        return MujocoState(raw, state.yaw + turned - 2 * np.pi * jnp.round(turned / (2 * np.pi)), watch, memory, used)

    def _batteries(
        self, parameters: WorldParameters, drawn: dict[str, jax.Array]
    ) -> Callable[[FlightControllerState, jax.Array], tuple[jax.Array, jax.Array]]:
        """Return the function from memory and use to the maximum thrust of the rotors [N] and the use after it."""
        spec = self.tier.model.spec
        batteries = Batteries.create(spec, AttitudeDroneParameters.from_spec(spec).hover_thrust_n, parameters)
        hover_n = AttitudeDroneParameters.from_spec(spec, drawn).hover_thrust_n
        return lambda memory, used: batteries.use(memory.thrust * hover_n, used, self.tier.step_s)

    def _target(self, sent: jax.Array, parameters: WorldParameters) -> tuple[jax.Array, dict[str, jax.Array] | None]:
        """Return the acting velocities (D, N, E), and the drawn quantities of drones with an attitude."""
        if not isinstance(self._group, FlyingGroup):
            return acting_command(sent, parameters), None
        spec = self.tier.model.spec
        drawn = dict(parameters.drone or {}) | {"geometry.mass": spec.mass_kg * parameters.mass_scale}
        return arrived_set_point(sent, self.tier.model, drawn), drawn

    def _wakes(self, raw: RawState, drawn: dict[str, jax.Array] | None) -> jax.Array | None:
        """Return the acceleration (3, N, E) of drones in the wakes of others."""
        if drawn is None or not self.downwash or self.tier.size < 2:
            return None
        place = self._group.motion(raw.qpos, raw.qvel).position_world
        return downwash(place, self.tier.model.spec.body_radius_m) / drawn["geometry.mass"]

    def scene(self, state: MujocoState) -> Scene:
        """See `Physics.scene`."""
        motion = self._group.motion(state.raw.qpos, state.raw.qvel)
        robots = MotionState(motion.position_world, state.yaw, motion.velocity)
        return Scene(robots, self._boxes.read(state.raw.qpos) if self.tier.boxes else None)

    def watch(self, state: MujocoState) -> ContactCounts:
        """See `Physics.watch`."""
        return state.watch

    @cached_property
    def _group(self) -> RobotGroup:
        specs = [self.tier.model.spec] * self.tier.size
        return make_group(self.tier.compiled, self.tier.names, specs, self.tier.form)

    @cached_property
    def _boxes(self) -> Any:
        return BoxGroup(self.tier.compiled, self.tier.boxes)
