"""The control loop of a policy that chooses way-points: the velocity follows the pose at every tick."""

import json
import math

import numpy as np
import pytest

from testudo_deploy.contract.command_types import velocity_command
from testudo_deploy.contract.messages import TickRecord
from testudo_hardware.spec import load_robot

GROUND = load_robot("gritsbot_x")
AHEAD_M = GROUND.look_ahead_m


@pytest.fixture
def rig(make_loop):
    """A loop under a stub policy whose way-point is `rig.waypoint`, decided every third tick."""
    made = make_loop(
        contract=lambda contract: contract.replace(command=velocity_command("waypoint_world", GROUND)), at=(0.0, 0.0)
    )
    made.waypoint, made.decisions = (0.2 + AHEAD_M, 0.0), 0

    def answer(signals, hidden):
        made.decisions += 1
        return np.array(made.waypoint), hidden

    made.policy.answer = answer
    return made


def step(rig, position):
    """Return the record of a tick at a place."""
    rig.now_s += rig.spec.control_period_s
    rig.see(position=position)
    rig.hear()
    return rig.loop.tick(rig.now_s)


def test_the_velocity_shrinks_on_the_way_between_decisions(rig):
    records = [step(rig, (0.002 * k, 0.0)) for k in range(3)]
    assert [record.decided for record in records] == [True, False, False]
    for k, record in enumerate(records):
        assert not record.reason
        assert record.waypoint_world == pytest.approx(rig.waypoint)
        ahead = record.control_point_world[0]
        assert record.nominal_world == pytest.approx((0.8 * (rig.waypoint[0] - ahead), 0.0), abs=1e-9)
        assert k == 0 or record.nominal_world[0] < records[k - 1].nominal_world[0]
        assert TickRecord.decode(record.encode()) == record
    assert rig.decisions == 1


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_waypoint_that_is_no_number_brakes(rig, number):
    rig.waypoint = (number, 0.0)
    record = step(rig, (0.0, 0.0))
    assert record.reason.startswith("policy_error")
    assert not any(record.sent_command)
    assert record.waypoint_world == ()


def test_a_place_far_away_is_approached_at_the_speed_of_the_contract(rig):
    rig.waypoint = (1e12, -1e12)
    record = step(rig, (0.0, 0.0))
    assert math.hypot(*record.nominal_world) == pytest.approx(GROUND.control_point_speed_m_s)


def test_after_a_brake_the_policy_decides_again_and_no_old_waypoint_is_left(rig):
    step(rig, (0.0, 0.0))
    rig.waypoint = (-0.2, 0.0)
    rig.now_s += rig.spec.control_period_s
    rig.see()
    rig.hear()
    braked = rig.loop.tick(rig.now_s, order="hold")
    assert (braked.nominal_world, braked.waypoint_world) == (None, ())
    record = step(rig, (0.0, 0.0))
    assert record.decided
    assert record.waypoint_world == (-0.2, 0.0)
    assert record.nominal_world[0] < 0


def test_a_record_of_before_is_read_as_one_without_a_waypoint(rig):
    values = json.loads(step(rig, (0.0, 0.0)).encode())
    del values["waypoint_world"]
    assert TickRecord.decode(json.dumps(values).encode()).waypoint_world == ()
