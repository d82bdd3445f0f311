"""Odometry comes to lie in the shared frame, by its initial pose or by what a localisation says."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.deploy.fine_motion import nominal
from tests.deploy.lone_drive import Drive

from testudo_deploy.fleet.fleet import FleetRobot
from testudo_deploy.fleet.localiser import (
    TRANSFORM_MAX_AGE_S,
    UNCORRECTED_WAY_M,
    CorrectedOdometry,
    PlacedOdometry,
    PoseOnly,
    localiser,
    placed,
)
from testudo_deploy.fleet.robot_links import LinkChoice
from testudo_deploy.fleet.robot_poses import PoseSource
from testudo_hardware.frames import PlanarTransform, turned, wrapped
from testudo_hardware.links.link_profile import load_link
from testudo_hardware.links.wire import OdometryReading, PoseReading, TransformReading
from testudo_hardware.spec import load_robot

GROUND, DRONE, BASE = load_robot("turtlebot4"), load_robot("crazyflie_2x"), load_robot("robomaster_s1")
QUARTER = math.pi / 2
NUMBERS, YAWS = st.floats(-20, 20), st.floats(-math.pi, math.pi)


def robot(source, kind="turtlebot4", link="turtlebot4", place=(2.0, 1.0), yaw=QUARTER):
    spec = load_robot(kind)
    return FleetRobot(
        "tb1",
        kind,
        place,
        yaw,
        place,
        spec,
        link=LinkChoice(link, load_link(link)),
        pose=PoseSource(source, "map", 0.0005, spec.pose_max_age_s),
    )


def close(reading, position, yaw, velocity):
    assert reading.position_world == pytest.approx(position, abs=1e-9)
    assert wrapped(reading.yaw - yaw) == pytest.approx(0.0, abs=1e-9)
    assert reading.velocity == pytest.approx(velocity, abs=1e-9)


def test_a_robot_that_starts_facing_y_and_drives_forward_drives_along_y():
    located = localiser(robot("odom+initial")).take(OdometryReading(5.0, (0.5, 0.0), 0.0, (0.2, 0.1)), 5.0)
    close(located.reading, (2.0, 1.5), QUARTER, (0.2, 0.1))
    assert (located.reading.stamp_s, located.age_s) == (5.0, 0.0)


@pytest.mark.parametrize(("spec", "up"), [(BASE, ()), (DRONE, (0.3,))])
def test_velocities_in_the_frame_of_the_odometry_turn_with_it(spec, up):
    frame = PlanarTransform((2.0, 1.0, 0.5)[: spec.dimension], QUARTER)
    reading = placed(OdometryReading(5.0, (0.5, 0.0, 1.0)[: spec.dimension], 0.0, (0.4, 0.0, *up)), frame, spec)
    close(reading, (2.0, 1.5, 1.5)[: spec.dimension], QUARTER, (0.0, 0.4, *up))


def test_odometry_in_the_shared_frame_is_left_as_it_is():
    reading = OdometryReading(5.0, (0.5, 0.0), 0.3, (0.2, 0.1))
    assert PlacedOdometry(GROUND, None).take(reading, 5.0).reading is reading


@given(NUMBERS, NUMBERS, YAWS, NUMBERS, NUMBERS, YAWS)
def test_placing_undoes_what_the_start_did(x, y, yaw, there_x, there_y, there_yaw):
    start, there = PlanarTransform((x, y), yaw), PlanarTransform((there_x, there_y), there_yaw)
    own = start.inverse().then(there)
    velocity = turned((0.3, 0.2), -yaw)
    got = placed(OdometryReading(1.0, own.position, own.yaw, velocity), start, BASE)
    close(got, there.position, there.yaw, (0.3, 0.2))


def test_numbers_that_are_not_finite_pass_for_the_control_loop_to_refuse():
    located = localiser(robot("odom+initial")).take(OdometryReading(5.0, (math.nan, 0.0), math.inf, (0.2, 0.1)), 5.0)
    assert math.isnan(located.reading.position_world[0])
    assert math.isnan(located.reading.yaw)


# ---- tf


def transform(stamp_s, x, y, yaw):
    return TransformReading(stamp_s, PlanarTransform((x, y), yaw))


def odometry(stamp_s, x, y=0.0, yaw=0.0):
    return OdometryReading(stamp_s, (x, y), yaw, (0.2, 0.0))


def test_map_to_odom_to_base_link_by_a_quarter_turn():
    place = localiser(robot("tf"))
    assert isinstance(place, CorrectedOdometry)
    assert place.take(odometry(10.0, 1.0), 10.0) is None
    place.correct(transform(10.0, 5.0, 0.0, QUARTER), 10.0)
    close(place.take(odometry(10.05, 1.0, 0.0, QUARTER), 10.05).reading, (5.0, 1.0), math.pi, (0.2, 0.0))


def test_a_correction_moves_the_robot_and_a_late_one_does_not():
    place = CorrectedOdometry(GROUND)
    place.correct(transform(11.0, 0.0, 0.0, 0.0), 10.0)  # dated ahead, as amcl does
    assert place.take(odometry(10.0, 1.0), 10.0).reading.position_world == (1.0, 0.0)
    place.correct(transform(11.1, 0.1, 0.0, 0.0), 10.1)
    place.correct(transform(11.05, 9.0, 0.0, 0.0), 10.1)
    assert place.take(odometry(10.1, 1.0), 10.1).reading.position_world == pytest.approx((1.1, 0.0))
    assert place.refused == 1


def test_a_transform_that_is_no_longer_sent_is_no_longer_relied_on():
    place = CorrectedOdometry(GROUND)
    place.correct(transform(10.0, 0.0, 0.0, 0.0), 10.0)
    assert place.take(odometry(10.0 + TRANSFORM_MAX_AGE_S, 0.0), 11.0) is not None
    assert place.take(odometry(10.01 + TRANSFORM_MAX_AGE_S, 0.0), 11.0) is None


def test_a_transform_that_is_not_finite_is_refused():
    place = CorrectedOdometry(GROUND)
    place.correct(transform(10.0, math.nan, 0.0, 0.0), 10.0)
    assert place.take(odometry(10.0, 0.0), 10.0) is None
    assert place.refused == 1


@pytest.mark.parametrize("ahead_s", [1.01, 60.0, 1e6])
def test_a_transform_of_a_clock_that_is_ahead_is_refused(ahead_s):
    """It would count as young for as long as it is ahead."""
    place = CorrectedOdometry(GROUND)
    place.correct(transform(10.0 + ahead_s, 0.0, 0.0, 0.0), 10.0)
    assert place.take(odometry(10.0, 0.0), 10.0) is None
    assert place.refused == 1


def test_a_transform_that_is_dated_ahead_ages_from_its_arrival():
    place = CorrectedOdometry(GROUND)
    place.correct(transform(10.9, 0.0, 0.0, 0.0), 10.0)
    assert place.take(odometry(10.0 + TRANSFORM_MAX_AGE_S, 0.0), 11.0) is not None
    assert place.take(odometry(10.01 + TRANSFORM_MAX_AGE_S, 0.0), 11.01) is None


# ---- amcl_pose


def test_amcl_places_the_odometry_of_its_moment_and_odometry_goes_on_from_there():
    place = localiser(robot("amcl_pose"))
    for k in range(5):
        assert place.take(odometry(10.0 + k / 10, k / 10), 10.0 + k / 10) is None
    # at 10.25 s odometry said 0.25 m; amcl saw the robot at (4, 4), facing y
    assert place.take(PoseReading(10.25, (4.0, 4.0), QUARTER), 10.45) is None
    located = place.take(odometry(10.5, 0.5), 10.5)
    close(located.reading, (4.0, 4.25), QUARTER, (0.2, 0.0))
    assert (located.reading.stamp_s, located.age_s) == (10.5, 0.0)


def test_amcl_that_is_ahead_of_odometry_waits_for_it():
    place = CorrectedOdometry(GROUND)
    place.take(odometry(10.0, 0.0), 10.0)
    place.take(PoseReading(10.05, (4.0, 4.0), 0.0), 10.06)
    located = place.take(odometry(10.1, 0.1), 10.1)
    assert located.reading.position_world == pytest.approx((4.05, 4.0))
    assert place.refused == 0


def test_odometry_is_read_between_samples_across_the_seam_of_the_angle():
    place = CorrectedOdometry(GROUND)
    place.take(odometry(10.0, 0.0, yaw=math.pi - 0.1), 10.0)
    place.take(odometry(10.1, 0.0, yaw=0.1 - math.pi), 10.1)
    place.take(PoseReading(10.05, (4.0, 4.0), math.pi), 10.1)
    close(place.take(odometry(10.2, 0.1, yaw=0.1 - math.pi), 10.2).reading, (4.1, 4.0), 0.1 - math.pi, (0.2, 0.0))


def test_amcl_that_falls_silent_is_relied_on_for_a_short_way_only():
    place, given_up = CorrectedOdometry(GROUND), None
    place.take(odometry(0.0, 0.0), 0.0)
    place.take(odometry(0.1, 0.0), 0.1)
    place.take(PoseReading(0.1, (4.0, 4.0), 0.0), 0.1)
    for k in range(200):
        if place.take(odometry(0.2 + k / 10, k * 0.01), 0.2 + k / 10) is None:
            given_up = k * 0.01
            break
    assert given_up == pytest.approx(UNCORRECTED_WAY_M, abs=0.0201)
    place.take(PoseReading(0.2 + k / 10, (5.0, 4.0), 0.0), 1.0)
    assert place.take(odometry(0.3 + k / 10, k * 0.01), 1.0).reading.position_world == pytest.approx((5.0, 4.0))


@pytest.mark.parametrize(
    "pose",
    [
        PoseReading(3.0, (4.0, 4.0), 0.0),
        PoseReading(10.0, (math.nan, 4.0), 0.0),
        PoseReading(math.nan, (4.0, 4.0), 0.0),
        PoseReading(70.0, (4.0, 4.0), 0.0),
    ],
)
def test_a_pose_without_its_odometry_or_not_finite_is_refused(pose):
    place = CorrectedOdometry(GROUND)
    place.take(odometry(9.9, 0.0), 9.9)
    place.take(odometry(10.0, 0.0), 10.0)
    place.take(pose, 10.0)
    assert place.refused == 1
    assert place.take(odometry(10.1, 0.0), 10.1) is None


def test_odometry_that_is_not_finite_or_comes_late_spoils_no_correction():
    place = CorrectedOdometry(GROUND)
    for stamp_s, x in ((10.0, 0.0), (10.1, math.nan), (math.nan, 0.1), (10.2, 0.2), (10.1, 7.0)):
        place.take(odometry(stamp_s, x), 10.2)
    place.take(PoseReading(10.1, (4.0, 4.0), 0.0), 10.2)
    assert place.take(odometry(10.3, 0.3), 10.3).reading.position_world == pytest.approx((4.2, 4.0))


def test_a_clock_that_is_set_back_begins_a_new_history():
    place = CorrectedOdometry(GROUND)
    place.take(odometry(3600.0, 0.0), 0.0)
    place.take(odometry(10.0, 0.0), 0.0)
    place.take(odometry(10.1, 0.1), 0.0)
    place.take(PoseReading(10.1, (4.0, 4.0), 0.0), 0.0)
    assert place.take(odometry(10.2, 0.2), 0.0).reading.position_world == pytest.approx((4.1, 4.0))


# ---- motion capture


def test_motion_capture_gets_its_velocity_from_the_filter_at_the_rate_of_the_profile():
    place = localiser(robot("mocap", "crazyflie_2x", "crazyswarm2", (0.0, 0.0, 1.0)))
    assert isinstance(place, PoseOnly)
    assert place.take(OdometryReading(0.0, (0.0, 0.0, 1.0), 0.0, (0.0, 0.0, 0.0)), 0.0) is None
    located = None
    for k in range(20):
        located = place.take(PoseReading(k / 100, (0.3 * k / 100, 0.0, 1.0), 0.0), k / 100)
    assert located.reading.velocity == pytest.approx((0.3, 0.0, 0.0), abs=1e-9)
    assert located.age_s == pytest.approx(0.03)
    assert located.reading.stamp_s == pytest.approx(0.16)


@pytest.mark.parametrize(
    ("kind", "link"),
    [("crazyflie_2x", "crazyswarm2"), ("robomaster_s1", "generic_twist"), ("turtlebot4", "turtlebot4")],
)
def test_a_robot_that_sees_poses_alone_drives_and_brakes_when_they_stop(kind, link):
    """Poses at 100 Hz, 10 ms late and with noise, through the filter into the control loop, velocities of their own."""
    rng, seen = np.random.default_rng(1), robot("mocap", kind, link)
    spec, place = seen.spec, localiser(seen)
    drive = Drive(spec, nominal(spec), rng)
    tick_ms, way, reasons = round(1000 * spec.control_period_s), [], []
    for ms in range(1, 2400):
        drive.move(0.001)
        if ms % 10 == 0:
            noise = 0.0005 * rng.standard_normal(spec.dimension)
            way.append(PoseReading(drive.now_s, tuple((drive.place + noise).tolist()), float(drive.yaw)))
            located = place.take(way[-2], drive.now_s) if len(way) > 1 and ms < 2000 else None
            if located is not None:
                sample = located.reading
                assert drive.loop.on_odometry(
                    sample.stamp_s, drive.now_s, sample.position_world, sample.yaw, sample.velocity
                )
        if ms % tick_ms == 0:
            wanted = [0.7 * spec.speed_limit_m_s * (1 if ms < 1000 else -1)] + [0.0] * (spec.dimension - 1)
            reasons.append((ms / 1000, drive.tick(wanted).reason))
    assert max(np.linalg.norm(pose.position_world) for pose in way) > 0.3 * spec.speed_limit_m_s
    assert {reason for time_s, reason in reasons if 0.15 < time_s < 2.0} == {""}
    stopped = [time_s for time_s, reason in reasons if time_s >= 2.0 and reason == "stale_pose"]
    assert stopped[0] <= 2.0 + spec.pose_max_age_s + spec.control_period_s
    assert stopped[-1] == reasons[-1][0]
