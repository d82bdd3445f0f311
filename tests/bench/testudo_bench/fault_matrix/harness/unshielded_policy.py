"""The policy node without its shield, as a negative control: it sends the nominal command.

It announces as reserved what it needs for that, without anybody's acknowledgement; the guard takes it for granted.
"""

import sys
from dataclasses import replace
from typing import Any

import numpy as np

from testudo_deploy.shield.reservations import ReservedSpace, ShieldInputs
from testudo_deploy.shield.shield import Shield
from testudo_deploy.shield.velocity_projection import ShieldResult, ShieldStatus
from testudo_hardware.motion.motion_model import actuator_command
from testudo_nodes.robot.policy_node import main


def step(
    shield: Shield, inputs: ShieldInputs, own: ReservedSpace, nominal_world: np.ndarray, _number: Any
) -> tuple[ShieldResult, ReservedSpace]:
    """Return the nominal command, and a reservation of the way on which it leads."""
    command = shield.model.limit_command(actuator_command(shield.model, inputs.stop, nominal_world))
    ahead = inputs.stop.position_world + 2 * shield.parameters.hold_s * nominal_world
    way = replace(own, owned_world=np.stack([inputs.measured_position_world, ahead]), pending=np.array(False))
    return ShieldResult(command, nominal_world, np.array(0.0), np.array(int(ShieldStatus.PASSED))), way


if __name__ == "__main__":
    Shield.step = step
    sys.exit(main())
