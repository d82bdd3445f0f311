"""The policy node with deadlock resolution after the policy, because straight drives to goals block each other."""

import sys
from collections.abc import Mapping

import numpy as np

from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.shield.deadlock_resolution import initial_deadlock_state, resolve_deadlock
from testudo_deploy.shield.velocity_projection import PeerTable
from testudo_nodes.robot.policy_node import main

_step = PolicyArtefact.step


class ResolvingPolicy:
    """Deadlock resolution with its state; called once for each decision."""

    def __init__(self) -> None:
        self._state = initial_deadlock_state(np.array(0.0))
        self._place: np.ndarray | None = None

    def turned(self, artefact: PolicyArtefact, signals: Mapping[str, np.ndarray], nominal: np.ndarray) -> np.ndarray:
        """Return the nominal velocity (D,) [m/s], turned if the robot was blocked since the last decision."""
        contract = artefact.contract
        period_s = contract.decision_ticks * contract.control_period_s
        place = np.asarray(signals["control_point_world"], float)
        moved = np.zeros_like(place) if self._place is None else (place - self._place) / period_s
        self._place = place
        points = np.asarray(signals["neighbour_position_world"], float).T  # predicted to the present: age 0
        table = PeerTable(
            points, np.zeros_like(points), np.zeros(points.shape[1]), np.asarray(signals["neighbour_valid"]) > 0
        )
        found, self._state = resolve_deadlock(
            contract.shield, self._state, place, table, np.asarray(nominal, float), moved, period_s
        )
        return found


_resolver = ResolvingPolicy()


def step(
    artefact: PolicyArtefact, signals: Mapping[str, np.ndarray], hidden: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Run the policy, and turn its nominal velocity if the robot is blocked."""
    nominal, hidden = _step(artefact, signals, hidden)
    return _resolver.turned(artefact, signals, nominal), hidden


if __name__ == "__main__":
    PolicyArtefact.step = step
    sys.exit(main())
