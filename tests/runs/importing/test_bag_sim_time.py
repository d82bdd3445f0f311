"""Bags of simulations: whatever their real-time factor, times are those of `/clock`."""

import numpy as np
import pytest
from tests.runs.importing.bag_maker import NANO, START_NS, drive, mapping, message, write_bag

from testudo_runs.importing.bags import read_bags

TEXT = "{topic: /odom, robot: a, role: odometry}\n{topic: /cmd_vel, robot: a, role: command}"


def simulated(path, factor, *, reset=False):
    """Write a bag of a simulation that ran at a factor of real time, its stamps from 10 s on."""
    times, commands, poses, velocities = drive(600, 50.0)
    rows = []
    for time_s, command, pose, velocity in zip(times, commands, poses, velocities, strict=True):
        sim_ns, log_ns = round((10 + time_s) * NANO), START_NS + round(time_s / factor * NANO)
        told_ns = sim_ns - 5 * NANO if reset and time_s > 6 else sim_ns
        rows += [
            ("/clock", "Clock", log_ns, message("Clock", told_ns, ())),
            ("/odom", "Odometry", log_ns + 1, message("Odometry", sim_ns, np.concatenate([pose, velocity]))),
            ("/cmd_vel", "Twist", log_ns + 2, message("Twist", 0, command)),
        ]
    return write_bag(path, rows), times


@pytest.mark.parametrize("factor", [0.4, 1.0, 3.0])
def test_times_are_simulated_at_any_real_time_factor(tmp_path, factor):
    path, times = simulated(tmp_path / "bag", factor)
    found = read_bags([path], mapping(TEXT), lambda _: None, [])
    for role in ("odometry", "command"):
        stamps = found.robots["a"].find(role).stamp_s
        np.testing.assert_allclose(stamps - stamps[0], times - times[0], atol=1e-6)
    assert any(f"simulated time ran at {factor:.4g} of" in note for note in found.info["notes"])


def test_a_simulation_that_was_reset_is_told(tmp_path):
    path, _ = simulated(tmp_path / "bag", 1.0, reset=True)
    found = read_bags([path], mapping(TEXT), lambda _: None, [])
    assert any("simulated time goes back" in note for note in found.info["notes"])


def test_of_several_bags_it_is_left_aside_and_told(tmp_path):
    paths = [simulated(tmp_path / name, 1.0)[0] for name in ("one", "other")]
    found = read_bags(paths, mapping(TEXT), lambda _: None, [])
    told = [note.partition(":")[0] for note in found.info["notes"] if "/clock is not used" in note]
    assert told == ["one", "other"]
