"""Odometry fused with noisy localisation: it holds the errors of the robot file, or gives no pose."""

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.deploy.turtlebots import load_turtlebots

from testudo_deploy.fleet.fleet import load_fleet
from testudo_deploy.fleet.fleet_writer import save_fleet
from testudo_deploy.fleet.localiser import localiser
from testudo_deploy.fleet.pose_fusion import SIGMAS, FusedOdometry, FusionNoise, left_by_filter
from testudo_deploy.fleet.robot_links import FleetError
from testudo_hardware.frames import PlanarTransform, wrapped
from testudo_hardware.links.wire import OdometryReading, PoseReading, TransformReading
from testudo_hardware.spec import load_robot, parse_robot

_TABLES = load_robot("turtlebot4").to_dict()
_TABLES["sensing"]["position_error"] |= {"value": 0.05, "interval": [0.05, 0.05]}
SPEC = parse_robot(_TABLES, "turtlebot4 with a larger error")
NOISE = FusionNoise(0.05, 0.035, 0.01)
PERIOD_S, DELAY_S = 0.05, 0.15
START = PlanarTransform((1.0, -2.0), 2.5)


class Robot:
    """Drives circles; its wheels are off by a share, what localises it has noise of `NOISE`."""

    def __init__(self, seed=0, drift=0.0):
        self.random, self.scale = np.random.default_rng(seed), 1 + drift
        self.true, self.reckoned, self.now_s = START, PlanarTransform((0.0, 0.0), 0.0), 100.0

    def drive(self, velocity=(0.3, 0.4)):
        """Return the odometry after the next period."""
        self.now_s += PERIOD_S
        turn, way = velocity[1] * PERIOD_S, velocity[0] * PERIOD_S
        step = PlanarTransform((way * math.cos(turn / 2), way * math.sin(turn / 2)), turn)
        self.true = self.true.then(step)
        slipped = PlanarTransform(tuple(self.scale * part for part in step.position), self.scale * turn)
        self.reckoned = self.reckoned.then(slipped)
        said = (self.scale * velocity[0], self.scale * velocity[1])
        return OdometryReading(self.now_s, self.reckoned.position, self.reckoned.yaw, said)

    def seen(self, shift=(0.0, 0.0)):
        """Return its place with noise."""
        x, y, turn = self.random.normal(0, (0.05, 0.05, 0.035))
        place = (self.true.position[0] + x + shift[0], self.true.position[1] + y + shift[1])
        return PlanarTransform(place, wrapped(self.true.yaw + turn))

    def absolute(self, **options):
        """Return odometry whose pose is a noisy localisation, as of source `odom`."""
        odometry, seen = self.drive(**options), self.seen()
        return replace(odometry, position_world=seen.position, yaw=seen.yaw)


def off_m(located, robot):
    return math.dist(located.reading.position_world, robot.true.position)


@pytest.mark.parametrize("source", ["odom", "tf", "amcl_pose"])
def test_noise_of_5_cm_becomes_an_error_within_the_file_while_the_wheels_are_off_by_a_share(source):
    raw, fused, turns = [], [], []
    for seed in range(4):
        robot, fusion = Robot(seed, drift=0.01), FusedOdometry(SPEC, NOISE, absolute=source == "odom")
        for k in range(600):
            if source == "odom":
                message = robot.absolute()
                raw.append(math.dist(message.position_world, robot.true.position))
                located = fusion.take(message, robot.now_s)
            else:
                located = fusion.take(robot.drive(), robot.now_s)
                if k % 2 == 0:
                    seen = robot.seen()
                    raw.append(math.dist(seen.position, robot.true.position))
                    if source == "tf":
                        placed = seen.then(robot.reckoned.inverse())
                        fusion.correct(TransformReading(robot.now_s, placed), robot.now_s + 0.01)
                    else:
                        assert fusion.take(PoseReading(robot.now_s, seen.position, seen.yaw), robot.now_s) is None
            if located is not None:
                fused.append(off_m(located, robot))
                turns.append(abs(wrapped(located.reading.yaw - robot.true.yaw)))
                assert located.reading.stamp_s == robot.now_s
    assert len(fused) > 4 * 560  # it gives poses from the first second on
    assert np.mean(np.array(raw) > SPEC.position_error_m) > 0.5  # negative control: without the filter they are not
    assert np.mean(np.array(fused) > SPEC.position_error_m) < 0.01
    assert np.mean(np.array(turns) > SPEC.yaw_error_rad) < 0.01


def test_a_localisation_that_comes_late_corrects_the_moment_of_its_stamp():
    robot, fusion, late = Robot(), FusedOdometry(SPEC, FusionNoise(0.002, 0.002, 0.01), absolute=False), []
    for _ in range(60):
        located = fusion.take(robot.drive(), robot.now_s)
        late.append((robot.now_s, robot.true))
        stamp_s, place = late[max(0, len(late) - 1 - round(DELAY_S / PERIOD_S))]
        fusion.take(PoseReading(stamp_s, place.position, place.yaw), robot.now_s)
    assert off_m(located, robot) < 0.002  # and not the 45 mm that it drove since


def test_it_gives_no_pose_before_it_holds_the_errors_of_the_file():
    robot, fusion, shown = Robot(), FusedOdometry(SPEC, NOISE, absolute=True), []
    for _ in range(100):
        located = fusion.take(robot.absolute(), robot.now_s)
        off, turn = fusion.deviation
        good = SIGMAS * off <= SPEC.position_error_m and SIGMAS * turn <= SPEC.yaw_error_rad
        assert (located is not None) == good
        shown.append(good)
    assert not any(shown[:5])
    assert all(shown[30:])


def test_without_localisation_it_gives_poses_as_long_as_the_odometry_holds_the_errors():
    robot, fusion = Robot(), FusedOdometry(SPEC, NOISE, absolute=False)
    for _ in range(60):
        fusion.take(robot.drive(), robot.now_s)
        seen = robot.seen()
        fusion.take(PoseReading(robot.now_s, seen.position, seen.yaw), robot.now_s)
    given = [fusion.take(robot.drive(), robot.now_s) is not None for _ in range(400)]
    assert 10 < sum(given) < 300
    assert not any(given[sum(given) :])  # and then never again


def test_a_robot_that_stands_keeps_its_place_without_localisation():
    robot, fusion = Robot(), FusedOdometry(SPEC, NOISE, absolute=False)
    for k in range(2000):
        located = fusion.take(robot.drive((0.0, 0.0)), robot.now_s)
        if k < 60:
            seen = robot.seen()
            fusion.take(PoseReading(robot.now_s, seen.position, seen.yaw), robot.now_s)
    assert located is not None


def test_a_robot_that_was_carried_is_not_averaged_but_found_anew():
    robot, fusion = Robot(), FusedOdometry(SPEC, NOISE, absolute=True)
    for _ in range(100):
        fusion.take(robot.absolute(velocity=(0.0, 0.0)), robot.now_s)
    robot.true = PlanarTransform((robot.true.position[0] + 0.5, robot.true.position[1]), robot.true.yaw)
    first = fusion.take(robot.absolute(velocity=(0.0, 0.0)), robot.now_s)
    assert first is None
    assert fusion.restarts == 1  # no pose until it knows the new place: the robot brakes
    found = [fusion.take(robot.absolute(velocity=(0.0, 0.0)), robot.now_s) for _ in range(60)]
    assert off_m(found[-1], robot) < SPEC.position_error_m
    assert all(one is None or off_m(one, robot) < 2 * SPEC.position_error_m for one in found)


def test_a_repeated_transform_tells_nothing_new_and_an_old_one_is_not_used():
    robot, fusion = Robot(), FusedOdometry(SPEC, NOISE, absolute=False)
    fusion.take(robot.drive((0.0, 0.0)), robot.now_s)
    placed = robot.seen().then(robot.reckoned.inverse())
    for _ in range(200):
        fusion.correct(TransformReading(robot.now_s, placed), robot.now_s)
        assert fusion.take(robot.drive((0.0, 0.0)), robot.now_s) is None  # one noisy transform, sent 200 times
    for _ in range(60):
        fusion.correct(TransformReading(robot.now_s, robot.seen().then(robot.reckoned.inverse())), robot.now_s)
        located = fusion.take(robot.drive((0.0, 0.0)), robot.now_s)
    assert located is not None
    for _ in range(22):
        located = fusion.take(robot.drive((0.0, 0.0)), robot.now_s)
    assert located is None


def test_odometry_that_is_set_to_another_place_gives_no_pose_before_it_is_localised_again():
    """amcl is silent while a robot stands: the place that a base reports after its restart would pass as a new one."""
    robot, fusion = Robot(), FusedOdometry(SPEC, NOISE, absolute=False)
    for _ in range(60):
        fusion.take(robot.drive(), robot.now_s)
        seen = robot.seen()
        fusion.take(PoseReading(robot.now_s, seen.position, seen.yaw), robot.now_s)
    assert fusion.take(robot.drive(), robot.now_s) is not None
    assert fusion.restarts == 0
    robot.reckoned = PlanarTransform((0.0, 0.0), 0.0)
    assert all(fusion.take(robot.drive((0.0, 0.0)), robot.now_s) is None for _ in range(60))
    assert fusion.restarts == 1  # upon which the control loop brakes


@pytest.mark.parametrize("absolute", [True, False])
def test_odometry_of_the_future_changes_nothing(absolute):
    """A second ahead it would look like a gap, and what follows like late odometry: no pose for a second."""
    robot, fusion = Robot(), FusedOdometry(SPEC, NOISE, absolute=absolute)

    def drive():
        if absolute:
            return fusion.take(robot.absolute(), robot.now_s)
        seen = robot.seen()
        fusion.take(PoseReading(robot.now_s, seen.position, seen.yaw), robot.now_s)
        return fusion.take(robot.drive(), robot.now_s)

    for _ in range(100):
        last = drive()
    assert last is not None
    refused = fusion.refused
    for _ in range(20):
        last = drive()
        ahead = replace(last.reading, stamp_s=robot.now_s + 1.0, position_world=(0.0, 0.0))
        assert fusion.take(ahead, robot.now_s) is None
        assert off_m(last, robot) < SPEC.position_error_m
    assert (fusion.refused, fusion.restarts) == (refused + 20, 0)


def test_after_a_gap_velocities_do_not_tell_where_the_robot_is():
    robot, fusion = Robot(), FusedOdometry(SPEC, NOISE, absolute=True)
    for _ in range(100):
        assert fusion.take(robot.absolute(), robot.now_s) is None or fusion.deviation[0] < 0.02
    robot.now_s += 0.6
    assert fusion.take(robot.absolute(), robot.now_s) is None
    assert fusion.restarts == 0  # poses of before are too old already


@pytest.mark.parametrize("number", [math.nan, math.inf, 1e300])
def test_numbers_that_are_no_measurements_change_nothing(number):
    robot, fusion = Robot(), FusedOdometry(SPEC, NOISE, absolute=False)
    for _ in range(60):
        fusion.take(robot.drive(), robot.now_s)
        seen = robot.seen()
        fusion.take(PoseReading(robot.now_s, seen.position, seen.yaw), robot.now_s)
    before = fusion.deviation
    fusion.take(PoseReading(robot.now_s, (number, 0.0), 0.0), robot.now_s)
    fusion.take(PoseReading(number, (0.0, 0.0), 0.0), robot.now_s)
    fusion.correct(TransformReading(robot.now_s, PlanarTransform((0.0, number), 0.0)), robot.now_s)
    bad = fusion.take(OdometryReading(robot.now_s + 1.0, (number, 0.0), 0.0, (0.0, 0.0)), robot.now_s)
    assert bad.reading.position_world[0] is number  # the control loop refuses and counts it
    assert fusion.deviation == before


def test_odometry_that_is_repeated_or_late_gives_no_pose():
    robot, fusion = Robot(), FusedOdometry(SPEC, NOISE, absolute=True)
    message = robot.absolute()
    fusion.take(message, robot.now_s)
    assert fusion.take(message, robot.now_s) is None
    assert fusion.refused == 1


def test_a_fleet_file_chooses_the_filter_and_is_refused_where_it_cannot_hold_the_file(tmp_path):
    pose = {"source": "tf", "frame": "map", "sigma": 0.05, "filter": "kalman", "yaw_sigma": 0.035}
    link = {"profile": "turtlebot4", "remappings": {"/tf": "tf"}}
    fleet = load_turtlebots(tmp_path, tb1={"link": link, "pose": pose}, tb2={"link": link, "pose": pose})
    robot = fleet.robot("tb1")
    assert isinstance(localiser(robot), FusedOdometry)
    assert (robot.pose.sigma_m, robot.pose.yaw_sigma_rad, robot.pose.odometry_drift) == (0.05, 0.035, 0.01)
    save_fleet(fleet, tmp_path / "again.yaml")
    assert load_fleet(tmp_path / "again.yaml").robots == fleet.robots
    raw = {**pose, "source": "odom", "frame": "odom"}
    for change, match in (
        ({"sigma": 0.3}, r"leaves .* expected a third of sensing\.position_error"),
        ({"sigma": -0.1}, r"pose\.sigma: found -0\.1 m, expected above 0"),
        ({"odometry_drift": 0.0}, r"odometry_drift: found 0, expected above 0"),
        ({"filter": ""}, "yaw_sigma or odometry_drift"),
        ({"source": "odom+initial", "frame": "map"}, "fuses odometry with localisation"),
    ):
        with pytest.raises(FleetError, match=match):
            load_turtlebots(tmp_path, tb1={"link": "turtlebot4", "pose": {**raw, **change}})


def test_what_the_filter_leaves_is_what_it_claims():
    left_m, left_rad = left_by_filter(SPEC, NOISE, 20.0)
    assert 0.005 < left_m < NOISE.position_sigma_m / 4
    assert left_rad < NOISE.yaw_sigma_rad / 2
