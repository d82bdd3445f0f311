"""Drones in the plant: flight phases, what silence does to them, wakes, batteries, and what counts as a contact."""

import dataclasses
import math

import numpy as np
import pytest

from testudo_deploy.shield.velocity_projection import Arena
from testudo_hardware.errors import TestudoError
from testudo_hardware.links.flight_link import FlightAct, FlightRequest
from testudo_hardware.spec import load_robot
from testudo_plant.plant import drone_fleet
from testudo_plant.plant.driver import CommandVerdict, DriverReason
from testudo_plant.plant.drone_fleet import DroneOptions
from testudo_plant.plant.injected_faults import RadioModel, RobotFaults, read_faults, read_radio
from testudo_plant.plant.plant import Plant, PlantRobot

SPEC = load_robot("crazyflie_2x")
NO_BRAKE = dataclasses.replace(SPEC.silence["silence.onboard_brake"], value=0.0, low=0.0, high=0.0)
UNMODIFIED = dataclasses.replace(SPEC, silence={**SPEC.silence, "silence.onboard_brake": NO_BRAKE})
"""Without an app on board."""
ARENA = Arena((-4.0, -4.0, 0.0), (4.0, 4.0, 3.0))
TICK_S = SPEC.control_period_s
STILL = DroneOptions(downwash=False)


def plant_of(*places, grounded=False, options=STILL, spread=0.0, spec=UNMODIFIED, seed=0):
    return Plant(
        [PlantRobot(f"r{i}", spec, place, 0.0, grounded=grounded) for i, place in enumerate(places)],
        ARENA,
        seed,
        spread,
        drones=options,
    )


def fly(plant, commands, duration_s):
    """Send each named drone its velocity at every tick; return the truth of r0 at every tick."""
    seen = []
    for _ in range(round(duration_s / TICK_S)):
        now_s = plant.time_s + TICK_S
        plant.step_to(now_s)
        for name, values in commands.items():
            plant.command(name, values, now_s, now_s)
        seen.append(plant.truth("r0"))
    return seen


def test_set_points_lead_and_their_end_is_the_drift_of_a_silent_crazyflie():
    """Held for 0.5 s, level until 2.0 s, then cut and locked; without a brake: about 1.5 m at 1 m/s."""
    plant = plant_of((-3.0, 0.0, 1.5))
    fly(plant, {"r0": (0.999, 0.0, 0.0)}, 3.0)
    begin = plant.truth("r0")
    assert begin.velocity[0] == pytest.approx(0.92, abs=0.03)  # its drag holds it back
    assert plant.applied("r0").reason is DriverReason.COMMAND
    reasons, ways = [], []
    for _ in range(100):
        fly(plant, {}, TICK_S)
        reasons.append(plant.applied("r0").reason)
        ways.append(plant.truth("r0").position_world[0] - begin.position_world[0])
    for before_s, reason in ((0.3, DriverReason.HELD), (1.0, DriverReason.LEVELLED), (1.9, DriverReason.LEVELLED)):
        assert reasons[round(before_s / TICK_S)] is reason
    assert 0.4 < ways[24] < 0.6  # held: at 1 m/s
    assert 1.2 < ways[-1] < 2.0
    assert plant.truth("r0").velocity[0] > 0.3  # it has not braked
    fly(plant, {}, 0.2)
    assert plant.applied("r0").reason is DriverReason.LOCKED
    assert plant.vehicle("r0").locked
    fly(plant, {"r0": (0.0, 0.0, 0.5)}, 1.5)  # too late
    assert plant.truth("r0").position_world[2] == pytest.approx(SPEC.body_radius_m, abs=0.02)
    assert [(one.first, one.second) for one in plant.contacts] == [("r0", "wall_z_low")]  # a crash counts


def test_an_app_on_board_stops_a_silent_drone_after_the_dead_man_time():
    plant = plant_of((-3.0, 0.0, 1.5), spec=SPEC)
    fly(plant, {"r0": (1.0, 0.0, 0.0)}, 3.0)
    begin = plant.truth("r0").position_world[0]
    fly(plant, {}, 4.0)
    assert plant.applied("r0").reason is DriverReason.ONBOARD_BRAKE
    assert plant.truth("r0").velocity == pytest.approx((0, 0, 0), abs=0.05)
    assert plant.truth("r0").position_world[0] - begin < 0.9
    assert plant.contacts == ()


def test_a_radio_that_dies_is_silence_and_requests_wait_for_it():
    plant = plant_of((0.0, 0.0, 1.5))
    fly(plant, {"r0": (0.0, 0.0, 0.0)}, 0.5)
    plant.break_robot("r0", read_faults('{"radio_lost": true}', RobotFaults(), SPEC, "r0"))
    assert plant.command("r0", (0.0, 0.0, 0.0), plant.time_s, plant.time_s) is not CommandVerdict.ACCEPTED
    plant.ask("r0", FlightRequest(FlightAct.EMERGENCY))
    fly(plant, {"r0": (0.0, 0.0, 0.0)}, 0.7)
    assert plant.applied("r0").reason is DriverReason.LEVELLED
    plant.break_robot("r0", RobotFaults())
    fly(plant, {"r0": (0.0, 0.0, 0.0)}, 0.1)
    assert plant.applied("r0").reason is DriverReason.LOCKED  # the emergency came through


def test_it_takes_off_flies_and_lands_without_a_contact():
    plant = plant_of((0.0, 0.0, 1.0), (1.0, 0.0, 1.0), grounded=True)
    assert plant.truth("r0").position_world[2] == pytest.approx(SPEC.body_radius_m)
    fly(plant, {}, 0.5)
    assert not plant.vehicle("r0").flying
    for act in (FlightAct.ARM, FlightAct.TAKE_OFF):
        for name in ("r0", "r1"):
            plant.ask(name, FlightRequest(act, 1.0, 2.0))
        fly(plant, {}, 0.2)  # what comes with the arming is refused
        assert plant.vehicle("r0").can_fly
    seen = fly(plant, {}, 4.0)
    assert seen[-1].position_world == pytest.approx((0.0, 0.0, 1.0), abs=0.03)
    assert plant.vehicle("r0").flying
    assert plant.applied("r0").reason is DriverReason.PLANNER
    fly(plant, {"r0": (0.3, 0.0, 0.0), "r1": (0.3, 0.0, 0.0)}, 1.0)
    for act in (FlightAct.LAND, FlightAct.NOTIFY_SETPOINTS_STOP):
        for name in ("r0", "r1"):
            plant.ask(name, FlightRequest(act, 0.0, 2.0))
    seen = fly(plant, {}, 4.0)
    assert seen[-1].position_world[2] == pytest.approx(SPEC.body_radius_m, abs=0.01)
    assert np.linalg.norm(seen[-1].velocity) < 0.05
    assert plant.applied("r0").reason is DriverReason.MOTORS_OFF
    assert plant.contacts == ()


def test_set_points_to_a_drone_on_the_ground_move_nothing():
    plant = plant_of((0.0, 0.0, 1.0), grounded=True)
    fly(plant, {"r0": (0.5, 0.0, 0.5)}, 1.0)
    assert plant.truth("r0").position_world == pytest.approx((0, 0, SPEC.body_radius_m), abs=0.01)
    assert plant.applied("r0").reason is DriverReason.MOTORS_OFF


def test_bursts_of_100_ms_neither_level_nor_stop_a_drone():
    plant = plant_of((-3.0, 0.0, 1.5), options=DroneOptions(RadioModel(burst_s=0.1, every_s=0.3)))
    seen = fly(plant, {"r0": (0.5, 0.0, 0.0)}, 6.0)
    assert plant.radio.bursts > 5
    assert plant.verdicts("r0")[CommandVerdict.LOST] == plant.radio.lost > 20
    assert seen[-1].velocity[0] == pytest.approx(0.5, abs=0.06)
    assert plant.applied("r0").reason in (DriverReason.COMMAND, DriverReason.HELD)


def test_a_command_that_is_no_number_is_never_sent():
    plant = plant_of((0.0, 0.0, 1.5))
    fly(plant, {"r0": (0.2, 0.0, 0.0)}, 0.2)
    assert plant.command("r0", (math.nan, 0, 0), plant.time_s, plant.time_s) is CommandVerdict.REFUSED_NON_FINITE
    fly(plant, {}, 0.1)
    assert np.isfinite(plant.truth("r0").position_world).all()


def test_a_drone_above_pushes_down_one_below_until_its_motors_stop():
    def sinks(options):
        plant = plant_of((0.0, 0.0, 0.8), (0.0, 0.0, 1.1), options=options)
        lowest = min(pose.position_world[2] for pose in fly(plant, {"r0": (0, 0, 0), "r1": (0, 0, 0)}, 1.0))
        return 0.8 - lowest

    assert sinks(STILL) < 1e-4
    assert sinks(DroneOptions()) > 0.01


@pytest.mark.parametrize(("begins_m", "speed_m_s"), [(0.0, 0.0), (-0.5, 0.5)])
def test_the_wake_at_100_hz_is_that_of_every_step_within_5_mm(monkeypatch, begins_m, speed_m_s):
    """A drone that hovers for 2 s below another, and one that flies through."""

    def ways():
        plant = plant_of((begins_m, 0.0, 0.8), (0.0, 0.0, 1.1), options=DroneOptions())
        seen = fly(plant, {"r0": (speed_m_s, 0.0, 0.0), "r1": (0.0, 0.0, 0.0)}, 2.0)
        return np.array([pose.position_world for pose in seen])

    rare = ways()
    assert 0.8 - rare[:, 2].min() > 0.01  # it does push
    monkeypatch.setattr(drone_fleet, "_UPDATE_PERIOD_S", 0.0)
    assert rare == pytest.approx(ways(), abs=0.005)


def test_a_contact_is_seen_in_the_step_in_which_it_begins_and_in_every_later_one():
    """Between the times at which the drone senses where it is, too."""
    begins = set()
    for height_m in (0.300, 0.304, 0.308):
        plant = plant_of((0.0, 0.0, height_m))
        plant.ask("r0", FlightRequest(FlightAct.EMERGENCY))
        touched_s, states = math.inf, 0
        for step in range(1, 300):
            z = plant.truth("r0").position_world[2]  # of the state that this step looks at
            plant.step_to(step * plant.step_s)
            if z < SPEC.body_radius_m:
                touched_s, states = min(touched_s, (step - 1) * plant.step_s), states + 1
        (contact,) = plant.contacts[:1]
        assert contact.time_s == pytest.approx(touched_s)
        assert plant.watch.states_in_contact == states > 1
        begins.add(round(1000 * contact.time_s) % 10)
    assert begins - {0}


@pytest.mark.parametrize("last", [100, 101, 103])
def test_motors_are_cut_in_the_step_in_which_silence_or_an_order_cuts_them(last):
    """2.0 s after the last set-point came, at any of the steps; an order acts after the delay of the link."""
    plant = plant_of((0.0, 0.0, 1.5))
    delay_s = plant.parameters["r0"].attitude["attitude.link_delay"]
    for step in range(1, last + 1):
        plant.step_to(step * plant.step_s)
        if step % 10 == 0 or step == last:
            plant.command("r0", (0.0, 0.0, 0.0), plant.time_s, plant.time_s)
    sent_s = plant.time_s
    assert locked_after_s(plant, 3.0) - sent_s == pytest.approx(2.0 + delay_s, abs=1.1 * plant.step_s)
    plant = plant_of((0.0, 0.0, 1.5))
    plant.step_to(last * plant.step_s)
    sent_s = plant.time_s
    plant.ask("r0", FlightRequest(FlightAct.EMERGENCY))
    assert locked_after_s(plant, 1.0) - sent_s == pytest.approx(delay_s, abs=1.1 * plant.step_s)


def locked_after_s(plant, limit_s):
    """Return when the motors of r0 were cut; step by step."""
    for _ in range(round(limit_s / plant.step_s)):
        plant.step_to(plant.time_s + plant.step_s)
        if plant.applied("r0").reason is DriverReason.LOCKED:
            assert not plant.vehicle("r0").flying
            return plant.time_s
    return math.inf


def test_a_battery_empties_sags_and_says_so():
    plant = plant_of((0.0, 0.0, 1.0))
    fly(plant, {"r0": (0, 0, 0)}, 2.0)
    full, charge = plant.vehicle("r0").battery_v, plant.charge("r0")
    assert 3.6 < full < 4.1
    assert charge == pytest.approx(1 - 2.0 / 420, rel=1e-3)
    plant.break_robot("r0", read_faults('{"battery_v": 3.05}', RobotFaults(), SPEC, "r0"))
    assert plant.vehicle("r0").battery_v == 3.05


def test_one_seed_flies_the_same_and_dynamics_are_drawn_within_the_file():
    runs = []
    for seed in (1, 1, 2):
        plant = plant_of(
            (0.0, 0.0, 1.0), (1.0, 0.0, 1.0), options=DroneOptions(RadioModel(loss=0.2)), spread=0.2, seed=seed
        )
        fly(plant, {"r0": (0.5, 0, 0), "r1": (0, 0.5, 0)}, 1.0)
        runs.append(plant.truth("r0").position_world)
        for name in ("r0", "r1"):
            for key, value in plant.parameters[name].attitude.items():
                assert SPEC.attitude[key].low <= value <= SPEC.attitude[key].high
    assert runs[0] == runs[1] != runs[2]


def test_robots_without_an_attitude_take_no_requests():
    plant = Plant([PlantRobot("r0", load_robot("gritsbot_x"), (0.0, 0.0), 0.0)], None, 0)
    with pytest.raises(TestudoError, match="r0: found a robot that takes velocities only"):
        plant.ask("r0", FlightRequest(FlightAct.ARM))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[", "expected JSON"),
        ('{"losses": 1}', "keys from loss, burst_s"),
        ('{"loss": 2}', "found loss 2"),
        ('{"loss": "much"}', "expected numbers"),
        ('{"late_s": 3}', "two of them"),
    ],
)
def test_what_is_no_radio_is_refused_in_one_sentence(text, said):
    with pytest.raises(TestudoError, match=f"^plant: parameter radio: .*{said}"):
        read_radio(text, "plant: parameter radio")
    assert read_radio("", "x") == RadioModel()
    assert read_radio('{"burst_s": 0.1, "late_s": [0, 0.01]}', "x") == RadioModel(burst_s=0.1, late_s=(0, 0.01))
