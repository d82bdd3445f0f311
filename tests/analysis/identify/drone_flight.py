"""Flights of simulated quadrotors of known parameters, as recordings."""

from testudo_bench.synthetic_data.synthetic_flights import DroneTruth, synthetic_flight
from testudo_hardware.spec import load_robot

SPEC = load_robot("crazyflie_2x")


def flown(*, thrust_scale=1.0, lag_s=0.05, delay_s=0.014, drag=0.03, drones=3, duration_s=10.0, seed=0):
    """Return one recording of drones that hover about with a shaken attitude, and what they truly are."""
    truth = DroneTruth(thrust_scale, lag_s, delay_s, drag)
    return synthetic_flight(SPEC, truth, drones=drones, duration_s=duration_s, seed=seed), truth.parameters(SPEC)
