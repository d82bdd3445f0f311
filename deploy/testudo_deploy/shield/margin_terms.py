"""By how much predictions of the motion can be wrong: the terms of the stop tube, and those that layer 1 shares."""

from dataclasses import dataclass

from testudo_deploy.shield.residual_margin import RESIDUAL, longest_ahead_s, residual_way_m
from testudo_hardware.motion.motion_model import turn_slip_m_s
from testudo_hardware.motion.rotor_drone import GRAVITY_M_S2
from testudo_hardware.schema import DIFFERENTIAL_DRIVE, HOLONOMIC
from testudo_hardware.spec import RobotSpec

_MOST_SAMPLES = 6  # largest number of samples in the tube of a command that acts for long


@dataclass(frozen=True)
class MarginTerm:
    """One part of a margin, with its source."""

    name: str
    value_m: float
    source: str


def coast_drift_m(spec: RobotSpec) -> float:
    """Return how far a drone that lost its link can be from where its speed would have taken it [m]."""
    if spec.coast_s == 0:
        return 0.0
    level, cut = (spec.silence[f"silence.{name}_after"] for name in ("level", "cut"))
    time_s = cut.high - level.low
    drift = GRAVITY_M_S2 * spec.silence["silence.level_error"].high
    off_level = drift * time_s**2 / 2 + drift * time_s * (spec.coast_s - time_s)
    return off_level + spec.quantities["dynamics.speed_scale"].half_width * spec.speed_limit_m_s * spec.coast_s


def velocity_error_m(spec: RobotSpec, ahead_s: float, ahead_m: float) -> float:
    """Return by how much the error of the measured velocity displaces a predicted place of rest [m].

    The prediction rolls the measured velocity out for up to ``ahead_s`` and then to rest. Under a pure lag an error dv
    dies away with the lag, whatever the commands are: the place of rest is wrong by dv * lag. Where the acceleration
    limit is active the error stays, but never grows. The errors of both wheels turn a differential drive, too: a place
    ``ahead_m`` ahead moves across. Of both errors of the rims, the worst is all ahead or all turn.

    Args:
        spec: the robot.
        ahead_s: longest time from the pose until the robot brakes.
        ahead_m: greatest distance from the pose of what is predicted.
    """
    error = spec.velocity_error_m_s
    turns = spec.kind == DIFFERENTIAL_DRIVE
    top = spec.wheel_limit_m_s if turns else spec.speed_limit_m_s
    along = error * _error_lasts_s(spec, top, spec.acceleration_limit_m_s2, ahead_s)
    if not turns:
        return along
    half_base = spec.wheel_base_m / 2
    turned = _error_lasts_s(spec, top / half_base, spec.turn_acceleration_limit_rad_s2, ahead_s) * error / half_base
    return max(along, turned * ahead_m)


def _error_lasts_s(spec: RobotSpec, top: float, limit: float, ahead_s: float) -> float:
    """Return the integral over time of the share of a velocity error that is left [s]; ``top`` and its limit in SI."""
    lag_s = spec.quantities["dynamics.velocity_lag"].high
    if limit * spec.velocity_lag_s >= 2 * top * (1 - 1e-6):  # no change of command reaches the limit
        return lag_s
    return ahead_s + max(lag_s, top / limit)


def sample_ticks(spec: RobotSpec) -> int:
    """Return the ticks from one point of a tube to the next: more than one where a command acts for very long."""
    return max(1, round(spec.hold_s / spec.control_period_s / _MOST_SAMPLES)) if spec.coast_s > 0 else 1


def stop_tube_terms(spec: RobotSpec) -> tuple[MarginTerm, ...]:
    """Return by how much the true path can leave the predicted one, at the ends of the robot's intervals."""
    speed = spec.wheel_limit_m_s if spec.kind == DIFFERENTIAL_DRIVE else spec.speed_limit_m_s
    ahead_s = spec.pose_max_age_s + spec.command_delay_s + spec.hold_s
    way = speed * ahead_s + stopping_way_m(spec, speed)
    scale, lag, delay = (
        spec.quantities[f"dynamics.{name}"].half_width for name in ("speed_scale", "velocity_lag", "command_delay")
    )
    over_way = "half-width of dynamics.speed_scale over the way of "
    terms = [
        ("localisation", spec.position_error_m, "sensing.position_error"),
        ("speed scale", scale * way, over_way + "pose age, delay, hold and braking"),
        ("lag", speed * lag, "top speed * half-width of dynamics.velocity_lag"),
        ("delay", speed * delay, "top speed * half-width of dynamics.command_delay"),
    ]
    if spec.kind == DIFFERENTIAL_DRIVE:
        turned = spec.quantities["dynamics.turn_scale"].half_width * spec.turn_rate_limit_rad_s * ahead_s
        # a robot that turns at the limit cannot drive at top speed: rim speed = v + turn rate * base / 2
        across = spec.wheel_limit_m_s / 2 * (ahead_s + spec.velocity_lag_s)
        heading = (spec.yaw_error_rad + min(turned, 1.0) / 2) * across
        terms.append(("heading", heading, "yaw error and half-width of dynamics.turn_scale over the way while turning"))
        lost = turn_slip_m_s(spec)
        if lost:
            lost *= ahead_s + max(spec.velocity_lag_s, speed / spec.acceleration_limit_m_s2)
            terms.append(("turn slip", lost, "forward speed lost in turns over pose age, delay, hold and braking"))
    if spec.velocity_error_m_s:
        source = "sensing.velocity_error, as long as it lasts: the lag, or until rest where acceleration is limited"
        terms.append(("velocity", velocity_error_m(spec, ahead_s, way), source))
    if moved := residual_way_m(spec, longest_ahead_s(spec)):
        terms.append((RESIDUAL, moved, "motion_noise: bound of its displacement from the pose until rest"))
    if spec.coast_s > 0:
        source = over_way + "coasting, and what silence.level_error does until the motors are cut"
        terms.append(("silence", coast_drift_m(spec), source))
    if spec.kind == HOLONOMIC:
        source = "a base drives along its own axes: yaw error over the way of pose age, delay, hold and braking"
        terms.append(("heading", spec.yaw_error_rad * way, source))
    terms.append(("bends", _bends(spec), "samples of a tube are joined by straight lines"))
    return tuple(MarginTerm(*term) for term in terms)


def stopping_way_m(spec: RobotSpec, speed: float) -> float:
    """Return the way to rest under zero command (shield.md: above a * lag it is v² / 2a + a lag² / 2)."""
    lag, limit = spec.velocity_lag_s, spec.acceleration_limit_m_s2
    return lag * speed if speed <= limit * lag else speed**2 / (2 * limit) + limit * lag**2 / 2


def _bends(spec: RobotSpec) -> float:
    """Return the sagitta of the path within a tick and of the braking arc."""
    if spec.kind != DIFFERENTIAL_DRIVE:
        # of the path, and of the places of rest, which bend more: those of single ticks lie close to both
        sample = sample_ticks(spec)
        bend = spec.acceleration_limit_m_s2 * (sample * spec.control_period_s) ** 2 / 8
        return bend if sample == 1 else 4 * bend
    rim = spec.wheel_limit_m_s
    # speed v and turn rate w at the wheel limit: v + w b / 2 = rim, so v * w is at most rim² / (2 b)
    product = rim**2 / (2 * spec.wheel_base_m)
    tick, brake = spec.control_period_s, spec.velocity_lag_s
    return product * (tick**2 + brake**2) / 8
