"""A box in the plant: two robots push it, one does not, it is measured late, and none overlaps it at the start."""

import math

import numpy as np
import pytest
from tests.plant.plant.test_plant import ARENA, START_S, TICK_S

from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_plant.plant.odometry_sensor import OdometryModel
from testudo_plant.plant.plant import Plant, PlantRobot
from testudo_plant.plant.pushed_bodies import PlantBody
from testudo_sim.scenarios.scenario import make_scenario

SPEC = load_robot("gritsbot_x")
(BOX,) = make_scenario("push_box", SPEC, projection_parameters(SPEC)).boxes


def plant_with_box(*places, box=(0.0, 0.0), arena=ARENA):
    robots = [PlantRobot(f"r{i}", SPEC, place, 0.0) for i, place in enumerate(places)]
    return Plant(robots, arena, 0, 0.0, start_s=START_S, bodies=[PlantBody(BOX, box, 0.0)])


def pushed(plant, seconds=8.0):
    """Drive all robots ahead, and return the measured samples of the box."""
    samples = []
    for now_s in START_S + TICK_S * np.arange(round(seconds / TICK_S)):
        plant.step_to(now_s)
        for robot in plant.robots:
            plant.command(robot.name, (0.2, 0.0), now_s, now_s)
        samples += plant.body_poses("box")
    return samples


def test_two_robots_move_the_box_that_one_cannot():
    behind = -(BOX.size_m[0] / 2 + SPEC.body_radius_m + 0.05)
    pair = plant_with_box((behind, -0.1), (behind, 0.1))
    samples = pushed(pair)
    assert pair.body_truth("box").position_world[0] > 0.3
    assert not pair.contacts  # pushing is no collision
    stamps = [sample.stamp_s for sample in samples]
    assert np.all(np.diff(stamps) > 0)
    assert np.allclose(np.diff(stamps), 1 / 60, atol=pair.step_s)
    late_s = np.array([sample.due_s for sample in samples]) - stamps
    assert late_s.min() > 0.019
    assert late_s.max() < OdometryModel().latency_high_s + 0.01
    last, truth = samples[-1], pair.body_truth("box")
    assert math.dist(last.position_world, truth.position_world) < 0.2 * 0.08 + SPEC.position_error_m
    assert abs(last.yaw - truth.yaw) < 0.1
    alone = plant_with_box((behind, 0.0))
    pushed(alone, 4.0)
    assert alone.body_truth("box").position_world[0] < 0.01


@pytest.mark.parametrize(
    ("place", "box", "name"), [((0.2, 0.0), (0.0, 0.0), "r0"), ((1.0, 0.0), (-1.55, 0.0), "wall_x_low")]
)
def test_a_box_that_overlaps_something_at_the_start_is_refused(place, box, name):
    with pytest.raises(TestudoError, match="overlap by") as refused:
        plant_with_box(place, box=box)
    assert {"box", name} <= set(str(refused.value).split())


def test_without_a_robot_on_the_ground_a_box_is_refused():
    drone = PlantRobot("d0", load_robot("crazyflie_2x"), (0.0, 0.0, 1.0), 0.0)
    with pytest.raises(TestudoError, match="found a box and no robot on the ground"):
        Plant([drone], None, 0, bodies=[PlantBody(BOX, (1.0, 0.0), 0.0)])
