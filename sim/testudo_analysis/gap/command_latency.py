"""Latency from command to response, in the recording and in the model, by the same estimator."""

from dataclasses import dataclass, replace

import numpy as np

from testudo_analysis.gap.block_bootstrap import Interval
from testudo_analysis.gap.drone_predictions import AlignedFlight, produced_acceleration
from testudo_analysis.identify.drone.rotor_lag import fast_responses
from testudo_hardware.motion.rotor_drone import PITCH_SIGNS, ROLL_SIGNS, YAW_SIGNS, RotorDroneParameters
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import RobotSpec
from testudo_runs.alignment import AlignedRobot, response_latency

_STEP_S = 0.01
_LONGEST_S = 0.8
_PARTS, _LONGEST_PART_S, _SHORTEST_PART_S = 6, 30.0, 5.0
_CHANGE_S = 0.1
_LEAST_USABLE = 0.8
_LEAST_PARTS = 3


@dataclass(frozen=True)
class CommandLatency:
    """Latency of the response of one channel: delay and lag together."""

    robot: str
    channel: str  # `speed`, `turn rate`, or `x`, `y`, `z` of the velocity; of flights `roll and pitch rate`
    real_s: Interval
    model_s: float  # the same estimator on the model's response to these commands
    correlation: float  # of command and real response at that latency


def latencies(robot: AlignedRobot, spec: RobotSpec) -> list[CommandLatency]:
    """Return the latency of each channel with enough motion.

    The latency is the shift of best correlation between changes of the real velocity and of the command; the interval
    is that of the median over stretches of at most 30 s.
    """
    track, found = robot.trajectory, []
    names = ("speed", "turn rate") if spec.kind == DIFFERENTIAL_DRIVE else ("x", "y", "z")[: spec.dimension]
    times = np.arange(track.stamp_s[0] + 1.0, track.stamp_s[-1], _STEP_S)
    before = np.searchsorted(robot.pieces.begin_s, times, side="right") - 1
    holes = np.interp(times, track.stamp_s[:-1], np.diff(track.stamp_s)) > 0.1
    usable = (before >= 0) & robot.pieces.known[np.maximum(before, 0)] & ~holes
    for channel, name in enumerate(names):
        command = np.where(before >= 0, robot.pieces.values[channel][np.maximum(before, 0)], 0.0)
        real = np.interp(times, track.stamp_s, track.velocity[:, channel])
        # delayed first-order response to a command on the grid
        gain = -np.expm1(-_STEP_S / max(spec.velocity_lag_s, 1e-6))
        late = np.concatenate([np.full(round(spec.command_delay_s / _STEP_S), command[0]), command])[: len(command)]
        model, value = np.empty_like(late), late[0]
        for k, wanted in enumerate(late):
            model[k] = value
            value += gain * (wanted - value)
        shifts, weights, model_shifts = [], [], []
        size = round(np.clip(len(times) * _STEP_S / _PARTS, _SHORTEST_PART_S, _LONGEST_PART_S) / _STEP_S)
        for begin in range(0, len(times), size):
            part = slice(begin, begin + size)
            one = _shift(times[part], command[part], real[part], usable[part])
            if one is not None:
                shifts.append(one[0])
                weights.append(one[1])
                other = _shift(times[part], command[part], model[part], usable[part])
                model_shifts.append(other[0] if other else np.nan)
        if len(shifts) >= _LEAST_PARTS:
            rng = np.random.default_rng(0)
            drawn = np.median(rng.choice(shifts, (500, len(shifts))), axis=1)
            real_s, model_s = Interval.of_samples(float(np.median(shifts)), drawn), float(np.nanmedian(model_shifts))
            found.append(CommandLatency(robot.name, name, real_s, model_s, float(np.median(weights))))
    return found


def _shift(
    times_s: np.ndarray, command: np.ndarray, response: np.ndarray, usable: np.ndarray
) -> tuple[float, float] | None:
    """Return the shift [s] of the best correlation, and the correlation; None without a clear one."""
    if usable.mean() < _LEAST_USABLE or np.ptp(command) < 1e-6:
        return None
    # changes over 0.1 s: slow drift would correlate at any shift
    wide = round(_CHANGE_S / _STEP_S)
    first, second = (values[wide:] - values[:-wide] for values in (command, response))
    found = response_latency(times_s[wide:], first, times_s[wide:], second, longest_s=_LONGEST_S)
    return (found.delay_s, found.correlation) if found.determined else None


TURN = "roll and pitch rate"
_DRAWS = 100
_FEWEST_HZ = 60.0
_STILL_RAD_S = 1e-3
_MIX = np.array([ROLL_SIGNS, PITCH_SIGNS, YAW_SIGNS])


def flight_latencies(flight: AlignedFlight, spec: RobotSpec) -> list[CommandLatency]:
    """Return the latency of the rotation of one drone behind its motor commands; empty if it cannot be determined.

    It is that of the fast part (5 to 25 Hz): at lower frequencies the controller reacts to the drone. The lift has
    almost no fast part, so its latency cannot be determined.
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
    rates: np.ndarray = np.cumsum(np.pad(logged.period_s * _MIX @ mean, [(0, 0), (1, 0)]), axis=1)[:, :-1]
    model = fast_responses([replace(logged, rates_body=rates - rates.mean(axis=1, keepdims=True))], [command])[0]
    real = found[0]
    if not real.inside:
        return []
    real_s = Interval.of_samples(real.lag_s + real.delay_s, np.array([one.lag_s + one.delay_s for one in found[1:]]))
    correlation = float(np.sqrt(max(float(np.mean(real.explained[:2])), 0.0)))
    return [CommandLatency(flight.name, TURN, real_s, model.lag_s + model.delay_s, correlation)]
