"""Drones with motor signals: no gap in the flight of the very model, one in that of another, ballistics beside."""

from dataclasses import replace

import numpy as np
import pytest
from tests.analysis.identify.drone_flight import SPEC, flown
from tests.sim.real_data import crazyflie_folder

from testudo_analysis.gap.command_latency import flight_latencies
from testudo_analysis.gap.drone_predictions import flight_of
from testudo_analysis.gap.gap_analysis import analyse, covered, replay_type, type_gap
from testudo_analysis.gap.presentation.findings_text import _causes
from testudo_analysis.identify.drone.fitted_model import NAMES, DroneModel
from testudo_analysis.identify.drone.response_noise import ResponseNoise
from testudo_hardware.frames import rotate_back
from testudo_hardware.motion import rotor_drone
from testudo_hardware.motion.motion_noise import NoiseChannel
from testudo_hardware.motion.rotor_drone import RotorDroneParameters, RotorDroneState, step
from testudo_hardware.spec import Quantity, load_robot
from testudo_runs.alignment import prepare
from testudo_runs.importing.run_import import ImportRequest, import_run
from testudo_runs.recording.load import load_recording
from testudo_runs.recording.recording import Recording, RobotRecording, Series
from testudo_runs.recording.write import IMPORTED

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
    state = RotorDroneState(
        np.array([0.0, 0.0, 1.0]), np.array([0.0, 0.0, 0.0, 1.0]), np.zeros(3), np.zeros(3), told[:, 0]
    )
    rows = []
    for k in range(count):
        body = rotate_back(state.quaternion_xyzw, state.velocity_world)
        rows.append(np.concatenate([state.position_world, state.quaternion_xyzw, body, state.rates_body]))
        state = step(true, state, told[:, k], PERIOD_S)
    stamps = np.arange(count) * PERIOD_S
    series = {"odometry": Series(stamps, np.array(rows)), "motors": Series(stamps, told.T)}
    return Recording({"cf1": RobotRecording("cf1", spec.name, series)}, 0, None, {"kind": IMPORTED})


def row_of(recording, model, channel, horizon_s):
    (gap,) = analyse(prepare(recording))[0].types
    return gap.find(model, channel, horizon_s)


def test_a_flight_of_the_very_model_has_no_gap():
    (gap,) = analyse(prepare(flight()))[0].types
    # the thrust of the rotors before the first sample is not recorded: what it was wears off
    assert gap.find("nominal", "position", 0.5).median.value < 1e-4
    assert gap.find("nominal", "attitude", 0.5).p90.value < 1e-6
    assert gap.find("dead reckoning", "position", 0.5).median.value > 1e-3
    assert gap.find("nominal", "position", 1.0) is None
    assert not [cause for cause in gap.causes["nominal"] if cause.named]


def flown_gap(recording, **rotors):
    """Return the gap of flown drones to a file with other rotors."""
    spec = model_of(**rotors)
    motions = [flight_of(robot) for robot in prepare(recording).robots]
    return type_gap(replay_type(spec, motions, None, (0.1, 0.2, 0.5)), (0.1, 0.2, 0.5))


def noisy_file(deviation):
    """Return the file of the flown drones with a process [m/s²], [rad/s²] beside its response."""
    response = dict(zip(NAMES, DroneModel(SPEC).file_vector(), strict=True))
    noise = ResponseNoise(tuple(NoiseChannel(deviation, 0.0, 0.0, 0.25) for _ in range(4)), 0.0)

    def table(name, values):
        return {f"{name}.{key}": Quantity(float(value), "", "", float(value), float(value)) for key, value in values}

    return replace(
        SPEC,
        response=table("response", response.items()),
        response_noise=table("response_noise", noise.to_dict().items()),
    )


@pytest.fixture(scope="module")
def replay():
    """Return the replay of a short flight by its response, which a process beside it does not change."""
    motions = [flight_of(prepare(flown(drones=1, duration_s=3.0)[0]).robots[0])]
    return replay_type(noisy_file(5.0), motions, None, (0.1, 0.5))


@pytest.mark.parametrize(("deviation", "least", "most"), [(5.0, 0.8, 1.0), (0.0, 0.0, 0.1)])
def test_bands_of_what_a_response_leaves_hold_a_flight_where_the_file_says_enough(replay, deviation, least, most):
    replay = replace(replay, models={"nominal": noisy_file(deviation)})
    rows = [row for row in covered(replay)["nominal"] if row.channel == "tilt" and not row.robot]
    assert {row.horizon_s for row in rows} == {0.5, 1.0, 2.0}
    assert all(least <= row.inside <= most for row in rows), rows
    assert not covered(replace(replay, models={"nominal": SPEC}))  # a file without the table gives no bands


def model_of(**rotors):
    return replace(
        SPEC,
        rotors={
            key: replace(quantity, value=rotors.get(key.removeprefix("rotors."), quantity.value))
            for key, quantity in SPEC.rotors.items()
        },
    )


TRUE = {"thrust_lag": 0.05, "thrust_delay": 0.014, "drag_across": 0.03, "drag_along": 0.03, "thrust_most": 0.3}


@pytest.fixture(scope="module")
def shaken():
    """Return a flight with quick turns, as `TRUE` has it."""
    return flown(duration_s=12.0, seed=5)[0]


@pytest.mark.parametrize(
    ("kind", "change", "effect"),
    [
        ("thrust scale", {"thrust_scale": 1.1}, 0.1 / 1.1),
        pytest.param("thrust scale", {"thrust_scale": 0.95}, -0.05 / 0.95, marks=pytest.mark.slow),
        (
            "torque scale",
            {"roll_inertia": 1.66e-5 / 1.2, "pitch_inertia": 1.67e-5 / 1.2, "yaw_inertia": 2.93e-5 / 1.2},
            0.2 / 1.2,
        ),
        ("turn response", {"thrust_lag": 0.06}, 0.01),
        ("drag", {"drag_across": 0.045, "drag_along": 0.045}, 0.015),
    ],
)
def test_the_kind_of_error_that_was_made_is_named_first_with_its_size(shaken, kind, change, effect):
    found = flown_gap(shaken, **{**TRUE, **change}).causes["nominal"]
    first = next(cause for cause in found if cause.named)
    assert first.kind == kind, [(cause.kind, cause.effect, cause.explains) for cause in found]
    assert first.effect.value == pytest.approx(effect, rel=0.15)


def test_nothing_is_named_where_the_file_is_true(shaken):
    # of one drone: what is wrongly named of three is named of each
    gap = flown_gap(Recording({"d0": shaken.robots["d0"]}, 0), **TRUE)
    assert not [cause for cause in gap.causes["nominal"] if cause.named]
    assert "neither scale, nor lag or delay, nor drag, damping or trim" in " ".join(_causes(gap))


def test_trim_and_damping_that_the_file_lacks_are_named(monkeypatch):
    real_step = rotor_drone.step

    def step_of_another(own, *rest):
        x, y, z = own.inertia_kg_m2
        return real_step(replace(own, torque_offset_n_m=(0.0, 1.0 * y, 0.0), rate_damping_n_m_s=(x, y, z)), *rest)

    monkeypatch.setattr(rotor_drone, "step", step_of_another)
    recording = flown(duration_s=12.0, seed=5)[0]
    monkeypatch.undo()
    found = {cause.kind: cause for cause in flown_gap(recording, **TRUE).causes["nominal"]}
    assert {kind for kind, cause in found.items() if cause.named} == {"pitch trim", "rate damping"}
    # the model's less the drone's
    assert found["pitch trim"].effect.value == pytest.approx(-1.0, rel=0.25)
    assert found["rate damping"].effect.value == pytest.approx(-1.0, rel=0.25)


def test_latency_and_what_the_shield_takes_for_granted(shaken):
    """Rotors answer after delay and lag; each term holds the residual that is known of this flight."""
    gap = flown_gap(shaken, **{**TRUE, "thrust_lag": 0.03})
    assert [latency.channel for latency in gap.latencies] == ["roll and pitch rate"] * len(shaken.robots)
    for latency in gap.latencies:
        assert latency.real_s.value == pytest.approx(0.064, abs=0.012), latency
        assert latency.model_s == pytest.approx(0.044, abs=0.003), latency
    margins = {check.term: check for check in gap.margins}
    assert margins["sensing.pose_max_age"].p99 == pytest.approx(0.01, abs=1e-6)
    assert margins["rotors: thrust_lag + thrust_delay, upper ends"].limit == pytest.approx(0.245)
    assert 0.0001 < margins["layer 1: localisation"].p50 < 0.001
    assert margins["layer 1: localisation"].within
    speeds = np.concatenate(
        [np.linalg.norm(robot.series["odometry"].values[:, 7:10], axis=1) for robot in shaken.robots.values()]
    )
    assert margins["guarantee: speed_m_s"].p99 == pytest.approx(np.percentile(speeds, 99))
    assert all(check.within == (check.p99 <= check.limit) for check in gap.margins)


@pytest.mark.parametrize(
    ("lag", "delay", "near"), [(0.02, 0.0, 0.05), (0.05, 0.03, 0.05), (0.07, 0.0, 0.1), (0.1, 0.014, 0.25)]
)
def test_the_models_latency_is_its_lag_and_delay(shaken, lag, delay, near):
    """A long lag is measured too short, as it leaves little in the band; so it is of the real drone, too."""
    spec = model_of(**{**TRUE, "thrust_lag": lag, "thrust_delay": delay})
    (latency,) = flight_latencies(flight_of(prepare(shaken).robot("d0")), spec)
    assert latency.model_s == pytest.approx(lag + delay, rel=near)


def test_a_drone_beyond_a_term_is_told_so():
    recording = flown(duration_s=6.0, drones=1, seed=2)[0]
    (robot,) = recording.robots.values()
    values = robot.series["odometry"].values.copy()
    values[:, 7:10] *= 20
    values[300:, 0] += 0.5 * (np.arange(300) % 2)
    series = {**robot.series, "odometry": Series(robot.series["odometry"].stamp_s, values)}
    gap = flown_gap(Recording({"d0": RobotRecording("d0", "crazyflie_2x", series)}, 0), **TRUE)
    beyond = {check.term for check in gap.margins if not check.within}
    assert {"guarantee: speed_m_s", "layer 1: localisation"} <= beyond


def test_a_heavier_drone_falls_below_what_is_predicted():
    row = row_of(flight(mass_share=1.1, seconds=6.0), "nominal", "up", 0.5)
    # a tenth of the weight is not carried: 0.1 g t^2 / 2, over 1.1
    assert row.bias == pytest.approx(0.5 * 9.81 * (1 - 1 / 1.1) * 0.25, rel=0.1)


def test_real_flights_are_replayed(tmp_path):
    import_run(ImportRequest((crazyflie_folder(),), pick="swap_sss_01"), tmp_path / "run")
    report, _ = analyse(prepare(load_recording(tmp_path / "run")))
    (gap,) = report.types
    assert gap.robots == ("cf50", "cf51", "cf52")
    assert 0.001 < gap.find("dead reckoning", "position", 0.1, "cf50").median.value < 0.004
    assert gap.find("dead reckoning", "attitude", 0.1, "cf50").count > 1000
    assert {check.term for check in gap.margins} > {"layer 1: localisation", "sensing.pose_max_age"}
    assert gap.causes["nominal"]
