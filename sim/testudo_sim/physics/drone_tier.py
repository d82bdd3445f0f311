"""Physics tiers `attitude` and `rotors`: drones under the firmware's velocity controller, stepped at 500 Hz.

Velocity commands reach the vehicle after the delay of its link; then the controllers and the dynamics of the robot file
act, at their own rates. Arrays are (component, robot, world): (D, N, E).
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp

from testudo_deploy.shield.velocity_projection import Arena
from testudo_hardware.arrays import stacked
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import MotionModel
from testudo_hardware.motion.firmware_controllers import CascadeParameters, velocity_control
from testudo_hardware.motion.propellers import downwash
from testudo_hardware.motion.rotor_drone import Disturbance
from testudo_hardware.schema import VELOCITY_POINT
from testudo_sim.physics.drone_bodies import AttitudeBody, Batteries, DroneBody, DroneFlightState, RotorBody
from testudo_sim.physics.kinematic_tier import arrived_at_drones, arrived_set_point
from testudo_sim.physics.scene import BodyState, ContactCounts, Scene
from testudo_sim.physics.world_parameters import WorldParameters

STEP_S = 0.002
"""Longest step of the dynamics."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class DroneState:
    """The drones of all worlds between two control ticks."""

    body: Any  # state of the model; thrust over hover thrust, which differs between worlds
    integral: jax.Array  # (3, N, E) [m]: of the velocity controller, relative to hover
    yaw_command: jax.Array  # (N, E) [rad]: the heading at the start plus the commanded turns
    watch: ContactCounts
    used: jax.Array | None = None  # (N, E): share of a full battery used since the start; None without batteries


@dataclass(frozen=True)
class DroneTier:
    """Drones in flight; implements `Physics` without bodies and contact forces."""

    model: MotionModel
    arena: Arena | None
    body: DroneBody
    name: str
    downwash: bool = True  # whether drones push down those in their wake
    battery: bool = False  # whether batteries empty, and their voltage limits the thrust

    @cached_property
    def _runs(self) -> tuple[int, int]:
        """Return the runs of the velocity controller in a tick, and the steps of the dynamics in each."""
        period = self.model.spec.control_period_s
        runs = max(1, round(period / self.model.spec.attitude["attitude.cascade_period"].value))
        return runs, math.ceil(period / runs / STEP_S - 1e-9)

    def reset(
        self, position_world: jax.Array, yaw: jax.Array, bodies: BodyState | None, velocity: jax.Array | None = None
    ) -> DroneState:
        """See `Physics.reset`: level, with controllers that have settled."""
        still = jnp.zeros_like(position_world)
        body = self.body.begin(position_world, yaw, still if velocity is None else velocity)
        used = jnp.zeros_like(yaw) if self.battery else None
        watch = ContactCounts.of(position_world, self.model.spec, self.arena)
        return DroneState(body, still, yaw, watch, used)

    def advance(
        self, state: DroneState, sent: jax.Array, parameters: WorldParameters, turns: jax.Array | None = None
    ) -> DroneState:
        """See `Physics.advance`."""
        spec, (runs, steps) = self.model.spec, self._runs
        drawn = dict(parameters.drone or {}) | {"geometry.mass": spec.mass_kg * parameters.mass_scale}
        period = spec.control_period_s / runs
        flight = self.body.prepare(drawn, period / steps)
        # the integral is relative to hover in this world
        cascade = replace(CascadeParameters.from_spec(spec, drawn), thrust_base_n=flight.hover_thrust_n)
        set_point = arrived_set_point(sent, self.model, drawn)
        yaw_rate = None if turns is None else arrived_at_drones(turns, self.model, drawn)
        batteries = Batteries.create(spec, self.body.hover_thrust_n, parameters) if self.battery else None

        def run(carry: tuple[Any, ...], _: None) -> tuple[tuple[Any, ...], None]:
            body, integral, watch, used, faces = carry
            able: DroneFlightState = flight
            if batteries is not None:
                most, used = batteries.use(flight.thrust_n(body), used, period)
                able = flight.weakened(most)
            motion = self.body.motion(body)
            wanted, integral = velocity_control(cascade, motion.velocity, motion.yaw, integral, set_point, period)
            faces = faces if yaw_rate is None else faces + yaw_rate * period
            command = stacked(*wanted[:2], faces, wanted[2])
            push = self._wakes(motion.position_world, drawn["geometry.mass"])
            for _step in range(steps):
                body = able.step(body, command, push)
                watch = watch.plus(ContactCounts.of(self.body.motion(body).position_world, self.model.spec, self.arena))
            return (body, integral, watch, used, faces), None

        begin = (flight.with_thrust(state.body), state.integral, state.watch.cleared(), state.used, state.yaw_command)
        (body, integral, watch, used, faces), _ = jax.lax.scan(run, begin, length=runs)
        return DroneState(flight.with_shares(body), integral, faces, watch, used)

    def scene(self, state: DroneState) -> Scene:
        """See `Physics.scene`."""
        return Scene(self.body.motion(state.body))

    def watch(self, state: DroneState) -> ContactCounts:
        """See `Physics.watch`."""
        return state.watch

    def _wakes(self, position_world: jax.Array, mass_kg: jax.Array) -> Disturbance | None:
        if not self.downwash or position_world.shape[1] < 2:
            return None
        return Disturbance(downwash(position_world, self.model.spec.body_radius_m) / mass_kg, None)


def make_drone_tier(
    name: str, model: MotionModel, arena: Arena | None, *, with_downwash: bool = True, with_battery: bool = False
) -> DroneTier:
    """Return the tier `attitude` or `rotors` for a robot.

    Raises:
        TestudoError: the robot is no drone, or its file lacks the tables of this tier.
    """
    spec = model.spec
    needed = {"attitude": ("attitude",), "rotors": ("attitude", "rotors")}[name]
    missing = [table for table in needed if not getattr(spec, table)]
    if spec.kind != VELOCITY_POINT or missing:
        lacks = "is no drone" if spec.kind != VELOCITY_POINT else f"has no [{missing[0]}] in its file"
        raise TestudoError(f"--physics {name}: {spec.name} {lacks}; use --physics kinematic, mjx or mujoco")
    body: DroneBody = AttitudeBody(spec) if name == "attitude" else RotorBody(spec)
    return DroneTier(model, arena, body, name, with_downwash, with_battery)
