"""Bases that differ from their robot file, as vendors' bases do: time-outs, backing out, wheels that are off."""

import math

import numpy as np
import pytest

from testudo_hardware.frames import PlanarTransform
from testudo_hardware.spec import load_robot
from testudo_plant.plant.driver import Driver, DriverReason, ReverseLimit
from testudo_plant.plant.odometry_sensor import OdometryModel, WheelOdometry
from testudo_plant.plant.plant import Plant, PlantRobot
from testudo_plant.worlds.world import RobotPose

SPEC = load_robot("turtlebot4")


def test_a_base_with_a_longer_time_out_drives_on_for_that_time():
    found = {}
    for dead_man_s in (None, 0.5):
        driver = Driver(SPEC, 0.0, 0.0, dead_man_s=dead_man_s)
        driver.receive((0.2, 0.0), 0.0, 0.0)
        stops = [now_s for now_s in np.arange(0.0, 1.0, 0.01) if driver.advance(now_s).reason is DriverReason.DEAD_MAN]
        found[dead_man_s] = stops[0]
    assert found == {None: pytest.approx(SPEC.dead_man_s + 0.01), 0.5: pytest.approx(0.51)}


def test_a_base_with_a_backup_limit_backs_out_no_farther_than_it_drove_forward():
    limit, x, lowest = ReverseLimit(0.15), 0.0, 0.0
    assert limit.bounded((-0.1, 0.3), PlanarTransform((0.0, 0.0), 0.0)) == (
        0.0,
        0.3,
    )  # it turns, and earned nothing yet
    for forward in (*[0.1] * 50, *[-0.1] * 100):
        x += limit.bounded((forward, 0.0), PlanarTransform((x, 0.0), 0.0))[0] * 0.1
        lowest = min(lowest, x - 0.5) if forward < 0 else 0.0
    assert lowest == pytest.approx(-0.15, abs=0.011)


def test_a_robot_of_the_plant_with_the_limit_stands_where_another_backs_out():
    limited = [PlantRobot("a", SPEC, (0.0, 0.0), 0.0, reverse_way_m=0.15), PlantRobot("b", SPEC, (0.0, 2.0), 0.0)]
    plant = Plant(limited, None, seed=0, spread=0.0)
    for now_s in np.arange(0.0, 1.5, 0.05):
        plant.step_to(now_s)
        for name in ("a", "b"):
            plant.command(name, (-0.2, 0.0), now_s, now_s)
    assert plant.truth("a").position_world[0] == pytest.approx(0.0, abs=1e-3)
    assert plant.truth("b").position_world[0] < -0.15


def test_wheels_are_off_by_a_share_of_the_way_and_smooth():
    wheels = WheelOdometry(0.05, np.random.default_rng(3))
    for k in range(101):
        yaw = 0.02 * k
        pose = RobotPose((math.sin(yaw) / 2, (1 - math.cos(yaw)) / 2), yaw, (0.0, 0.0))
        reckoned = wheels.move(pose)
    assert reckoned.yaw == pytest.approx(2.0 * wheels.turn_scale)
    assert 0.95 <= wheels.way_scale <= 1.05
    assert wheels.way_scale != 1.0
    radius = 0.5 * wheels.way_scale / wheels.turn_scale
    assert reckoned.position[0] == pytest.approx(radius * math.sin(reckoned.yaw), abs=1e-3)


def test_noise_of_a_robot_of_its_own_replaces_the_third_of_its_error():
    model = OdometryModel(position_sigma_m=0.05, drift=0.01)
    robots = [PlantRobot("a", SPEC, (0.0, 0.0), 0.0, odometry=model), PlantRobot("b", SPEC, (0.0, 2.0), 0.0)]
    plant = Plant(robots, None, seed=0)
    plant.step_to(4.0)
    spreads = {name: np.std([one.position_world[0] for one in plant.odometry(name)]) for name in ("a", "b")}
    assert spreads["a"] == pytest.approx(0.05, rel=0.25)
    assert spreads["b"] == pytest.approx(SPEC.position_error_m / 3, rel=0.25)
