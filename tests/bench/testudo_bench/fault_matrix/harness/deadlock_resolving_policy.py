"""The policy node with the rule against deadlocks after the policy: who is held back turns to the right.

A policy that only goes straight to its goal never gets past another that does the same, whatever the network.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

import numpy as np

from testudo_deploy.contract.policy_artefact import Artefact
from testudo_deploy.shield.deadlock_resolution import patient, resolve
from testudo_deploy.shield.peer_table import NeighbourTable
from testudo_nodes.robot.policy_node import main

_step = Artefact.step


class Yielding:
    """The rule with what it remembers; asked once for each decision."""

    def __init__(self) -> None:
        self._memory = patient(np.array(0.0))
        self._place: np.ndarray | None = None

    def turned(self, artefact: Artefact, signals: Mapping[str, np.ndarray], nominal: np.ndarray) -> np.ndarray:
        """Return the wanted velocity (D,) [m/s], turned if the robot was held back since the last decision."""
        contract = artefact.contract
        period_s = contract.decision_ticks * contract.control_period_s
        place = np.asarray(signals["control_point_world"], float)
        moved = np.zeros_like(place) if self._place is None else (place - self._place) / period_s
        self._place = place
        points = np.asarray(signals["neighbour_position_world"], float).T  # where they are now: no age is left
        table = NeighbourTable(
            points, np.zeros_like(points), np.zeros(points.shape[1]), np.asarray(signals["neighbour_valid"]) > 0
        )
        found, self._memory = resolve(
            contract.shield, self._memory, place, table, np.asarray(nominal, float), moved, period_s
        )
        return found


_rule = Yielding()


def step(artefact: Artefact, signals: Mapping[str, np.ndarray], hidden: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Run the policy, and turn its wish if the robot was held back."""
    nominal, hidden = _step(artefact, signals, hidden)
    return _rule.turned(artefact, signals, nominal), hidden


if __name__ == "__main__":
    Artefact.step = step
    sys.exit(main())
