"""The shield: projection, stop-tube check and reservations give one command, one status and the reserved space."""

from dataclasses import dataclass, replace

from testudo_deploy.shield.projection_margins import ProjectionParameters
from testudo_deploy.shield.reservations import (
    ReservedSpace,
    ShieldInputs,
    apply_stop_tube_check,
    farthest_peer_position,
)
from testudo_deploy.shield.sensed_bodies import SensedBodies
from testudo_deploy.shield.stop_tube import StopTubeParameters
from testudo_deploy.shield.velocity_projection import Arena, PeerTable, ShieldResult, ShieldStatus, project_velocity
from testudo_hardware.arrays import Array, all_of, any_of, array_namespace, known_false
from testudo_hardware.motion import MotionModel, StoppingPoint
from testudo_hardware.motion.motion_model import actuator_command
from testudo_hardware.motion.motion_state import length, shorten

_MOVING_M_S = 1e-3
_BEYOND = 1e-4
"""Excess of a command over the robot's limits from which it is clipped [its unit]: less is rounding, and within the
tolerance of the guard."""


@dataclass(frozen=True)
class Shield:
    """The shield of one robot."""

    model: MotionModel
    parameters: ProjectionParameters
    space: StopTubeParameters
    arena: Arena | None
    project: bool = True  # false leaves layer 1 out: layers 2 and 3 alone carry the guarantee, which tests show

    def step(
        self, inputs: ShieldInputs, own: ReservedSpace, nominal_world: Array, number: Array
    ) -> tuple[ShieldResult, ReservedSpace]:
        """Return the command that may be sent, and the robot's space for the message that follows.

        ``own`` is its space so far, ``nominal_world`` the nominal velocity of the control point (D, ...) [m/s], and
        ``number`` (...) that of the message.
        """
        xp = array_namespace(nominal_world)
        table = inputs.table
        if not known_false(
            self.parameters.peer_speed_m_s * table.age_s > self.space.beside_m
        ):  # else the segments bound no more
            table = replace(
                table,
                farthest_m=farthest_peer_position(
                    inputs.peers,
                    table.control_point_world,
                    table.age_s,
                    self.space.silence_s,
                    self.space.beside_m,
                    self.space.height_ratio,
                ),
            )
        first = (
            self.layer1(inputs.stop, table, nominal_world, inputs.bodies)
            if self.project
            else self._unchecked(inputs.stop, nominal_world)
        )
        checked = apply_stop_tube_check(
            self.model, self.space, self.arena, inputs, own, first.control_velocity_world, number
        )
        first = replace(first, status=xp.where(_known(inputs, nominal_world), first.status, int(ShieldStatus.BRAKED)))
        # a brake depends on the measured velocity, which may exceed the robot's limits
        clipped = self.model.limit_command(checked.command)
        beyond = any_of(xp.abs(checked.command - clipped) > _BEYOND, axis=0)
        command = xp.where(beyond[None, ...], clipped, checked.command)
        return _merged(
            first, checked.velocity_world, command, checked.factor, checked.clear, nominal_world
        ), checked.space

    def layer1(
        self, stop: StoppingPoint, table: PeerTable, nominal_world: Array, bodies: SensedBodies | None = None
    ) -> ShieldResult:
        """Return the result of layer 1 alone; see `project_velocity`, which training calls with the same numbers."""
        return project_velocity(self.model, self.parameters, self.arena, stop, table, nominal_world, bodies)

    def _unchecked(self, stop: StoppingPoint, nominal_world: Array) -> ShieldResult:
        xp = array_namespace(nominal_world)
        velocity = shorten(nominal_world, self.model.spec.control_point_speed_m_s)
        share = self.model.braking_share(stop, velocity)
        velocity = velocity if share is None else velocity * share
        change = 0 * velocity[0, ...]
        return ShieldResult(
            actuator_command(self.model, stop, velocity), velocity, change, xp.astype(change > 1, xp.int32)
        )


def _known(inputs: ShieldInputs, nominal_world: Array) -> Array:
    """Return whether the own state and the nominal velocity are finite (...), also values that no motion model uses."""
    xp = array_namespace(nominal_world)
    state = inputs.estimate
    total = (
        inputs.measured_position_world + state.position_world + state.velocity + nominal_world + state.yaw[None, ...]
    )
    return all_of(xp.abs(total) < xp.inf, axis=0)


def _merged(
    first: ShieldResult, velocity: Array, command: Array, factor: Array, clear: Array, nominal_world: Array
) -> ShieldResult:
    """Return layer 1's result after the stop-tube check; a value that is not finite brakes."""
    xp = array_namespace(velocity)
    finite = all_of((xp.abs(command) < xp.inf) & (xp.abs(velocity) < xp.inf), axis=0)
    sound = finite & (first.status != int(ShieldStatus.BRAKED))
    moving = length(first.control_velocity_world) > _MOVING_M_S
    status = xp.where(moving & (factor < 1), int(ShieldStatus.GATED), first.status)
    status = xp.where(moving & (factor == 0) & clear, int(ShieldStatus.WAITING), status)
    velocity, command = xp.where(sound, velocity, 0.0), xp.where(sound, command, 0.0)
    return ShieldResult(
        command,
        velocity,
        xp.where(sound, length(velocity - nominal_world), 0.0),
        xp.where(sound, status, int(ShieldStatus.BRAKED)),
    )
