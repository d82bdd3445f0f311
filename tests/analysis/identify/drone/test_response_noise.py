"""A process that is put into predictions is found again: its bands hold new motions, and fail without it."""

import numpy as np
import pytest
from tests.analysis.identify.drone_flight import SPEC, flown

from testudo_analysis.identify.drone.drone_fit import DroneFit
from testudo_analysis.identify.drone.fitted_model import NAMES, DroneModel
from testudo_analysis.identify.drone.flight_segments import FlightSamples, flight_of
from testudo_analysis.identify.drone.open_loop import predict
from testudo_analysis.identify.drone.response_noise import AXES, CHANNELS, NoisyPush, ResponseNoise
from testudo_analysis.identify.drone.response_noise_fit import (
    FITTED,
    HORIZONS_S,
    FlightErrors,
    coverage_of,
    fit_response_noise,
)
from testudo_hardware.frames import conjugate, multiply, rotation_vector
from testudo_hardware.motion.motion_noise import NoiseChannel

TRUTH = ResponseNoise(
    (
        NoiseChannel(0.1, 0.0, 0.0, 0.12),
        NoiseChannel(0.2, 0.3, 0.0, 0.12),
        NoiseChannel(1.0, 0.0, 0.0, 0.05),
        NoiseChannel(0.3, 0.0, 0.0, 0.12),
    ),
    12.0,
)
DAMPED = {"roll_damping": 13.0, "pitch_damping": 13.0, "yaw_damping": 8.0, "tilt_stiffness": 25.0}
DRAWS, FUTURES = 12, 60


@pytest.fixture(scope="module")
def setting():
    """Return a model, its damped parameters, and the starts of a flight."""
    flight = flight_of(flown(drones=1, duration_s=6.0)[0].robots["d0"])
    model = DroneModel(SPEC)
    vector = model.file_vector()
    for name, value in DAMPED.items():
        vector[NAMES.index(name)] = value
    return model, vector, FlightSamples.create([flight], FITTED)


def moved(setting, noise, count, seed):
    """Return the errors (6, H, K, S) that a process makes in K futures, beside the prediction without it."""
    model, vector, samples = setting
    marks = tuple(samples.mark(horizon) for horizon in HORIZONS_S)
    push = NoisyPush.create(noise, model, samples, vector, count, np.random.default_rng(seed))
    plain = predict(model, samples, vector[:, None], marks)
    noisy = predict(model, samples, np.repeat(vector[:, None], count, axis=1), marks, push)
    rows = []
    for k in marks:
        turned = multiply(conjugate(noisy[k].quaternion_xyzw), plain[k].quaternion_xyzw + 0 * noisy[k].quaternion_xyzw)
        rows.append(np.concatenate([noisy[k].position_world - plain[k].position_world, rotation_vector(turned)]))
    return np.stack(rows, axis=1)


@pytest.mark.slow
def test_bands_hold_motions_that_were_not_fitted(setting):
    model, vector, samples = setting
    plain = FlightErrors.create(model, vector, samples.flights)
    assert plain is not None
    drawn = moved(setting, TRUTH, DRAWS, 1)
    many = FlightErrors(drawn.reshape(6, len(HORIZONS_S), -1), np.tile(plain.rate, (1, 1, DRAWS, 1)), plain.step_s)
    found = fit_response_noise(model, vector, many)
    low, high = np.quantile(moved(setting, found, FUTURES, 2), [0.025, 0.975], axis=2, method="weibull")
    new = moved(setting, TRUTH, DRAWS, 3)
    inside = (low[:, :, None] <= new) & (new <= high[:, :, None])
    for channel, axes in zip(CHANNELS, AXES, strict=True):
        shares = inside[list(axes)].mean(axis=(0, 2, 3))
        assert (np.abs(shares - 0.95) < 0.035).all(), (channel, shares)


def test_without_the_process_the_bands_hold_nothing_of_a_flight_that_it_moves(setting):
    """The control: parameters in their intervals alone; the flight is of a rigid drone, which the damped one is not."""
    model, vector, samples = setting
    silent = ResponseNoise(tuple(NoiseChannel(0.0, 0.0, 0.0, 1.0) for _ in CHANNELS), 0.0)
    wide = ResponseNoise(tuple(NoiseChannel(100.0, 0.0, 0.0, 0.25) for _ in CHANNELS), 0.0)
    fit = DroneFit(model, vector, vector, vector, [])
    flight = samples.flights[0]
    for noise, least, most in ((silent, 0.0, 0.05), (wide, 0.9, 1.0)):
        rows = [
            row
            for row in coverage_of(fit, noise, [flight], "half", futures=25)
            if not row.robot and row.horizon_s == 0.5
        ]
        assert {row.channel for row in rows} == set(CHANNELS)
        for row in rows:
            assert least <= row.inside <= most, row
            assert row.without_noise <= 0.05
