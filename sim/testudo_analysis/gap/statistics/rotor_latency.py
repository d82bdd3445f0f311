"""How late a drone's rotors answer, in flight and in the model by the same measure."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from testudo_analysis.gap.prediction.drone_predictions import FlightRecord, produced_acceleration
from testudo_analysis.gap.statistics.block_bootstrap import Interval
from testudo_analysis.gap.statistics.command_latency import CommandLatency
from testudo_analysis.identify.drone.rotor_lag import fast_responses
from testudo_hardware.motion.rotor_drone import PITCH_SIGNS, ROLL_SIGNS, YAW_SIGNS, RotorDroneParameters
from testudo_hardware.spec import RobotSpec

TURN = "roll and pitch rate"
_DRAWS = 100
_FEWEST_HZ = 60.0
_STILL_RAD_S = 1e-3
_MIX = np.array([ROLL_SIGNS, PITCH_SIGNS, YAW_SIGNS])


def flight_latencies(flight: FlightRecord, spec: RobotSpec) -> list[CommandLatency]:
    """Return by how much the rotation of one drone is behind its motor commands: delay and lag together, or nothing.

    The fast part counts (5 to 25 Hz): slower, the controller answers what the drone does, not the drone the motors. The
    lift has next to nothing fast, so that its latency cannot be told.
    """
    logged = flight.logged
    still = np.all(logged.rates_body[:2].std(axis=1) < _STILL_RAD_S)
    if still or logged.period_s > 1 / _FEWEST_HZ or np.ptp(logged.stamp_s) < 2.0:
        return []
    parameters, delay_s = RotorDroneParameters.from_spec(spec), spec.rotors["rotors.thrust_delay"].value
    command = np.clip(logged.thrust_command, parameters.thrust_least_n, parameters.thrust_most_n)
    found = fast_responses([logged], [command], _DRAWS)
    wanted, thrust = produced_acceleration(flight, parameters, delay_s)
    ratio = logged.period_s / parameters.thrust_lag_s
    mean = wanted - np.expm1(-ratio) / ratio * (thrust - wanted)
    rates = np.cumsum(np.pad(logged.period_s * _MIX @ mean, [(0, 0), (1, 0)]), axis=1)[:, :-1]
    model = fast_responses([replace(logged, rates_body=rates - rates.mean(axis=1, keepdims=True))], [command])[0]
    real = found[0]
    if not real.inside:
        return []
    samples = np.array([one.lag_s + one.delay_s for one in found[1:]])
    share = float(np.mean(real.explained[:2]))
    return [
        CommandLatency(
            flight.name,
            TURN,
            Interval.of_samples(real.lag_s + real.delay_s, samples),
            model.lag_s + model.delay_s,
            float(np.sqrt(max(share, 0.0))),
        )
    ]
