"""Drones with motor signals: no gap in the flight of the very model, one in that of another, ballistics beside."""

import numpy as np
import pytest
from tests.sim.real_data import crazyflie_folder

from testudo_hardware.motion.rotor_drone import RotorDroneParameters, RotorDroneState, step
from testudo_hardware.quaternions import rotate_back
from testudo_hardware.spec import load_robot
from testudo_sim.gap.analyse import analyse
from testudo_sim.importing.run_import import Request, import_run
from testudo_sim.recording import Recording, RobotRecording, Series, load_recording
from testudo_sim.recording.write import IMPORTED

PERIOD_S = 0.01


def flight(*, mass_share=1.0, seconds=12.0, seed=0):
    """Return the recording of a drone whose motors pulse all alike, with a mass that differs from its file's."""
    spec = load_robot("crazyflie_2x")
    parameters = RotorDroneParameters.from_spec(spec)
    hover = parameters.hover_thrust_n
    true = RotorDroneParameters(**{**vars(parameters), "mass_kg": mass_share * spec.mass_kg})
    rng = np.random.default_rng(seed)
    count = round(seconds / PERIOD_S)
    told = hover * (1 + 0.15 * np.repeat(rng.uniform(-1, 1, -(-count // 20)), 20)[:count])
    told = np.tile(told, (4, 1))
    state = RotorDroneState(np.array([0.0, 0.0, 1.0]), np.array([0.0, 0.0, 0.0, 1.0]), np.zeros(3), np.zeros(3),
                            told[:, 0])
    rows = []
    for k in range(count):
        body = rotate_back(state.quaternion_xyzw, state.velocity_world)
        rows.append(np.concatenate([state.position_world, state.quaternion_xyzw, body, state.rates_body]))
        state = step(true, state, told[:, k], PERIOD_S)
    stamps = np.arange(count) * PERIOD_S
    series = {"odometry": Series(stamps, np.array(rows)), "motors": Series(stamps, told.T)}
    return Recording({"cf1": RobotRecording("cf1", spec.name, series)}, 0, None, {"kind": IMPORTED})


def row_of(recording, model, channel, horizon_s):
    (gap,) = analyse(recording)[0].types
    return gap.find(model, channel, horizon_s)


def test_a_flight_of_the_very_model_has_no_gap():
    (gap,) = analyse(flight())[0].types
    # the thrust of the rotors before the first sample is not recorded: what it was wears off
    assert gap.find("nominal", "position", 0.5).median.value < 1e-4
    assert gap.find("nominal", "attitude", 0.5).p90.value < 1e-6
    assert gap.find("dead reckoning", "position", 0.5).median.value > 1e-3
    assert gap.find("nominal", "position", 1.0) is None
    assert gap.margins == ()


def test_a_heavier_drone_falls_below_what_is_predicted():
    row = row_of(flight(mass_share=1.1), "nominal", "up", 0.5)
    # a tenth of the weight is not carried: 0.1 g t^2 / 2, over 1.1
    assert row.bias == pytest.approx(0.5 * 9.81 * (1 - 1 / 1.1) * 0.25, rel=0.1)


def test_real_flights_are_replayed(tmp_path):
    import_run(Request((crazyflie_folder(),), pick="swap_sss_01"), tmp_path / "run")
    report, _ = analyse(load_recording(tmp_path / "run"))
    (gap,) = report.types
    assert gap.robots == ("cf50", "cf51", "cf52")
    assert 0.001 < gap.find("dead reckoning", "position", 0.1, "cf50").median.value < 0.004
    assert gap.find("dead reckoning", "attitude", 0.1, "cf50").count > 1000
