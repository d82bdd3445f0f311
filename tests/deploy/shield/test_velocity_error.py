"""A wrong measured velocity displaces predictions by no more than the margins' term for it, which is not zero."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.deploy.fine_motion import nominal, on_its_way, path_to_rest, random_command, velocity_error
from tests.deploy.shield.test_stop_tube import hull_distance, limit_end_m, some_time, tube_of
from tests.effort import examples

from testudo_deploy.control.state_prediction import estimate_state
from testudo_deploy.shield.margin_terms import stop_tube_terms, stopping_way_m, velocity_error_m
from testudo_deploy.shield.projection_margins import control_point_error_m, projection_parameters
from testudo_deploy.shield.stop_tube import stop_tube_parameters
from testudo_hardware.motion import MotionState, motion_model
from testudo_hardware.motion.motion_model import effective_command
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import load_robot, robot_files

ROBOTS = sorted(robot_files())


def with_error(spec, share):
    """Return the robot with a velocity error of this share of its top speed."""
    return dataclasses.replace(spec, velocity_error_m_s=share * spec.speed_limit_m_s)


def named(terms):
    return {term.name: term.value_m for term in terms}


@pytest.mark.parametrize("name", ROBOTS)
@settings(max_examples=examples(10), deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_place_of_rest_is_off_by_no_more_than_the_term(name, seed):
    """Any commands, any age of the pose: two estimates that differ in the measured velocity, rolled out to rest."""
    spec, rng = with_error(load_robot(name), 0.1), np.random.default_rng(seed)
    model = motion_model(spec)
    size = spec.dimension
    measured = MotionState(np.zeros(size), np.array(rng.uniform(-3, 3)), random_command(spec, rng))
    wrong = dataclasses.replace(measured, velocity=measured.velocity + velocity_error(spec, rng))
    commands = [effective_command(model, random_command(spec, rng)) for _ in range(6)]
    ahead_s = spec.pose_max_age_s + spec.command_delay_s
    times = tuple(rng.dirichlet(np.ones(6)) * ahead_s)
    true, found = (model.stopping_point(estimate_state(model, state, commands, times)) for state in (measured, wrong))
    # the measured robot may be faster than its limit by the error, or by turning while it is at top speed
    speed = spec.control_point_speed_m_s + spec.velocity_error_m_s
    way = spec.look_ahead_m if spec.kind == DIFFERENTIAL_DRIVE else 0.0
    way += speed * ahead_s + stopping_way_m(spec, speed)
    most = velocity_error_m(spec, ahead_s, way)
    assert np.linalg.norm(found.position_world - true.position_world) <= 1.02 * most


def test_a_pure_lag_forgets_the_velocity_with_its_time_constant():
    """gritsbot_x never reaches its acceleration limit: its place of rest is off by error times lag in any case."""
    spec = load_robot("gritsbot_x")
    model = motion_model(spec)
    start = MotionState(np.zeros(2), np.array(0.0), np.array([0.1, 0.0]))
    wrong = dataclasses.replace(start, velocity=np.array([0.12, 0.0]))
    commands = [np.array([value, 0.0]) for value in (0.2, -0.1, 0.05)]
    places = [
        model.rest_position(estimate_state(model, state, commands, (0.03, 0.05, 0.02)))[0] for state in (start, wrong)
    ]
    assert places[1] - places[0] == pytest.approx(0.02 * spec.velocity_lag_s)


@pytest.mark.parametrize("name", ROBOTS)
def test_without_the_term_a_wrong_velocity_leaves_the_tube(name):
    """Negative control: the tube of a robot as described, with nothing wrong but its measured velocity."""
    spec = with_error(load_robot(name), 2.0)
    exact = dataclasses.replace(spec, velocity_error_m_s=0.0, position_error_m=0.0, yaw_error_rad=0.0)
    model, space, truth = motion_model(spec), stop_tube_parameters(spec), nominal(spec)
    terms, beyond, inside = named(stop_tube_terms(spec)), 0.0, True
    assert "velocity" not in named(stop_tube_terms(exact))
    only = dataclasses.replace(spec, position_error_m=0.0, yaw_error_rad=0.0)
    for seed in range(8):
        rng = np.random.default_rng(seed)
        run, command = on_its_way(motion_model(only), truth, rng), random_command(spec, rng)
        path = path_to_rest(spec, truth, run, command, some_time(spec, rng))
        off = hull_distance(tube_of(model, run, command, space.hold_ticks), path[::3]).max()
        without = terms["bends"] + limit_end_m(spec, run)
        beyond = max(beyond, off - without)
        inside = inside and off <= space.tube_error_m
    assert inside
    assert beyond > 0


@pytest.mark.parametrize("name", ROBOTS)
def test_shipped_robots_have_one_and_both_layers_count_it(name):
    spec = load_robot(name)
    exact = dataclasses.replace(spec, velocity_error_m_s=0.0)
    assert spec.velocity_error_m_s > 0
    assert spec.quantities["sensing.velocity_error"].source.startswith("assumption")
    shown = named(projection_parameters(spec).terms)
    kappa = projection_parameters(spec).direction_factor
    assert shown["localisation"] + shown["velocity"] == pytest.approx(2 * kappa * control_point_error_m(spec))
    assert "velocity" not in named(projection_parameters(exact).terms)
    for field in ("separation_m", "wall_m"):
        assert getattr(projection_parameters(spec), field) > getattr(projection_parameters(exact), field)
    for field in ("tube_error_m", "clearance_m", "wall_m", "untrusted_m"):
        assert getattr(stop_tube_parameters(spec), field) > getattr(stop_tube_parameters(exact), field)
    # small beside the rest: it changes the distances that robots keep by less than a tenth, and those of segments by
    # less than a fifth where a base drives on for half a second after the last command
    assert projection_parameters(spec).separation_m < 1.1 * projection_parameters(exact).separation_m
    most = 1.2 if spec.dead_man_s >= 0.5 else 1.1
    assert stop_tube_parameters(spec).clearance_m < most * stop_tube_parameters(exact).clearance_m


@pytest.mark.parametrize("name", ROBOTS)
def test_layer_1_keeps_no_less_from_walls_than_the_stop_tube(name):
    """One number, which training and robot read: a robot does not slide to where layer 2 stops it."""
    spec = load_robot(name)
    space = stop_tube_parameters(spec)
    assert projection_parameters(spec).wall_m >= space.wall_m + space.noise_m - 1e-12
