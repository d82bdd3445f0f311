"""The policy node without its shield, at top speed along x = y whatever its policy wants: row 33 drives it at a wall.

A policy slows down before its goal, and a goal is inside the arena: some robots stop short of what a guard refuses.
"""

import sys
from typing import Any

import numpy as np

from testudo_bench.fault_matrix.harness.unshielded_policy import step
from testudo_deploy.shield.reservations import ReservedSpace, ShieldInputs
from testudo_deploy.shield.shield import Shield
from testudo_deploy.shield.velocity_projection import ShieldResult
from testudo_nodes.robot.policy_node import main


def headlong(
    shield: Shield, inputs: ShieldInputs, own: ReservedSpace, nominal_world: np.ndarray, number: Any
) -> tuple[ShieldResult, ReservedSpace]:
    """Return the command for top speed along x = y, and a reservation of the way on which it leads."""
    top_world = np.full_like(nominal_world, shield.model.spec.control_point_speed_m_s / np.sqrt(2))
    return step(shield, inputs, own, top_world, number)


if __name__ == "__main__":
    Shield.step = headlong
    sys.exit(main())
