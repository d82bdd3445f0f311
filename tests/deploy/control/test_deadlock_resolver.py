"""Memory of the deadlock rule in recorded ticks: records of earlier versions are recognised and still read."""

import numpy as np
import pytest

from testudo_deploy.control.deadlock_resolver import DeadlockResolver, is_former, resolved_by
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_hardware.spec import load_robot

PLAIN, WAY = (1.0, 1.0, 0.0, 0.0), (0.0, 0.0, 0.0)


@pytest.mark.parametrize("robot", ["gritsbot_x", "crazyflie_2x"])
def test_memories_of_former_rules_are_told_apart_and_say_what_the_rule_gave(robot):
    spec = load_robot(robot)
    gave = (0.1, -0.05, 0.02)[: spec.dimension]
    nominal = np.array((0.2, 0.0, 0.0)[: spec.dimension])
    with_right_of_way = (*PLAIN, *WAY, *gave)
    assert is_former(PLAIN)
    assert is_former(with_right_of_way)
    assert resolved_by(PLAIN, nominal) == pytest.approx(nominal)  # it had not turned
    assert resolved_by(with_right_of_way, nominal) == pytest.approx(gave)
    now = DeadlockResolver(projection_parameters(spec), None, 0.05, spec.dimension).memory
    assert not is_former(now)
    assert resolved_by(now, nominal) == pytest.approx(0 * nominal)
