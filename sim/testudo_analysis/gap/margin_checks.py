"""Residuals of a run compared with the terms of the shield's margins that must cover them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from testudo_analysis.gap.command_latency import CommandLatency
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_deploy.shield.residual_margin import RESIDUAL
from testudo_deploy.shield.stop_tube import stop_tube_parameters
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import RobotSpec
from testudo_runs.alignment import AlignedRobot, Trajectory

_WITHIN = 99.0  # share [%] of the samples that must be within a term
_SMOOTH_S = 0.1


@dataclass(frozen=True)
class MarginCheck:
    """One residual of a run compared with its bound."""

    term: str  # margin term, guarantee or assumption, named as in the shield and the contract
    what: str  # the residual in words
    unit: str
    limit: float
    p50: float
    p99: float
    worst: float  # largest sample, of `robot`
    beyond: float  # share of the samples beyond the limit
    count: int
    within: bool
    robot: str  # robot of the worst sample
    model: str = "nominal"  # parameter set of the predictions and margins


def margin_checks(
    spec: RobotSpec,
    robots: Sequence[AlignedRobot],
    errors: Sequence[Mapping[str, np.ndarray]],
    horizons_s: Sequence[float],
    found: Sequence[CommandLatency] = (),
) -> list[MarginCheck]:
    """Compare the residuals of all robots of one type with the margins of its robot file.

    ``spec`` is the robot file of the shield; ``errors`` by robot are those of the model with that file, (H, S) by
    channel; ``found`` are latencies of the robots.
    """
    shield, space = projection_parameters(spec), stop_tube_parameters(spec)
    terms = {
        term.name: term.value_m / (2 * shield.direction_factor)
        for term in shield.terms
        if term.name in ("model", "localisation", RESIDUAL)
    }
    tube = {term.name: term.value_m for term in space.terms}
    # what the model does not explain is covered by the residual motion of the file, where it has one
    also = f" + {RESIDUAL}" if RESIDUAL in tube else ""
    moved = tube.get(RESIDUAL, 0.0)
    stop_s = spec.velocity_lag_s + spec.command_delay_s
    ahead_s = spec.pose_max_age_s + spec.command_delay_s + spec.hold_s
    stop, ahead = (int(np.argmin(np.abs(np.asarray(horizons_s) - wanted))) for wanted in (stop_s, ahead_s))
    ahead_m = spec.look_ahead_m if spec.kind == DIFFERENTIAL_DRIVE else 0.0
    check = _of_robots(robots)

    checks = [
        *check(
            f"layer 1: model{also}",
            f"error of the control point predicted {horizons_s[stop]:g} s ahead (the "
            f"stopping point is {stop_s:.2g} s ahead)",
            "m",
            terms["model"] + terms.get(RESIDUAL, 0.0),
            [own["position"][stop] + ahead_m * np.abs(own["yaw"][stop]) for own in errors],
        ),
        *_localisation(robots, terms["localisation"], ahead_m),
        *check(
            "layer 2: tube error",
            f"error of the position predicted {horizons_s[ahead]:g} s ahead (pose "
            f"age, delay and hold are {ahead_s:.2g} s)",
            "m",
            space.tube_error_m,
            [own["position"][ahead] for own in errors],
        ),
        *check(
            f"layer 2: speed scale + lag + delay{also}",
            f"part of it along the way, {horizons_s[ahead]:g} s ahead",
            "m",
            tube["speed scale"] + tube["lag"] + tube["delay"] + moved,
            [np.abs(own["along"][ahead]) for own in errors],
        ),
    ]
    if "heading" in tube:
        across = f"part of it across the way, {horizons_s[ahead]:g} s ahead"
        off = [np.abs(own["across"][ahead]) for own in errors]
        checks += check(f"layer 2: heading{also}", across, "m", tube["heading"] + moved, off)
    return [*checks, *_limits(spec, robots), *_latency_checks(spec, found)]


def _latency_checks(spec: RobotSpec, found: Sequence[CommandLatency]) -> list[MarginCheck]:
    """Compare the measured latencies [s] with the upper bounds of lag and delay."""
    high_s = spec.quantities["dynamics.command_delay"].high + spec.quantities["dynamics.velocity_lag"].high
    term = "guarantee: velocity_lag_high_s + command_delay_high_s"
    return _latency_rows(term, "latency from command to response, {}", high_s, found)


def _latency_rows(term: str, what: str, limit_s: float, found: Sequence[CommandLatency]) -> list[MarginCheck]:
    """Compare the latencies of each channel with a limit; ``what`` has a place for the channel."""
    return [
        check
        for channel in dict.fromkeys(latency.channel for latency in found)
        for check in _check(
            term,
            what.format(channel),
            "s",
            limit_s,
            {one.robot: np.array([one.real_s.value]) for one in found if one.channel == channel},
        )
    ]


def flight_checks(
    spec: RobotSpec, robots: Sequence[AlignedRobot], found: Sequence[CommandLatency]
) -> list[MarginCheck]:
    """Compare the residuals of drones with recorded motor signals, without velocity commands, with their bounds.

    The terms for the prediction of the control point need velocity commands. The latency of the rotors is compared with
    the intervals of the robot file.

    ``spec`` is the robot file of the shield; ``found`` are latencies of the rotors.
    """
    terms = {term.name: term.value_m for term in projection_parameters(spec).terms}
    share = 2 * projection_parameters(spec).direction_factor
    checks = [*_localisation(robots, terms["localisation"] / share, 0.0), *_limits(spec, robots)]
    high_s = spec.rotors["rotors.thrust_lag"].high + spec.rotors["rotors.thrust_delay"].high
    term = "rotors: thrust_lag + thrust_delay, upper ends"
    return [*checks, *_latency_rows(term, "latency from motor command to {}", high_s, found)]


def _of_robots(robots: Sequence[AlignedRobot]) -> Callable[..., Iterator[MarginCheck]]:
    """Return `_check` for samples in the order of the robots."""
    names = [robot.name for robot in robots]

    def check(term: str, what: str, unit: str, limit: float, samples: Sequence[np.ndarray]) -> Iterator[MarginCheck]:
        yield from _check(term, what, unit, limit, dict(zip(names, samples, strict=True)))

    return check


def _localisation(robots: Sequence[AlignedRobot], limit: float, ahead_m: float) -> Iterator[MarginCheck]:
    what, samples = "distance of poses from their smoothed course", [_roughness(robot, ahead_m) for robot in robots]
    yield from _of_robots(robots)("layer 1: localisation", what, "m", limit, samples)


def _limits(spec: RobotSpec, robots: Sequence[AlignedRobot]) -> Iterator[MarginCheck]:
    """Compare times and speeds with the robot's guarantees to its peers."""
    check = _of_robots(robots)
    tracks = [robot.trajectory for robot in robots]
    periods = [np.diff(track.stamp_s) for track in tracks]
    yield from check("sensing.pose_max_age", "time from one pose to the next", "s", spec.pose_max_age_s, periods)
    rates = [_accelerations(track) for track in tracks]
    scale = spec.quantities["dynamics.speed_scale"].high  # the limit is that of commands
    if spec.kind == DIFFERENTIAL_DRIVE:
        fastest = [np.abs(t.velocity[:, 0]) + 0.5 * spec.wheel_base_m * np.abs(t.velocity[:, 1]) for t in tracks]
        what, most = "rim speed of the faster wheel", scale * spec.wheel_limit_m_s
        yield from check("guarantee: speed_m_s", what, "m/s", most, fastest)
        limit, turns = spec.turn_acceleration_limit_rad_s2, [np.abs(rate[:, 1]) for rate in rates]
        yield from check("limits.turn_acceleration", "change of the turn rate", "rad/s^2", limit, turns)
        along = [np.abs(rate[:, 0]) for rate in rates]
    else:
        speeds = [np.linalg.norm(track.velocity, axis=1) for track in tracks]
        yield from check("guarantee: speed_m_s", "speed", "m/s", scale * spec.speed_limit_m_s, speeds)
        along = [np.linalg.norm(rate, axis=1) for rate in rates]
    yield from check(
        "guarantee: acceleration_m_s2", "change of the speed", "m/s^2", spec.acceleration_limit_m_s2, along
    )


def _accelerations(track: Trajectory) -> np.ndarray:
    """Return the acceleration (T, D) over `_SMOOTH_S`; over shorter times it is noise of the poses."""
    stamps, velocity = track.stamp_s, track.velocity
    after = np.minimum(np.searchsorted(stamps, stamps + _SMOOTH_S), len(stamps) - 1)
    apart = stamps[after] - stamps
    good = (apart > 0.5 * _SMOOTH_S) & (apart < 2 * _SMOOTH_S)
    return (velocity[after[good]] - velocity[good]) / apart[good, None]


def _check(term: str, what: str, unit: str, limit: float, by_robot: Mapping[str, np.ndarray]) -> Iterator[MarginCheck]:
    usable = {name: values[np.isfinite(values)] for name, values in by_robot.items()}
    usable = {name: values for name, values in usable.items() if len(values)}
    if not usable:
        return
    pooled = np.concatenate(list(usable.values()))
    half, high = np.percentile(pooled, (50.0, _WITHIN))
    worst = max(usable, key=lambda name: float(usable[name].max()))
    figures = (float(value) for value in (limit, half, high, pooled.max(), np.mean(pooled > limit)))
    yield MarginCheck(term, what, unit, *figures, count=len(pooled), within=bool(high <= limit), robot=worst)


def _roughness(robot: AlignedRobot, ahead_m: float) -> np.ndarray:
    """Return the distance of each pose from the line between its neighbours, with the yaw at the look-ahead [m]."""
    track = robot.trajectory
    columns = np.column_stack([track.position_world, track.yaw])
    gaps = np.diff(track.stamp_s)
    inside = (gaps[1:] < _SMOOTH_S) & (gaps[:-1] < _SMOOTH_S)
    share = (gaps[:-1] / (gaps[:-1] + gaps[1:]))[:, None]
    middle = (1 - share) * columns[:-2] + share * columns[2:]
    # remove the contribution of the neighbours' independent errors
    rough = (columns[1:-1] - middle) / np.sqrt(1 + share**2 + (1 - share) ** 2)
    way = np.linalg.norm(rough[:, :-1], axis=1) + ahead_m * np.abs(rough[:, -1])
    return way[inside]
