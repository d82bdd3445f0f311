"""What can be broken in a robot of the plant: it does what it should, and nothing else changes."""

import numpy as np
import pytest
from tests.sim.points import load_point

from testudo_hardware.errors import TestudoError
from testudo_plant.plant.injected_faults import RobotFaults, read_faults, read_start_faults
from testudo_plant.plant.plant import Plant, PlantRobot

SPECS = {name: load_point(name) for name in ("gritsbot_x", "turtlebot4", "robomaster_s1", "crazyflie_2x")}
WHEELED = ("gritsbot_x", "turtlebot4")


def plant_of(name, **faults):
    spec = SPECS[name]
    place = (0.0, 0.0, 1.0)[: spec.dimension]
    plant = Plant([PlantRobot("r0", spec, place, 0.0)], None, seed=0, spread=0.0)
    plant.break_robot("r0", RobotFaults(**faults))
    return plant


def drive(plant, speed_m_s, seconds):
    """Drive along x; return the speeds and turn rates (0 for robots without) at every step."""
    spec, seen = plant.robots[0].spec, []
    command = (speed_m_s,) + (0.0,) * (spec.dimension - 1)
    for _ in range(round(seconds / plant.step_s)):
        now_s = plant.time_s + plant.step_s
        plant.step_to(now_s)
        plant.command("r0", command, now_s, now_s)
        seen.append(plant.truth("r0").velocity[:2])
    return np.array(seen)


@pytest.mark.parametrize("name", SPECS)
def test_weak_brakes_slow_down_less_and_speed_up_alike(name):
    top = SPECS[name].speed_limit_m_s
    runs = [plant_of(name), plant_of(name, braking_share=0.7)]
    up = [drive(plant, top, 1.5)[:, 0] for plant in runs]
    assert up[1] == pytest.approx(up[0], abs=0.01 * top)
    down = [drive(plant, 0.0, 0.4)[:, 0] for plant in runs]
    steepest = [np.diff(speeds).min() / plant.step_s for speeds, plant in zip(down, runs, strict=True)]
    assert steepest[1] == pytest.approx(0.7 * steepest[0], rel=0.03)


@pytest.mark.parametrize("name", SPECS)
def test_a_blocked_robot_stops_and_a_released_one_drives_on(name):
    top = SPECS[name].speed_limit_m_s
    plant = plant_of(name)
    drive(plant, top, 1.5)
    plant.break_robot("r0", RobotFaults(blocked=("left", "right") if name in WHEELED else ("body",)))
    speeds = drive(plant, top, 1.0)[:, 0]
    assert np.abs(speeds[round(0.2 / plant.step_s) :]).max() < 0.02 * top
    plant.break_robot("r0", RobotFaults())
    assert drive(plant, top, 1.5)[-1, 0] == pytest.approx(SPECS[name].speed_scale * top, rel=0.03)


@pytest.mark.parametrize("name", WHEELED)
@pytest.mark.parametrize(("side", "sign"), [("left", 1), ("right", -1)])
def test_one_blocked_wheel_turns_the_robot_about_it(name, side, sign):
    spec = SPECS[name]
    plant = plant_of(name)
    drive(plant, spec.speed_limit_m_s, 1.5)
    plant.break_robot("r0", RobotFaults(blocked=(side,)))
    forward, turn = drive(plant, spec.speed_limit_m_s, 0.5)[-1]
    assert sign * turn > 0.5 * spec.speed_limit_m_s / spec.wheel_base_m
    assert forward == pytest.approx(abs(turn) * spec.wheel_base_m / 2, rel=0.1)  # the blocked wheel stands


def test_only_the_robot_that_is_named_is_broken():
    spec = SPECS["robomaster_s1"]
    plant = Plant([PlantRobot(f"r{i}", spec, (0.0, 2.0 * i), 0.0) for i in range(2)], None, seed=0, spread=0.0)
    plant.break_robot("r1", RobotFaults(blocked=("body",)))
    for _ in range(400):
        now_s = plant.time_s + plant.step_s
        plant.step_to(now_s)
        for name in ("r0", "r1"):
            plant.command(name, (0.5, 0.0), now_s, now_s)
    assert plant.truth("r0").velocity[0] == pytest.approx(0.5, rel=0.03)
    assert plant.truth("r1").position_world == pytest.approx((0.0, 2.0), abs=1e-6)
    assert plant.faults("r0") == RobotFaults()


def test_json_says_what_is_broken():
    spec = SPECS["gritsbot_x"]
    weak = read_start_faults('{"r0": {"braking_share": 0.7}}', {"r0": spec, "r1": spec}, "faults")
    assert weak == {"r0": RobotFaults(0.7)}
    assert read_start_faults("  ", {"r0": spec}, "faults") == {}
    both = read_faults('{"blocked": ["right", "left"]}', weak["r0"], spec, "r0")
    assert both == RobotFaults(0.7, ("left", "right"))
    assert read_faults('{"blocked": []}', both, spec, "r0") == RobotFaults(0.7)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("nonsense", "expected JSON"),
        ("[" * 100_000, "expected JSON"),
        ("[1]", "expected a mapping"),
        ('{"block": []}', "expected a mapping with keys from braking_share, blocked"),
        ('{"blocked": "left"}', "expected a list of left, right"),
        ('{"blocked": ["body"]}', "expected a list of left, right"),
        ('{"blocked": [["left"]]}', "expected a list of left, right"),
        ('{"braking_share": 0}', "expected a number above 0"),
        ('{"braking_share": NaN}', "expected a number above 0"),
        ('{"braking_share": "weak"}', "expected a number above 0"),
    ],
)
def test_bad_json_is_refused_in_one_sentence(text, found):
    with pytest.raises(TestudoError, match=f"^r0/plant_fault: .*{found}"):
        read_faults(text, RobotFaults(), SPECS["gritsbot_x"], "r0/plant_fault")


def test_faults_of_unknown_robots_are_refused():
    with pytest.raises(TestudoError, match="expected a mapping by robot from r0"):
        read_start_faults('{"r9": {}}', {"r0": SPECS["gritsbot_x"]}, "faults")
    with pytest.raises(TestudoError, match="'r9' is not known"):
        plant_of("gritsbot_x").break_robot("r9", RobotFaults())
