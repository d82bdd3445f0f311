"""The decisions of a robot's policy: it runs at its period, and its last command is held in between."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from testudo_deploy.contract.command_types import limited_yaw_rate, split_message, split_output, tracking_of
from testudo_deploy.contract.policy_artefact import PolicyArtefact


class PolicyFault(Exception):  # noqa: N818 -- a reason to brake, as `BrakeReason`
    """The policy failed, or gave numbers that are not finite; the text says which."""


class PolicyDecisions:
    """The policy, its memory, and the command that it decided."""

    def __init__(self, artefact: PolicyArtefact) -> None:
        """Start without a decision and with an empty memory."""
        contract = artefact.contract
        self._artefact, self._command = artefact, contract.command
        self._period_ticks, self._tracking = contract.decision_ticks, tracking_of(contract.command)
        self.hidden = np.zeros(contract.hidden_size, np.float32)
        self.nominal_world: np.ndarray | None = None
        """Velocity (D,) [m/s] that the shield checks; None before a decision."""
        self.waypoint_world: np.ndarray | None = None
        """Place (D,) [m] of a policy that chooses one; the nominal velocity leads there."""
        self.yaw_rate = 0.0
        """Of a policy that commands one [rad/s]; turning needs no space."""
        self.message: np.ndarray | None = None
        """Learned message (M,) to the peers, held as the command; None before a decision, and of a policy without."""
        self._ticks_since = 0

    @property
    def sent_yaw_rate(self) -> float:
        """Return the yaw rate [rad/s] within the limits of the command."""
        return limited_yaw_rate(self._command, self.yaw_rate)

    def is_due(self) -> bool:
        """Return whether the policy must decide in this tick; where not, count the tick."""
        if self.nominal_world is None or self._ticks_since >= self._period_ticks:
            return True
        self._ticks_since += 1
        return False

    def decide(self, signals: Mapping[str, np.ndarray]) -> None:
        """Run the policy on its signals, each with the slots of neighbours first.

        Raises:
            PolicyFault: it failed.
        """
        try:
            output, hidden = self._artefact.step(signals, self.hidden)
        except Exception as error:
            raise PolicyFault(f"policy_error: {error}") from error
        if not ((np.abs(output) < np.inf).all() and (np.abs(hidden) < np.inf).all()):
            raise PolicyFault("policy_error: the policy gave numbers that are not finite")
        output, self.message = split_message(np.asarray(output, float), self._command.message_size)
        if self.message is not None and np.max(np.abs(self.message)) > 1:  # all peers would refuse the announcement
            raise PolicyFault(f"policy_error: the policy's message is outside -1 to 1: {self.message.tolist()}")
        self.nominal_world, self.yaw_rate = split_output(self._command, output)
        self.waypoint_world = None if self._tracking is None else self.nominal_world
        self.hidden, self._ticks_since = hidden, 1

    def track(self, control_point_world: np.ndarray) -> None:
        """Let the tracking law turn the way-point, where there is one, into a velocity of the control point (D,)."""
        if self._tracking is not None and self.waypoint_world is not None:
            self.nominal_world = self._tracking.velocity_world(self.waypoint_world, control_point_world)

    def replace(self, velocity_world: np.ndarray) -> None:
        """Replace the decision by a velocity (D,) [m/s], such as that of a landing."""
        self.nominal_world, self.waypoint_world, self.yaw_rate, self.message = velocity_world, None, 0.0, None

    def drop(self) -> None:
        """Drop the decision, as after a brake: the policy decides again in the next tick that it may."""
        self.nominal_world = self.waypoint_world = self.message = None
