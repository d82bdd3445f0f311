"""Drones with recorded motor signals: predictions by ballistic flight and by the rotor model.

The model has no attitude controller, so the open-loop attitude diverges within a second: horizons beyond `LONGEST_S`
are left out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np

from testudo_analysis.gap.batch_rollout import RollOut
from testudo_analysis.identify.drone import flight_segments
from testudo_analysis.identify.drone.causal_estimates import balances, flat_parameters
from testudo_analysis.identify.drone.fitted_model import NAMES, DroneModel, driven
from testudo_analysis.identify.drone.slow_response import Balances, SlowResponse
from testudo_analysis.replay.rollout_inputs import CommandTimeline, pick_windows
from testudo_hardware.frames import conjugate, from_rotation_vector, multiply, rotate, rotation_vector
from testudo_hardware.motion import MotionState
from testudo_hardware.motion.rotor_drone import GRAVITY_M_S2, RotorDroneParameters, RotorDroneState, step
from testudo_hardware.spec import RobotSpec
from testudo_runs.alignment import AlignedRobot, RobotReport, Trajectory, heading, tidy
from testudo_runs.recording.recording import RecordingError

LONGEST_S = 0.5
_GAP_PERIODS = 3.0
_Advance = Callable[[RotorDroneState, np.ndarray, np.ndarray], RotorDroneState]


@dataclass(frozen=True)
class AlignedFlight(AlignedRobot):
    """One drone with motor signals, at the stamps of its trajectory."""

    logged: flight_segments.FlightRecord = field(repr=False, kw_only=True)  # the flight in the form of identification


@dataclass(frozen=True)
class FlightRollOut(RollOut):
    """Predictions from every start of one flight."""

    robot: AlignedFlight


def flight_of(robot: AlignedRobot) -> AlignedFlight:
    """Return a drone with odometry and motor signals; its velocity is that of the odometry.

    Raises:
        RecordingError: a role is missing, or fewer than a hundred samples remain.
    """
    if robot.raw is None:
        raise RecordingError(f"{robot.name}: found no recorded series, expected odometry and motors")
    logged, (_, report) = flight_segments.flight_of(robot.raw), tidy(robot.raw.find("odometry"))
    trajectory = Trajectory(
        logged.stamp_s,
        logged.position_world.T,
        heading(logged.quaternion_xyzw.T),
        logged.velocity_world.T,
        np.ones(len(logged.stamp_s), bool),
        report.gap_limit_s,
    )
    known = {field.name: getattr(robot, field.name) for field in fields(robot)}
    own = RobotReport(robot.name, {"odometry": report}, {}, {}, "odometry")
    return AlignedFlight(**known | {"trajectory": trajectory, "report": own}, logged=logged)


def predict_flights(
    flights: Sequence[AlignedFlight], specs: Sequence[RobotSpec], horizons_s: Sequence[float]
) -> list[FlightRollOut]:
    """Return the predictions from every sample of every flight.

    The first of the parameter sets ``specs`` is for ballistic flight: logged thrust along the body axis over the mass,
    constant body rates. ``horizons_s`` rise [s]; those beyond `LONGEST_S` have no valid window.
    """
    found = []
    for flight in flights:
        windows = pick_windows(_steady_parts(flight.trajectory), flight.trajectory, horizons_s)
        windows.valid[np.asarray(horizons_s) > LONGEST_S + 1e-9] = False
        ends = np.where(windows.valid, windows.end, windows.start)
        made = [
            _fly(flight, windows.start, ends, make(flight, spec, windows.start))
            for make, spec in zip([_ballistic, *[_rotors] * (len(specs) - 1)], specs, strict=True)
        ]
        real = flight.logged.quaternion_xyzw[:, windows.end]
        angles = (np.linalg.norm(rotation_vector(multiply(conjugate(real), turned)), axis=0) for _, turned in made)
        more = tuple({"attitude": np.where(windows.valid, angle, np.nan)} for angle in angles)
        found.append(FlightRollOut(flight, windows, tuple(state for state, _ in made), more))
    return found


def _steady_parts(trajectory: Trajectory) -> CommandTimeline:
    """Return a timeline that is unknown across gaps."""
    steps = np.diff(trajectory.stamp_s)
    wide = np.flatnonzero(steps > _GAP_PERIODS * np.median(steps))
    begins = np.sort(np.concatenate([[-np.inf], trajectory.stamp_s[wide] + 1e-6, trajectory.stamp_s[wide + 1] - 1e-6]))
    return CommandTimeline(begins, np.zeros((3, len(begins))), np.arange(len(begins)) % 2 == 0)


def _fly(
    flight: AlignedFlight, start: np.ndarray, end: np.ndarray, begun: tuple[_Advance, RotorDroneState]
) -> tuple[MotionState, np.ndarray]:
    """Return the states (3, H, S) and quaternions (4, H, S) at the end samples (H, S)."""
    advance, state = begun
    steps = np.diff(flight.trajectory.stamp_s)
    rows = np.zeros((10, *end.shape))
    for k in range(int((end - start).max(initial=0))):
        index = np.minimum(start + k, len(steps) - 1)
        state = advance(state, index, steps[index])
        horizon, which = np.nonzero(end == start + k + 1)
        now = np.concatenate([state.position_world, state.velocity_world, state.quaternion_xyzw])
        rows[:, horizon, which] = now[:, which]
    rows[9] = np.where(end > start, rows[9], 1.0)
    yaw = np.stack([heading(quaternion.T) for quaternion in rows[6:].transpose(1, 0, 2)])
    return MotionState(rows[:3], yaw, rows[3:6]), rows[6:]


def _start(flight: AlignedFlight, start: np.ndarray, thrust: np.ndarray) -> RotorDroneState:
    logged = flight.logged
    values = logged.position_world, logged.quaternion_xyzw, logged.velocity_world, logged.rates_body, thrust
    return RotorDroneState(*(value[:, start] for value in values))


def predicted_at(
    flight: AlignedFlight, parameters: RotorDroneParameters, delay_s: float, start: np.ndarray, end: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the position (3, S) [m] and quaternion (4, S) of the rotor model from samples (S,) at samples (S,)."""
    state, quaternion = _fly(flight, start, end[None], _driven(flight, parameters, delay_s, start))
    return state.position_world[:, 0], quaternion[:, 0]


def _rotors(flight: AlignedFlight, spec: RobotSpec, start: np.ndarray) -> tuple[_Advance, RotorDroneState]:
    if spec.response:
        return _responding(flight, spec, start)
    return _driven(flight, RotorDroneParameters.from_spec(spec), spec.rotors["rotors.thrust_delay"].value, start)


def _responding(flight: AlignedFlight, spec: RobotSpec, start: np.ndarray) -> tuple[_Advance, RotorDroneState]:
    """Return the prediction by the response of the robot file: gains, damping and balances as logs show them."""
    model = DroneModel(spec)
    vector = model.file_vector()
    parameters, slow = (
        flat_parameters(model.parameters(vector[:, None])),
        SlowResponse.create(dict(zip(NAMES, vector, strict=True))),
    )
    command, thrust = (series[0] for series in model.driven(flight.logged, vector))
    torque, lift = balances(model, flight.logged, vector, thrust)
    now = Balances(torque[:, start], lift[start])

    def advance(state: RotorDroneState, index: np.ndarray, duration: np.ndarray) -> RotorDroneState:
        nonlocal now  # the samples are advanced in order, once
        state, now = slow.step(
            parameters, replace(state, thrust=thrust[:, index]), now, command[:, index], duration, np.zeros((3, 1))
        )
        return state

    return advance, _start(flight, start, thrust)


def _driven(
    flight: AlignedFlight, parameters: RotorDroneParameters, delay_s: float, start: np.ndarray
) -> tuple[_Advance, RotorDroneState]:
    command, thrust = produced_acceleration(flight, parameters, delay_s)
    # already clipped; the command that gives the mean thrust of a step may exceed the rotor limits
    free = replace(parameters, thrust_least_n=-np.inf, thrust_most_n=np.inf)
    return (
        lambda state, index, duration: step(free, replace(state, thrust=thrust[:, index]), command[:, index], duration),
        _start(flight, start, thrust),
    )


def produced_acceleration(
    flight: AlignedFlight, parameters: RotorDroneParameters, delay_s: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the command that acts from each sample on (4, T) [N], and the thrust at the sample (4, T) [N]."""
    clipped = np.clip(flight.logged.thrust_command, parameters.thrust_least_n, parameters.thrust_most_n)
    command, thrust = driven(clipped, flight.logged.period_s, parameters.thrust_lag_s, delay_s)
    return command[0], thrust[0]


def _ballistic(flight: AlignedFlight, spec: RobotSpec, start: np.ndarray) -> tuple[_Advance, RotorDroneState]:
    def advance(state: RotorDroneState, index: np.ndarray, duration: np.ndarray) -> RotorDroneState:
        half = multiply(state.quaternion_xyzw, from_rotation_vector(0.5 * duration * state.rates_body))
        force = np.zeros_like(state.velocity_world)
        force[2] = flight.logged.thrust_command[:, index].sum(axis=0) / spec.mass_kg
        push = rotate(half, force) - np.array([[0.0], [0.0], [GRAVITY_M_S2]])
        return RotorDroneState(
            state.position_world + duration * (state.velocity_world + 0.5 * duration * push),
            multiply(state.quaternion_xyzw, from_rotation_vector(duration * state.rates_body)),
            state.velocity_world + duration * push,
            state.rates_body,
            state.thrust,
        )

    return advance, _start(flight, start, flight.logged.thrust_command)
