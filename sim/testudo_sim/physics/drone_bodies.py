"""Drone models of the tiers: fitted attitude response, or rotors under the attitude controller; batteries."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import jax
import jax.numpy as jnp

from testudo_hardware.errors import TestudoError
from testudo_hardware.frames import from_angles, heading
from testudo_hardware.motion import MotionState, attitude_drone, rotor_drone
from testudo_hardware.motion.attitude_drone import AnglesState, AttitudeDroneParameters, AttitudeResponse
from testudo_hardware.motion.battery import (
    BatteryParameters,
    discharged,
    load_of,
    maximum_thrust,
    minimum_charge,
    voltage,
)
from testudo_hardware.motion.firmware_controllers import LoopGains, LoopState, rotor_thrusts, still
from testudo_hardware.motion.rotor_drone import Disturbance, RotorDroneParameters, RotorDroneState
from testudo_hardware.spec import RobotSpec
from testudo_sim.physics.world_parameters import WorldParameters


@dataclass(frozen=True)
class Batteries:
    """Batteries of drawn worlds; arrays (N, E)."""

    law: BatteryParameters
    charge: jax.Array | float  # at the start

    @classmethod
    def create(cls, spec: RobotSpec, hover_thrust_n: float, parameters: WorldParameters) -> Self:
        """Return the batteries of a robot file, full unless the worlds drew charges."""
        law = BatteryParameters.from_spec(spec, hover_thrust_n, parameters.drone)
        return cls(law, 1.0 if parameters.charge is None else parameters.charge)

    def use(self, thrust_n: jax.Array, used: jax.Array, duration_s: float) -> tuple[jax.Array, jax.Array]:
        """Return the maximum thrust [N] for a time [s] that begins with a thrust [N], and the share used after it.

        The used share is small, so that float32 loses less of it than of the charge.
        """
        load = load_of(self.law, thrust_n)
        most = maximum_thrust(self.law, voltage(jnp.maximum(self.charge - used, 0.0), load))
        return most, used + discharged(load, duration_s)


def check_battery(spec: RobotSpec) -> None:
    """Refuse a robot whose battery cannot be simulated, with a `TestudoError`: a missing table, or another kind."""
    missing = [table for table in ("attitude", "rotors", "power") if not getattr(spec, table)]
    if missing:
        raise TestudoError(f"--battery: {spec.name} has no [{missing[0]}] in its file; leave --battery out")
    minimum_charge(spec)


for _type in (AnglesState, RotorDroneState, LoopState):
    jax.tree_util.register_dataclass(_type)


class DroneFlightState(Protocol):
    """The dynamics of drawn worlds, prepared for many steps."""

    @property
    def hover_thrust_n(self) -> Any:
        """Return the total thrust command [N] in hover."""

    def with_thrust(self, state: Any) -> Any:
        """Return a state with thrust in N in place of shares of the hover thrust."""

    def with_shares(self, state: Any) -> Any:
        """Return the inverse of `with_thrust`."""

    def thrust_n(self, state: Any) -> jax.Array:
        """Return the total thrust (N, E) [N]."""
        ...

    def weakened(self, thrust_most_n: jax.Array) -> "DroneFlightState":
        """Return the dynamics with this maximum of the total thrust (N, E) [N]."""
        ...

    def step(self, state: Any, command: jax.Array, push: Disturbance | None) -> Any:
        """Return the state one step later under roll, pitch, yaw [rad] and thrust [N] (4, N, E)."""


class DroneBody(Protocol):
    """Motion of the drones of a tier; states are pytrees with the worlds last."""

    @property
    def hover_thrust_n(self) -> float:
        """Return the total thrust command [N] in hover, by the robot file."""
        ...

    def begin(self, position_world: jax.Array, yaw: jax.Array, velocity_world: jax.Array) -> Any:
        """Return level drones with hover thrust."""

    def motion(self, state: Any) -> MotionState:
        """Return position, heading and velocity."""
        ...

    def prepare(self, drawn: Mapping[str, jax.Array], step_s: float) -> DroneFlightState:
        """Return the dynamics with drawn quantities."""
        ...


@dataclass(frozen=True)
class AttitudeBody:
    """The fitted attitude response."""

    spec: RobotSpec

    @property
    def hover_thrust_n(self) -> float:
        """See `DroneBody.hover_thrust_n`."""
        return AttitudeDroneParameters.from_spec(self.spec).hover_thrust_n

    def begin(self, position_world: jax.Array, yaw: jax.Array, velocity_world: jax.Array) -> AnglesState:
        """See `DroneBody.begin`."""
        zero = jnp.zeros_like(yaw)
        return AnglesState(
            position_world,
            jnp.stack([zero, zero, yaw]),
            velocity_world,
            jnp.zeros_like(position_world),
            jnp.ones_like(yaw),
        )

    def motion(self, state: AnglesState) -> MotionState:
        """See `DroneBody.motion`."""
        return MotionState(state.position_world, state.angles[2], state.velocity_world)

    def prepare(self, drawn: Mapping[str, jax.Array], step_s: float) -> "_FittedFlight":
        """See `DroneBody.prepare`."""
        parameters = AttitudeDroneParameters.from_spec(self.spec, drawn)
        return _FittedFlight(parameters, AttitudeResponse.create(parameters, step_s, jnp.zeros(1)))


@dataclass(frozen=True)
class _FittedFlight:
    parameters: AttitudeDroneParameters
    response: AttitudeResponse

    @property
    def hover_thrust_n(self) -> jax.Array:
        return self.parameters.hover_thrust_n

    def with_thrust(self, state: AnglesState) -> AnglesState:
        return replace(state, thrust=state.thrust * self.hover_thrust_n)

    def with_shares(self, state: AnglesState) -> AnglesState:
        return replace(state, thrust=state.thrust / self.hover_thrust_n)

    def thrust_n(self, state: AnglesState) -> jax.Array:
        return state.thrust

    def weakened(self, thrust_most_n: jax.Array) -> "_FittedFlight":
        most = jnp.minimum(self.parameters.thrust_most_n, thrust_most_n)
        return replace(self, parameters=replace(self.parameters, thrust_most_n=most))

    def step(self, state: AnglesState, command: jax.Array, push: Disturbance | None) -> AnglesState:
        return attitude_drone.advance(self.parameters, self.response, state, command, push)


@dataclass(frozen=True)
class RotorBody:
    """Rotors, with propellers if the file has them, under the attitude controller of the firmware."""

    spec: RobotSpec
    gains: LoopGains = LoopGains()  # noqa: RUF009 -- frozen

    @property
    def hover_thrust_n(self) -> float:
        """See `DroneBody.hover_thrust_n`."""
        return 4 * RotorDroneParameters.from_spec(self.spec).hover_thrust_n

    def begin(
        self, position_world: jax.Array, yaw: jax.Array, velocity_world: jax.Array
    ) -> tuple[RotorDroneState, LoopState]:
        """See `DroneBody.begin`."""
        zero = jnp.zeros_like(yaw)
        body = RotorDroneState(
            position_world,
            from_angles(jnp.stack([zero, zero, yaw])),
            velocity_world,
            jnp.zeros_like(position_world),
            jnp.ones((4, *yaw.shape)),
        )
        return body, still(yaw)

    def motion(self, state: tuple[RotorDroneState, LoopState]) -> MotionState:
        """See `DroneBody.motion`."""
        body = state[0]
        return MotionState(body.position_world, heading(body.quaternion_xyzw), body.velocity_world)

    def prepare(self, drawn: Mapping[str, jax.Array], step_s: float) -> "_RotorFlight":
        """See `DroneBody.prepare`."""
        parameters = RotorDroneParameters.from_spec(self.spec, drawn=drawn, with_propellers=True)
        full = self.spec.attitude["attitude.thrust_most"].value / 4
        return _RotorFlight(parameters, self.gains, full, step_s)


@dataclass(frozen=True)
class _RotorFlight:
    parameters: RotorDroneParameters
    gains: LoopGains
    full_thrust_n: float
    step_s: float

    @property
    def hover_thrust_n(self) -> jax.Array:
        return 4 * self.parameters.hover_thrust_n

    def with_thrust(self, state: tuple[RotorDroneState, LoopState]) -> tuple[RotorDroneState, LoopState]:
        return replace(state[0], thrust=state[0].thrust * self.parameters.hover_thrust_n), state[1]

    def with_shares(self, state: tuple[RotorDroneState, LoopState]) -> tuple[RotorDroneState, LoopState]:
        return replace(state[0], thrust=state[0].thrust / self.parameters.hover_thrust_n), state[1]

    def thrust_n(self, state: tuple[RotorDroneState, LoopState]) -> jax.Array:
        return jnp.sum(state[0].thrust, axis=0)

    def weakened(self, thrust_most_n: jax.Array) -> "_RotorFlight":
        return replace(self, parameters=replace(self.parameters, thrust_most_n=thrust_most_n / 4))

    def step(
        self, state: tuple[RotorDroneState, LoopState], command: jax.Array, push: Disturbance | None
    ) -> tuple[RotorDroneState, LoopState]:
        body, loop = state
        thrusts, loop = rotor_thrusts(
            self.gains, loop, body.quaternion_xyzw, body.rates_body, command, self.full_thrust_n, self.step_s
        )
        return rotor_drone.step(self.parameters, body, thrusts, self.step_s, push), loop
