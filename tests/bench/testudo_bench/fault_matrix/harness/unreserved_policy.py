"""The policy node without its shield, that goes on announcing the place where it stood: the guard must stop it."""

import sys
from typing import Any

from testudo_bench.fault_matrix.harness.unshielded_policy import step
from testudo_deploy.shield.reservations import ReservedSpace
from testudo_deploy.shield.shield import Shield
from testudo_deploy.shield.velocity_projection import ShieldResult
from testudo_nodes.robot.policy_node import main


def keep_announcing(
    shield: Shield, inputs: Any, own: ReservedSpace, *values: Any
) -> tuple[ShieldResult, ReservedSpace]:
    """Return the nominal command, and the space as before."""
    return step(shield, inputs, own, *values)[0], own


if __name__ == "__main__":
    Shield.step = keep_announcing
    sys.exit(main())
