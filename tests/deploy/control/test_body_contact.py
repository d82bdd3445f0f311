"""A robot at a body that it pushes may be slower than its commands, and nowhere else."""

from types import SimpleNamespace

import numpy as np
import pytest

from testudo_deploy.control.body_contact import BodyContact
from testudo_deploy.control.pose_validator import MotionMonitor
from testudo_deploy.control.state_prediction import PendingCommands
from testudo_deploy.fleet.fleet_bodies import FleetBody
from testudo_hardware.motion import MotionState, motion_model
from testudo_hardware.motion.motion_model import effective_command
from testudo_hardware.spec import load_robot

SPEC = load_robot("gritsbot_x")
BOX = FleetBody("box", (0.3, 0.4, 0.1), 1.0, 0.3, (0.0, 0.0), 0.0)
"""Half of its diagonal is 0.25 m."""


def at(x):
    return MotionState(np.array([x, 0.0]), np.array(0.0), np.zeros(2))


def contact(**arrays):
    values = {name: np.array(value) for name, value in arrays.items()}
    return BodyContact([BOX], SPEC, lambda: SimpleNamespace(arrays=values))


def blocked_finding(touches):
    """Return the finding of the monitor of a robot that is commanded to drive for two seconds and does not move."""
    sent = PendingCommands(SPEC.command_delay_s, SPEC.dead_man_s)
    watch, command = MotionMonitor(SPEC, sent), effective_command(motion_model(SPEC), np.array([0.2, 0.0]))
    watch.touches = touches
    watch.begin(at(0.0))
    watch.hear_guard(passes=True, received_s=0.0)
    for number in range(1, 60):
        stamp_s = number * SPEC.control_period_s
        watch.hear_guard(passes=True, received_s=stamp_s)
        watch.follow(at(0.0), True, stamp_s - SPEC.control_period_s, stamp_s, stamp_s)
        sent.push(stamp_s, command)
    return watch.finding


def test_it_touches_within_reach_of_where_the_task_says_the_body_is():
    near = contact(box_position_world=[1.0, 0.0])
    reach_m = 0.25 + SPEC.body_radius_m + 0.4 * 0.2 + 2 * SPEC.position_error_m
    assert near(at(1.0 - reach_m + 0.001))
    assert not near(at(1.0 - reach_m - 0.001))
    assert not contact(crate_position_world=[0.0, 0.0])(at(0.0))
    assert not BodyContact([BOX], SPEC, lambda: None)(at(0.0))


@pytest.mark.parametrize(("box_x", "found"), [(0.3, False), (3.0, True)])
def test_a_robot_that_does_not_move_is_told_unless_it_is_at_the_body(box_x, found):
    assert blocked_finding(contact(box_position_world=[box_x, 0.0])).startswith("no_response") == found
