"""The policy node with the rule against deadlocks after the policy: who is held back turns to the right.

A policy that only goes straight to its goal never gets past another that does the same, whatever the network.
"""

import sys
from collections.abc import Mapping

import numpy as np

from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.shield.deadlock_resolution import initial_deadlock_state, resolve_deadlock
from testudo_deploy.shield.velocity_projection import PeerTable
from testudo_nodes.robot.policy_node import main

_step = PolicyArtefact.step


class Yielding:
    """The rule with what it remembers; asked once for each decision."""

    def __init__(self) -> None:
        self._memory = initial_deadlock_state(np.array(0.0))
        self._place: np.ndarray | None = None

    def turned(self, artefact: PolicyArtefact, signals: Mapping[str, np.ndarray], nominal: np.ndarray) -> np.ndarray:
        """Return the wanted velocity (D,) [m/s], turned if the robot was held back since the last decision."""
        contract = artefact.contract
        period_s = contract.decision_ticks * contract.control_period_s
        place = np.asarray(signals["control_point_world"], float)
        moved = np.zeros_like(place) if self._place is None else (place - self._place) / period_s
        self._place = place
        points = np.asarray(signals["neighbour_position_world"], float).T  # where they are now: no age is left
        table = PeerTable(
            points, np.zeros_like(points), np.zeros(points.shape[1]), np.asarray(signals["neighbour_valid"]) > 0
        )
        found, self._memory = resolve_deadlock(
            contract.shield, self._memory, place, table, np.asarray(nominal, float), moved, period_s
        )
        return found


_rule = Yielding()


def step(
    artefact: PolicyArtefact, signals: Mapping[str, np.ndarray], hidden: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Run the policy, and turn its wish if the robot was held back."""
    nominal, hidden = _step(artefact, signals, hidden)
    return _rule.turned(artefact, signals, nominal), hidden


if __name__ == "__main__":
    PolicyArtefact.step = step
    sys.exit(main())
