"""Our drones fly as crazyflow's do: same tier, same parameters, same random commands for two seconds, in float64.

Where crazyflow is installed it flies beside ours; everywhere, ours are held against flights of it in a file.
"""

import dataclasses
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from testudo_bench.performance import crazyflow_reference as oracle
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion.attitude_drone import AttitudeDroneParameters
from testudo_hardware.motion.rotor_drone import RotorDroneParameters

FILE = json.loads(Path(__file__).with_name("crazyflow_flights.json").read_text())
FLIGHTS = {(flight["tier"], flight["drone"]): flight for flight in FILE["flights"]}
CASES = [(tier, drone) for tier in oracle.TIERS for drone in oracle.DRONES]
MOST_M, MOST_RAD = 1e-3, math.radians(0.1)


def flown(tier, flight, **changes):
    values = flight["parameters"] | changes
    commands = oracle.random_commands(tier, flight["parameters"])
    poses = oracle.our_flights(tier, values, commands)
    kept = slice(oracle.REFERENCE_STEPS - 1, None, oracle.REFERENCE_STEPS)
    return oracle.Poses(poses.position_world[kept], poses.quaternion_xyzw[kept])


def recorded(flight):
    return oracle.Poses(np.array(flight["position_world"]), np.array(flight["quaternion_xyzw"]))


@pytest.mark.parametrize(("tier", "drone"), CASES)
def test_flights_are_those_of_crazyflow_in_the_file(tier, drone):
    flight = FLIGHTS[tier, drone]
    found = oracle.gap(flown(tier, flight), recorded(flight))
    assert found.position_m <= MOST_M
    assert found.turn_rad <= MOST_RAD


@pytest.mark.parametrize("tier", oracle.TIERS)
def test_flights_of_crazyflow_go_somewhere_and_turn(tier):
    poses = recorded(FLIGHTS[tier, "cf2x_L250"])
    assert np.ptp(poses.position_world, axis=0).max() > 0.1
    assert np.abs(poses.quaternion_xyzw[:, :3]).max() > 0.05


@pytest.mark.parametrize(
    ("tier", "change"),
    [
        ("so_rpy", {"mass": 0.033}),
        ("so_rpy_rotor", {"thrust_dyn_coef": 11.0}),
        ("so_rpy_rotor_drag", {"drag_matrix": [[-0.017, 0, 0], [0, -0.017, 0], [0, 0, -0.0139]]}),
        ("first_principles", {"prop_inertia": 0.0}),
    ],
)
def test_another_drone_is_seen(tier, change):
    flight = FLIGHTS[tier, "cf2x_L250"]
    found = oracle.gap(flown(tier, flight, **change), recorded(flight))
    assert found.position_m > MOST_M or found.turn_rad > MOST_RAD


LIVE = """
import json, sys
from testudo_bench.performance import crazyflow_reference as oracle
found = {}
for tier in oracle.TIERS:
    values = oracle.shipped(tier, "cf2x_L250")
    commands = oracle.random_commands(tier, values)
    theirs = oracle.their_flights(tier, "cf2x_L250", values, commands)
    gap = oracle.gap(oracle.our_flights(tier, values, commands), theirs)
    found[tier] = [values, float(gap.position_m), float(gap.turn_rad)]
print(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.skipif(not oracle.has_crazyflow(), reason="crazyflow is not installed: the file stands for it")
def test_the_file_is_what_crazyflow_flies_now():
    """In a process of its own: crazyflow wants to be imported before SciPy."""
    environment = os.environ | {"SCIPY_ARRAY_API": "1"}
    told = subprocess.run(
        [sys.executable, "-c", LIVE], env=environment, capture_output=True, text=True, check=True, timeout=300
    )
    found = json.loads(told.stdout.splitlines()[-1])
    for tier in oracle.TIERS:
        values, position_m, turn_rad = found[tier]
        assert values == FLIGHTS[tier, "cf2x_L250"]["parameters"]
        assert position_m <= MOST_M
        assert turn_rad <= MOST_RAD


def test_parameters_that_the_model_has_not_are_refused():
    values = FLIGHTS["so_rpy_rotor_drag", "cf2x_L250"]["parameters"]
    with pytest.raises(TestudoError, match="acc_coef has to be 0"):
        AttitudeDroneParameters.from_crazyflow(values | {"acc_coef": 0.1})
    values = FLIGHTS["first_principles", "cf2x_L250"]["parameters"]
    with pytest.raises(TestudoError, match="have to be diagonal"):
        RotorDroneParameters.from_crazyflow(values | {"J": [[1e-5, 1e-6, 0], [1e-6, 1e-5, 0], [0, 0, 2e-5]]})


def test_the_models_thrust_limits_are_those_of_four_rotors():
    values = FLIGHTS["so_rpy_rotor_drag", "cf21B_500"]["parameters"]
    ours = AttitudeDroneParameters.from_crazyflow(values)
    assert ours.thrust_most_n == pytest.approx(4 * values["thrust_max"])
    assert dataclasses.replace(ours, thrust_lag_s=0.0).hover_thrust_n == pytest.approx(
        values["mass"] * 9.81 / values["cmd_f_coef"]
    )
