"""The margins of layers 2 and 3 are their terms, and grow with all that is uncertain."""

import dataclasses
import json

import pytest

from testudo_deploy.shield.margin_terms import stop_tube_terms
from testudo_deploy.shield.stop_tube import StopTubeParameters, stop_tube_parameters
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot, robot_files
from testudo_hardware.strict_files import read_as

ROBOTS = sorted(robot_files())


def but(spec, key, *, wider):
    """Return a robot with a wider interval of a quantity."""
    quantity = spec.quantities[key]
    wide = dataclasses.replace(quantity, low=quantity.low - wider, high=quantity.high + wider)
    return dataclasses.replace(spec, quantities={**spec.quantities, key: wide})


@pytest.mark.parametrize("name", ROBOTS)
def test_terms_add_up_and_each_has_a_source(name):
    spec = load_robot(name)
    space = stop_tube_parameters(spec)
    assert space.terms == stop_tube_terms(spec)
    assert space.tube_error_m == pytest.approx(sum(term.value_m for term in space.terms))
    for term in space.terms:
        assert term.value_m > 0
        assert len(term.source) > 10
    assert len({term.name for term in space.terms}) == len(space.terms)
    body, lane, error = spec.keep_radius_m, space.lane_m, space.tube_error_m
    assert space.clearance_m == pytest.approx(2 * (body + lane + error))
    assert space.wall_m == pytest.approx(spec.body_radius_m + error)
    assert space.untrusted_m == pytest.approx(2 * body + error + spec.position_error_m)
    assert space.noise_m == pytest.approx(2 * spec.position_error_m)


@pytest.mark.parametrize("name", ROBOTS)
def test_the_hold_is_the_dead_man_time_and_a_tick_in_ticks(name):
    spec = load_robot(name)
    ticks = stop_tube_parameters(spec).hold_ticks
    assert (ticks - 1) * spec.control_period_s < spec.dead_man_s + spec.control_period_s
    assert ticks * spec.control_period_s >= spec.dead_man_s + spec.control_period_s - 1e-9


@pytest.mark.parametrize("name", ROBOTS)
def test_they_grow_with_each_uncertain_quantity(name):
    spec = load_robot(name)
    least = stop_tube_parameters(spec)
    wider = [
        but(spec, key, wider=0.01)
        for key in (
            "dynamics.velocity_lag",
            "dynamics.command_delay",
            "dynamics.speed_scale",
            *(["dynamics.turn_scale"] if spec.kind == "differential_drive" else []),
        )
    ]
    wider += [
        dataclasses.replace(spec, **{field: getattr(spec, field) + 0.01})
        for field in (
            "position_error_m",
            "pose_max_age_s",
            "dead_man_s",
            "command_delay_s",
            *(["yaw_error_rad"] if spec.kind != "velocity_point" else []),
        )
    ]
    wider.append(dataclasses.replace(spec, acceleration_limit_m_s2=0.2 * spec.acceleration_limit_m_s2))
    for worse in wider:
        space = stop_tube_parameters(worse)
        for field in ("clearance_m", "wall_m", "untrusted_m", "tube_error_m"):
            assert getattr(space, field) > getattr(least, field)


def test_peers_of_another_kind_add_their_own_errors():
    own, other = load_robot("gritsbot_x"), load_robot("turtlebot4")
    alone, mixed = stop_tube_parameters(own), stop_tube_parameters(own, other)
    assert mixed.tube_error_m == alone.tube_error_m
    theirs = stop_tube_parameters(other)
    assert mixed.clearance_m == pytest.approx((alone.clearance_m + theirs.clearance_m) / 2)
    assert mixed.clearance_m == pytest.approx(stop_tube_parameters(other, own).clearance_m)
    assert mixed.untrusted_speed_m_s == theirs.untrusted_speed_m_s
    assert mixed.hold_ticks * own.control_period_s >= other.hold_s


@pytest.mark.parametrize("name", ROBOTS)
def test_they_can_be_written_down_and_read_again(name):
    space = stop_tube_parameters(load_robot(name))
    values = json.loads(json.dumps(space.to_dict()))
    assert read_as(StopTubeParameters, values, "shield.space", TestudoError) == space
    for wrong in ({"terms": []}, {**values, "more": 1}, {**values, "terms": [{"name": "a"}]}):
        with pytest.raises(TestudoError, match=r"shield\.space"):
            read_as(StopTubeParameters, wrong, "shield.space", TestudoError)


def test_a_segment_is_as_wide_as_the_error_of_the_pose_that_has_to_stay_in_it():
    """Otherwise noise alone takes the measured place out of the segment, and the robot waits for another."""
    own = load_robot("turtlebot4")
    usual, noisy = stop_tube_parameters(own), stop_tube_parameters(dataclasses.replace(own, position_error_m=0.15))
    assert usual.lane_m == pytest.approx(0.25 * own.keep_radius_m)
    assert noisy.lane_m == 0.15
    assert noisy.clearance_m == pytest.approx(
        usual.clearance_m + 2 * (0.15 - own.position_error_m + 0.15 - usual.lane_m)
    )
    assert noisy.beside_m == pytest.approx(usual.beside_m + 0.15 - own.position_error_m + 0.15 - usual.lane_m)
