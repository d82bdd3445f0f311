"""The policy node without its shield: what the policy wants is sent.

A harness in which robots then touch can tell whether the shield does its work.
"""

import sys
from typing import Any

import numpy as np

from testudo_deploy.shield.reservations import ReservedSpace, ShieldInputs
from testudo_deploy.shield.shield import Shield
from testudo_deploy.shield.velocity_projection import ShieldResult, ShieldStatus
from testudo_hardware.motion.motion_model import actuator_command
from testudo_nodes.robot.policy_node import main


def step(
    shield: Shield, sight: ShieldInputs, own: ReservedSpace, nominal_world: np.ndarray, _number: Any
) -> tuple[ShieldResult, ReservedSpace]:
    """Let the wish pass."""
    command = shield.model.limit_command(actuator_command(shield.model, sight.stop, nominal_world))
    return ShieldResult(command, nominal_world, np.array(0.0), np.array(int(ShieldStatus.PASSED))), own


if __name__ == "__main__":
    Shield.step = step
    sys.exit(main())
