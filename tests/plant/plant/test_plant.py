import math
from itertools import pairwise

import numpy as np
import pytest

from testudo_deploy.shield.velocity_projection import Arena
from testudo_hardware.errors import TestudoError
from testudo_hardware.links.wire import body_forward_command
from testudo_hardware.spec import load_robot
from testudo_plant.plant.driver import CommandVerdict, DriverReason
from testudo_plant.plant.odometry_sensor import OdometryModel
from testudo_plant.plant.plant import Plant, PlantRobot

SPEC = load_robot("gritsbot_x")
DRONE = load_robot("crazyflie_2x")
BASE = load_robot("robomaster_s1")
ARENA = Arena((-1.6, -1.0), (1.6, 1.0))
TICK_S = SPEC.control_period_s
START_S = 1000.0


def plant_of(*places, spec=SPEC, seed=0, spread=0.0, arena=ARENA):
    """Return a plant whose robots r0, r1, ... start at places (x, y, yaw)."""
    return Plant(
        [PlantRobot(f"r{i}", spec, place[:-1], place[-1]) for i, place in enumerate(places)],
        arena,
        seed,
        spread,
        start_s=START_S,
    )


def drive(plant, commands, duration_s, sent=lambda now_s: now_s):
    """Send each robot its command at every tick; return the times of the ticks."""
    times = plant.time_s + TICK_S * np.arange(round(duration_s / TICK_S))
    for now_s in times:
        plant.step_to(now_s)
        for name, values in commands.items():
            plant.command(name, values, sent(now_s), now_s)
    plant.step_to(times[-1] + TICK_S)
    return times


def test_a_command_acts_after_its_delay():
    plant = plant_of((0.0, 0.0, 0.0))
    assert plant.applied("r0").reason is DriverReason.START
    assert plant.command("r0", (0.1, 0.0), START_S, START_S) is CommandVerdict.ACCEPTED
    plant.step_to(START_S + SPEC.command_delay_s - 2 * plant.step_s)
    assert plant.applied("r0").values == (0.0, 0.0)
    plant.step_to(START_S + SPEC.command_delay_s + 2 * plant.step_s)
    assert plant.applied("r0").values == (0.1, 0.0)
    assert plant.applied("r0").since_s == pytest.approx(START_S + SPEC.command_delay_s)
    assert plant.truth("r0").velocity[0] > 0


def test_a_command_beyond_the_limits_is_clipped():
    plant = plant_of((0.0, 0.0, 0.0))
    assert plant.command("r0", (1.0, 0.0), START_S, START_S) is CommandVerdict.CLIPPED
    plant.step_to(START_S + 0.07)
    assert plant.applied("r0").reason is DriverReason.CLIPPED
    assert plant.applied("r0").values == pytest.approx((SPEC.speed_limit_m_s, 0.0))


def brakes_from(plant, speed_m_s):
    """Return the time from now until the robot is at 5 % of a speed, within a second."""
    begin_s = plant.time_s
    while plant.truth("r0").velocity[0] > 0.05 * speed_m_s:
        plant.step_to(plant.time_s + plant.step_s)
        assert plant.time_s < begin_s + 1.0
    return plant.time_s - begin_s


def test_silence_brakes_within_the_dead_man_time_and_the_lag():
    plant = plant_of((-1.0, 0.0, 0.0))
    last_s = drive(plant, {"r0": (0.15, 0.0)}, 2.0)[-1]
    assert plant.truth("r0").velocity[0] == pytest.approx(0.15, rel=0.03)
    # two steps early, so that a late step still brakes in time
    plant.step_to(last_s + SPEC.dead_man_s - 3 * plant.step_s)
    assert plant.applied("r0").reason is DriverReason.COMMAND
    plant.step_to(last_s + SPEC.dead_man_s)
    applied = plant.applied("r0")
    assert (applied.values, applied.reason) == ((0.0, 0.0), DriverReason.DEAD_MAN)
    assert "dead-man time of 0.1 s" in applied.sentence
    assert applied.since_s <= last_s + SPEC.dead_man_s + 2 * plant.step_s
    assert brakes_from(plant, 0.15) < 3.5 * SPEC.velocity_lag_s  # 5 % is three lags


@pytest.mark.parametrize("phase_s", [0.0, 0.0007, 0.0014, 0.0021, 0.0027])
def test_silence_brakes_no_later_than_the_dead_man_time_at_any_phase_of_the_physics(phase_s):
    begin_s = START_S + phase_s
    plant = plant_of((0.0, 0.0, 0.0))
    plant.step_to(begin_s)
    plant.command("r0", (0.1, 0.0), begin_s, begin_s)
    now_s = begin_s
    while plant.applied("r0").reason is not DriverReason.DEAD_MAN:
        now_s += 0.0005
        plant.step_to(now_s)
    assert 0.8 * SPEC.dead_man_s <= plant.applied("r0").since_s - begin_s <= SPEC.dead_man_s


def test_a_sender_that_wakes_up_moves_nothing():
    plant = plant_of((-1.0, 0.0, 0.0))
    frozen_s = drive(plant, {"r0": (0.1, 0.0)}, 1.0)[-1]
    plant.step_to(frozen_s + 2.0)
    rest = plant.truth("r0").position_world
    late_s = frozen_s + 2.0
    for k in range(20):  # what waited in its queues, all at once
        verdict = plant.command("r0", (0.1, 0.0), frozen_s + k * TICK_S, late_s)
        assert verdict is CommandVerdict.DROPPED_OLD
    plant.step_to(late_s + 1.0)
    assert plant.applied("r0").reason is DriverReason.DEAD_MAN
    assert plant.truth("r0").position_world == pytest.approx(rest, abs=1e-4)
    drive(plant, {"r0": (0.1, 0.0)}, 0.5)  # fresh commands act again
    assert plant.truth("r0").velocity[0] > 0.09
    assert plant.verdicts("r0")[CommandVerdict.DROPPED_OLD] == 20


def test_stamps_ahead_of_the_clock_displace_no_brake():
    """An intruder that stamps 95 ms ahead would outdate the brakes of the guard until the dead-man time."""
    plant = plant_of((-1.0, 0.0, 0.0))
    now_s = drive(plant, {"r0": (0.1, 0.0)}, 1.0)[-1]
    for _ in range(20):
        now_s += TICK_S
        plant.step_to(now_s)
        verdict = plant.command("r0", (0.2, 0.0), now_s + 0.095, now_s)
        assert verdict is CommandVerdict.DROPPED_FUTURE
        assert plant.command("r0", (0.0, 0.0), now_s, now_s) is CommandVerdict.ACCEPTED
    assert plant.applied("r0").values == (0.0, 0.0)
    assert plant.verdicts("r0")[CommandVerdict.DROPPED_FUTURE] == 20


def test_a_stamp_at_most_a_control_period_ahead_is_accepted():
    plant = plant_of((0.0, 0.0, 0.0))
    ahead_s = START_S + 0.9 * SPEC.control_period_s
    assert plant.command("r0", (0.1, 0.0), ahead_s, START_S) is CommandVerdict.ACCEPTED
    for beyond_s in (START_S + 1.1 * SPEC.control_period_s, math.inf):
        assert plant.command("r0", (0.1, 0.0), beyond_s, START_S) is CommandVerdict.DROPPED_FUTURE


@pytest.mark.parametrize("stamp_s", [math.nan, -math.inf, START_S - 10.0])
def test_a_stamp_that_makes_no_sense_is_dropped(stamp_s):
    plant = plant_of((0.0, 0.0, 0.0))
    verdict = plant.command("r0", (0.1, 0.0), stamp_s, START_S)
    assert verdict is CommandVerdict.DROPPED_OLD
    assert plant.command("r0", (0.1, 0.0), START_S, START_S) is CommandVerdict.ACCEPTED


def test_a_command_that_is_not_newer_than_the_last_is_dropped():
    plant = plant_of((0.0, 0.0, 0.0))
    plant.command("r0", (0.1, 0.0), START_S + 0.03, START_S + 0.03)
    for older_s in (0.03, 0.02):
        verdict = plant.command("r0", (0.2, 0.0), START_S + older_s, START_S + 0.04)
        assert verdict is CommandVerdict.DROPPED_NOT_NEWER
    plant.step_to(START_S + 0.1)
    assert plant.applied("r0").values == (0.1, 0.0)


@pytest.mark.parametrize("bad", [(math.nan, 0.0), (0.1, math.inf), (0.1,), (0.1, 0.0, 0.0), ()])
def test_a_command_that_is_no_number_brakes_at_once(bad):
    plant = plant_of((-1.0, 0.0, 0.0))
    drive(plant, {"r0": (0.15, 0.0)}, 1.0)
    now_s = plant.time_s
    assert plant.command("r0", bad, now_s, now_s) is CommandVerdict.BRAKED_NON_FINITE
    applied = plant.applied("r0")
    assert (applied.values, applied.reason) == ((0.0, 0.0), DriverReason.NON_FINITE)
    plant.step_to(now_s + 0.06)  # commands that waited for their delay are gone too
    assert plant.applied("r0").values == (0.0, 0.0)
    assert brakes_from(plant, 0.15) < 3.5 * SPEC.velocity_lag_s
    drive(plant, {"r0": (0.15, 0.0)}, 1.0)
    assert plant.applied("r0").reason is DriverReason.COMMAND


def test_two_robots_driven_into_each_other_are_counted():
    plant = plant_of((-0.3, 0.0, 0.0), (0.3, 0.0, math.pi))
    drive(plant, {"r0": (0.15, 0.0), "r1": (0.15, 0.0)}, 2.5)
    event = plant.contacts[0]
    assert (event.first, event.second) == ("r0", "r1")
    assert 0 < event.depth_m < 0.005
    # 0.6 m less two radii at 0.3 m/s, after delay and lag
    expected_s = (0.6 - 2 * SPEC.body_radius_m) / 0.3 + SPEC.command_delay_s + SPEC.velocity_lag_s
    assert event.time_s - START_S == pytest.approx(expected_s, abs=0.03)
    assert event.until_s >= event.time_s
    assert plant.watch.states_in_contact > 100
    assert plant.watch.minimum_separation_m < 2 * SPEC.body_radius_m
    assert plant.watch.minimum_separation_m == plant.watch.separations[0].distance_m


def test_robots_that_pass_each_other_are_not_counted():
    apart_m = 2 * SPEC.body_radius_m + 0.01
    plant = plant_of((-0.3, 0.0, 0.0), (0.3, apart_m, math.pi))
    drive(plant, {"r0": (0.15, 0.0), "r1": (0.15, 0.0)}, 4.0)
    assert plant.contacts == ()
    assert plant.watch.states_in_contact == 0
    assert plant.watch.minimum_separation_m == pytest.approx(apart_m, abs=1e-3)
    assert plant.truth("r0").position_world[0] > 0.2


def test_a_robot_driven_into_a_wall_is_counted():
    plant = plant_of((1.3, 0.0, 0.0))
    drive(plant, {"r0": (0.15, 0.0)}, 2.5)
    assert {(event.first, event.second) for event in plant.contacts} == {("r0", "wall_x_high")}
    assert plant.truth("r0").position_world[0] == pytest.approx(1.6 - SPEC.body_radius_m, abs=0.005)
    assert plant.watch.minimum_separation_m == math.inf


def test_drones_driven_into_each_other_are_counted():
    arena = Arena((-2.0, -2.0, 0.0), (2.0, 2.0, 2.0))
    plant = plant_of((-0.5, 0.0, 1.0, 0.0), (0.5, 0.0, 1.0, 0.0), spec=DRONE, arena=arena)
    drive(plant, {"r0": (0.5, 0.0, 0.0), "r1": (-0.5, 0.0, 0.0)}, 2.0)
    assert (plant.contacts[0].first, plant.contacts[0].second) == ("r0", "r1")


@pytest.mark.parametrize(("command", "along"), [((0.5, 0.0), (0.0, 1.0)), ((0.0, 0.5), (-1.0, 0.0))])
def test_a_base_that_faces_y_drives_along_its_own_axes_and_holds_its_heading(command, along):
    """A mecanum base obeys a twist in its body: forward is y of the world here, left is -x."""
    plant = plant_of((0.0, 0.0, math.pi / 2), spec=BASE, arena=None)
    drive(plant, {"r0": command}, 1.5)
    pose = plant.truth("r0")
    assert pose.velocity == pytest.approx([0.5 * axis for axis in along], abs=5e-3)
    way = np.dot(pose.position_world, along)
    assert way > 0.4
    assert np.linalg.norm(pose.position_world - way * np.array(along)) < 1e-3
    assert pose.yaw == pytest.approx(math.pi / 2, abs=1e-3)


@pytest.mark.parametrize("yaw", [0.0, 0.7, -2.5, 3.1])
def test_a_velocity_in_the_world_is_driven_wherever_a_base_faces(yaw):
    """What the model commands in the world travels in the body, and the base turns it back by moving."""
    plant = plant_of((0.0, 0.0, yaw), spec=BASE, arena=None)
    drive(plant, {"r0": body_forward_command(BASE, (0.4, -0.2), yaw)}, 1.5)
    assert plant.truth("r0").velocity == pytest.approx((0.4, -0.2), abs=5e-3)


def test_a_base_keeps_its_limits_of_speed_and_acceleration():
    plant = plant_of((0.0, 0.0, 1.0), spec=BASE, arena=None)
    assert plant.command("r0", (1.0, 1.0), START_S, START_S) is CommandVerdict.CLIPPED
    speeds = [0.0]
    for k in range(400):
        now_s = START_S + k * plant.step_s
        plant.step_to(now_s)
        plant.command("r0", (1.0, 1.0), now_s, now_s)
        speeds.append(math.hypot(*plant.truth("r0").velocity))
    assert speeds[-1] == pytest.approx(BASE.speed_limit_m_s, rel=0.01)
    assert np.diff(speeds).max() / plant.step_s == pytest.approx(BASE.acceleration_limit_m_s2, rel=0.03)


def test_a_wrong_heading_of_a_base_turns_the_velocity_that_it_measures():
    """Its odometry tells the twist in the body: in the world that is as wrong as the heading, but for the noise."""
    plant = plant_of((0.0, 0.0, 2.0), spec=BASE, arena=None, seed=3)
    command, errors = body_forward_command(BASE, (1.0, 0.0), 2.0), []
    for k in range(600):
        now_s = plant.time_s + BASE.control_period_s
        plant.step_to(now_s)
        plant.command("r0", command, now_s, now_s)
        errors += [(sample.yaw - 2.0, sample.velocity[1]) for sample in plant.odometry("r0") if k > 40]
    wrong, aside = np.array(errors).T
    sigma = OdometryModel().speed_sigma_m_s
    assert wrong.std() == pytest.approx(BASE.yaw_error_rad / 3, rel=0.1)
    assert (aside - wrong).std() == pytest.approx(sigma, rel=0.1)
    assert aside.std() == pytest.approx(math.hypot(sigma, BASE.yaw_error_rad / 3), rel=0.1)


@pytest.fixture(scope="module")
def odometry():
    """Return the samples and true poses of 30 s in which a robot drives in circles."""
    plant = plant_of((0.0, -0.3, 0.0), (1.0, 0.0, 0.0), seed=5)
    samples, truth = [], {}
    for k in range(10_000):
        now_s = START_S + k * plant.step_s
        plant.step_to(now_s)
        truth[round(now_s, 6)] = plant.truth("r0")
        if k % 11 == 0:
            plant.command("r0", (0.1, 0.3), now_s, now_s)
        for sample in plant.odometry("r0"):
            assert now_s - plant.step_s - 1e-6 <= sample.due_s <= now_s
            samples.append(sample)
    return samples, truth


def test_odometry_comes_at_its_rate_late_and_in_order(odometry):
    samples, _ = odometry
    assert len(samples) == pytest.approx(30 * 60, abs=8)
    latency_s = np.array([sample.due_s - sample.stamp_s for sample in samples])
    assert latency_s.min() >= 0.02 - 1e-9
    assert latency_s.max() <= 0.06 + 0.003
    # uniform: mean 40 ms, deviation 40/sqrt(12) ms, and each quarter as full as the next
    assert latency_s.mean() == pytest.approx(0.04, abs=0.003)
    assert latency_s.std() == pytest.approx(0.04 / math.sqrt(12), rel=0.1)
    quarters = np.histogram(latency_s, bins=4, range=(0.02, 0.06))[0] / len(samples)
    assert quarters == pytest.approx([0.25] * 4, abs=0.06)
    for earlier, later in pairwise(samples):
        assert earlier.stamp_s < later.stamp_s
        assert earlier.due_s <= later.due_s


def test_odometry_is_the_truth_at_its_stamp_with_noise(odometry):
    samples, truth = odometry
    rows = []
    for sample in samples:
        true = truth[round(sample.stamp_s, 6)]
        rows.append(
            [
                *np.subtract(sample.position_world, true.position_world),
                math.remainder(sample.yaw - true.yaw, math.tau),
                *np.subtract(sample.velocity, true.velocity),
            ]
        )
    errors = np.array(rows)
    model = OdometryModel()
    sigma = [0.005, 0.005, math.radians(0.5), model.speed_sigma_m_s, model.turn_rate_sigma_rad_s]
    assert errors.std(axis=0) == pytest.approx(sigma, rel=0.1)
    assert np.abs(errors.mean(axis=0)) == pytest.approx([0.0] * 5, abs=0.002)


def record(seed, spread=0.2):
    plant = plant_of((-0.5, 0.0, 0.0), (0.5, 0.0, 2.0), seed=seed, spread=spread)
    rng = np.random.default_rng(7)
    seen = []
    for k in range(40):
        now_s = START_S + k * TICK_S
        plant.step_to(now_s)
        for name in ("r0", "r1"):
            plant.command(name, tuple(rng.uniform(-0.1, 0.1, 2)), now_s, now_s)
            seen += [plant.truth(name), *plant.odometry(name)]
    return seen, plant.parameters


def test_the_seed_decides_everything():
    assert record(seed=1) == record(seed=1)
    first, second = record(seed=1), record(seed=2)
    assert first[0] != second[0]
    assert first[1] != second[1]
    assert first[1]["r0"] != first[1]["r1"]


def test_a_robot_is_the_same_in_any_team():
    alone = plant_of((0.0, 0.0, 0.0), seed=4, spread=0.2)
    team = plant_of((0.0, 0.0, 0.0), (1.0, 0.0, 0.0), seed=4, spread=0.2)
    assert alone.parameters["r0"] == team.parameters["r0"]


def test_a_robot_of_another_lag_and_scale_moves_so():
    plant = plant_of((-1.0, 0.0, 0.0), seed=3, spread=0.2)
    drive(plant, {"r0": (0.1, 0.0)}, 2.0)
    expected = 0.1 * plant.parameters["r0"].speed_scale
    assert plant.truth("r0").velocity[0] == pytest.approx(expected, rel=0.03)
    assert plant.applied("r0").values == (0.1, 0.0)


def test_time_never_goes_back():
    plant = plant_of((0.0, 0.0, 0.0))
    assert plant.step_to(START_S + 0.3) == 100
    assert plant.step_to(START_S + 0.1) == 0
    assert plant.time_s == START_S + 0.3
    with pytest.raises(TestudoError, match="now_s: found nan"):
        plant.step_to(math.nan)


@pytest.mark.parametrize(
    ("places", "text"),
    [
        ([(0.0, 0.0, 0.0), (0.1, 0.0, 0.0)], "r0 and r1 overlap by 0.035 m"),
        ([(1.58, 0.0, 0.0)], "r0 and wall_x_high overlap"),
        ([(0.0, 0.0, 0.0, 0.0)], "r0: found initial position"),
        ([(math.nan, 0.0, 0.0)], "r0: found initial position"),
    ],
)
def test_an_impossible_start_is_refused(places, text):
    with pytest.raises(TestudoError, match=text):
        plant_of(*places)


def test_an_unknown_robot_is_named():
    plant = plant_of((0.0, 0.0, 0.0))
    with pytest.raises(TestudoError, match="'r9' is not known; known are r0"):
        plant.truth("r9")


def test_odometry_settings_out_of_order_are_refused():
    with pytest.raises(TestudoError, match="0 <= low <= high"):
        OdometryModel(latency_low_s=0.06, latency_high_s=0.02)
