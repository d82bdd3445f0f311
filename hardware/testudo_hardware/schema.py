"""The quantities of a robot file: key, attribute, unit, plausible range, and the kinds of robot that have it."""

from collections.abc import Sequence
from dataclasses import dataclass

DIFFERENTIAL_DRIVE = "differential_drive"
VELOCITY_POINT = "velocity_point"
HOLONOMIC = "holonomic"
KINDS = (DIFFERENTIAL_DRIVE, VELOCITY_POINT, HOLONOMIC)


@dataclass(frozen=True)
class QuantityRule:
    """Rule for one quantity."""

    attribute: str
    unit: str
    low: float
    high: float
    kinds: tuple[str, ...] = KINDS
    default: float | None = None  # value where the file lacks the key; None if every file needs it


_WHEELED = (DIFFERENTIAL_DRIVE,)

QUANTITIES: dict[str, QuantityRule] = {
    "geometry.body_radius": QuantityRule("body_radius_m", "m", 0.005, 5),
    "geometry.body_height": QuantityRule("body_height_m", "m", 0.005, 5),
    "geometry.mass": QuantityRule("mass_kg", "kg", 0.005, 1000),
    "geometry.downwash_radius": QuantityRule("downwash_radius_m", "m", 0.005, 5, (VELOCITY_POINT,), default=0.0),
    "geometry.downwash_height": QuantityRule("downwash_height_m", "m", 0.005, 10, (VELOCITY_POINT,), default=0.0),
    "geometry.look_ahead": QuantityRule("look_ahead_m", "m", 0.005, 1, _WHEELED),
    "geometry.wheel_radius": QuantityRule("wheel_radius_m", "m", 0.002, 1, _WHEELED),
    "geometry.wheel_base": QuantityRule("wheel_base_m", "m", 0.01, 5, _WHEELED),
    "limits.speed": QuantityRule("speed_limit_m_s", "m/s", 0.01, 50),
    "limits.wheel_speed": QuantityRule("wheel_speed_limit_rad_s", "rad/s", 0.1, 1000, _WHEELED),
    "limits.turn_rate": QuantityRule("turn_rate_limit_rad_s", "rad/s", 0.05, 100, _WHEELED),
    "limits.acceleration": QuantityRule("acceleration_limit_m_s2", "m/s^2", 0.05, 200),
    "limits.turn_acceleration": QuantityRule("turn_acceleration_limit_rad_s2", "rad/s^2", 0.05, 5000, _WHEELED),
    "dynamics.velocity_lag": QuantityRule("velocity_lag_s", "s", 0.001, 2),
    "dynamics.command_delay": QuantityRule("command_delay_s", "s", 0, 1),
    "dynamics.speed_scale": QuantityRule("speed_scale", "1", 0.3, 3),
    "dynamics.turn_scale": QuantityRule("turn_scale", "1", 0.3, 3, _WHEELED),
    "dynamics.turn_slip": QuantityRule("turn_slip_s_rad", "s/rad", 0, 10, _WHEELED, default=0.0),
    "contact.wheel_friction": QuantityRule("wheel_friction", "1", 0.05, 3, _WHEELED),
    "timing.control_period": QuantityRule("control_period_s", "s", 0.001, 0.5),
    "timing.dead_man": QuantityRule("dead_man_s", "s", 0.005, 2),
    "sensing.position_error": QuantityRule("position_error_m", "m", 0, 1),
    "sensing.yaw_error": QuantityRule("yaw_error_rad", "rad", 0, 1),
    "sensing.velocity_error": QuantityRule("velocity_error_m_s", "m/s", 0, 5, default=0.0),
    "sensing.pose_max_age": QuantityRule("pose_max_age_s", "s", 0.005, 2),
}

_DRONES = (VELOCITY_POINT,)

ROTORS: dict[str, QuantityRule] = {
    "rotors.arm": QuantityRule("arm_m", "m", 0.005, 2, _DRONES),
    "rotors.roll_inertia": QuantityRule("roll_inertia_kg_m2", "kg m^2", 1e-7, 10, _DRONES),
    "rotors.pitch_inertia": QuantityRule("pitch_inertia_kg_m2", "kg m^2", 1e-7, 10, _DRONES),
    "rotors.yaw_inertia": QuantityRule("yaw_inertia_kg_m2", "kg m^2", 1e-7, 10, _DRONES),
    "rotors.torque_per_thrust": QuantityRule("torque_per_thrust_m", "m", 1e-4, 1, _DRONES),
    "rotors.thrust_scale": QuantityRule("thrust_scale", "1", 0.3, 3, _DRONES),
    "rotors.thrust_lag": QuantityRule("thrust_lag_s", "s", 0.001, 1, _DRONES),
    "rotors.thrust_delay": QuantityRule("thrust_delay_s", "s", 0, 0.5, _DRONES),
    "rotors.drag_across": QuantityRule("drag_across_kg_s", "kg/s", 0, 10, _DRONES),
    "rotors.drag_along": QuantityRule("drag_along_kg_s", "kg/s", 0, 10, _DRONES),
    "rotors.thrust_most": QuantityRule("thrust_most_n", "N", 0.001, 1000, _DRONES),
    "rotors.thrust_most_per_volt": QuantityRule("thrust_most_n_v", "N/V", 0, 1000, _DRONES),
    "rotors.battery": QuantityRule("battery_v", "V", 1, 100, _DRONES),
}
"""Optional table of a drone with commanded rotors: all keys or none."""

ATTITUDE: dict[str, QuantityRule] = {
    "attitude.tilt_frequency": QuantityRule("tilt_frequency_rad_s", "rad/s", 0.5, 100, _DRONES),
    "attitude.tilt_damping": QuantityRule("tilt_damping", "1", 0.05, 5, _DRONES),
    "attitude.tilt_gain": QuantityRule("tilt_gain", "1", 0.3, 3, _DRONES),
    "attitude.yaw_frequency": QuantityRule("yaw_frequency_rad_s", "rad/s", 0.5, 100, _DRONES),
    "attitude.yaw_damping": QuantityRule("yaw_damping", "1", 0.05, 5, _DRONES),
    "attitude.thrust_scale": QuantityRule("attitude_thrust_scale", "1", 0.3, 3, _DRONES),
    "attitude.thrust_lag": QuantityRule("attitude_thrust_lag_s", "s", 0.001, 1, _DRONES),
    "attitude.drag_across": QuantityRule("attitude_drag_across_kg_s", "kg/s", 0, 10, _DRONES),
    "attitude.drag_along": QuantityRule("attitude_drag_along_kg_s", "kg/s", 0, 10, _DRONES),
    "attitude.thrust_least": QuantityRule("collective_least_n", "N", 0, 4000, _DRONES),
    "attitude.thrust_most": QuantityRule("collective_most_n", "N", 0.001, 4000, _DRONES),
    "attitude.link_delay": QuantityRule("link_delay_s", "s", 0, 0.5, _DRONES),
    "attitude.cascade_period": QuantityRule("cascade_period_s", "s", 0.001, 0.1, _DRONES),
    "attitude.tilt_limit": QuantityRule("tilt_limit_rad", "rad", 0.05, 1.4, _DRONES),
    "attitude.tilt_per_speed": QuantityRule("tilt_per_speed_rad_s_m", "rad s/m", 0.001, 100, _DRONES),
    "attitude.tilt_per_way": QuantityRule("tilt_per_way_rad_m", "rad/m", 0.0001, 100, _DRONES),
    "attitude.thrust_per_speed": QuantityRule("thrust_per_speed_n_s_m", "N s/m", 0.0001, 1000, _DRONES),
    "attitude.thrust_per_way": QuantityRule("thrust_per_way_n_m", "N/m", 0.0001, 1000, _DRONES),
    "attitude.thrust_base": QuantityRule("thrust_base_n", "N", 0, 4000, _DRONES),
    "attitude.thrust_floor": QuantityRule("thrust_floor_n", "N", 0, 4000, _DRONES),
}
"""Optional table of a drone under attitude or velocity commands: all keys or none."""

PROPELLERS: dict[str, QuantityRule] = {
    "propellers.thrust_linear": QuantityRule("thrust_linear_n_rpm", "N/rpm", -1e-3, 1e-3, _DRONES),
    "propellers.thrust_square": QuantityRule("thrust_square_n_rpm2", "N/rpm^2", 1e-12, 1e-3, _DRONES),
    "propellers.torque_linear": QuantityRule("torque_linear_n_m_rpm", "N m/rpm", -1e-4, 1e-4, _DRONES),
    "propellers.torque_square": QuantityRule("torque_square_n_m_rpm2", "N m/rpm^2", 1e-15, 1e-4, _DRONES),
    "propellers.rise_linear": QuantityRule("rise_linear_1_s", "1/s", 0, 1000, _DRONES),
    "propellers.rise_square": QuantityRule("rise_square_1_s_rpm", "1/(s rpm)", 0, 1, _DRONES),
    "propellers.fall_linear": QuantityRule("fall_linear_1_s", "1/s", 0, 1000, _DRONES),
    "propellers.fall_square": QuantityRule("fall_square_1_s_rpm", "1/(s rpm)", 0, 1, _DRONES),
    "propellers.inertia": QuantityRule("propeller_inertia_kg_m2", "kg m^2", 0, 1e-2, _DRONES),
}
"""Optional table of a drone with propeller speeds: all keys or none."""

POWER: dict[str, QuantityRule] = {
    "power.arm": QuantityRule("battery_arm_v", "V", 1, 100, _DRONES),
    "power.land": QuantityRule("battery_land_v", "V", 1, 100, _DRONES),
}
"""Optional table of a drone with a monitored battery: it is not armed below `arm`; it lands after some seconds below
`land`."""

HEADING: dict[str, QuantityRule] = {
    "heading.yaw_rate_limit": QuantityRule("yaw_rate_limit_rad_s", "rad/s", 0.05, 3, _DRONES),
}
"""Optional table of a drone that turns on command; without it a drone holds its heading."""

SILENCE: dict[str, QuantityRule] = {
    "silence.level_after": QuantityRule("level_after_s", "s", 0.01, 60, _DRONES),
    "silence.cut_after": QuantityRule("cut_after_s", "s", 0.01, 600, _DRONES),
    "silence.coast_drag": QuantityRule("coast_drag_per_s", "1/s", 0, 20, _DRONES),
    "silence.level_error": QuantityRule("level_error_rad", "rad", 0, 0.2, _DRONES),
    "silence.onboard_brake": QuantityRule("onboard_brake", "1", 0, 1, _DRONES),
}
"""Optional table of what a drone does when no set-points arrive by radio: all keys or none.

It holds the last set-point; after `level_after` it levels and coasts with its vertical speed held; after `cut_after` it
cuts its motors. With an `onboard_brake` of 1 it brakes to hover `timing.dead_man` after the last set-point.
"""
RESPONSE: dict[str, QuantityRule] = {
    f"response.{name}": QuantityRule(f"response_{name}", unit, low, high, _DRONES)
    for name, unit, low, high in (
        ("thrust_scale", "1", 0.3, 3),
        ("thrust_lag", "s", 0.001, 1),
        ("thrust_delay", "s", 0, 0.5),
        ("thrust_most", "N", 0.001, 1000),
        ("drag_across", "kg/s", 0, 10),
        ("drag_along", "kg/s", 0, 10),
        ("roll_gain", "rad/s^2/N", 0, 10000),
        ("pitch_gain", "rad/s^2/N", 0, 10000),
        ("yaw_gain", "rad/s^2/N", 0, 10000),
        ("roll_damping", "1/s", 0, 1000),
        ("pitch_damping", "1/s", 0, 1000),
        ("yaw_damping", "1/s", 0, 1000),
        ("tilt_stiffness", "1/s^2", 0, 1000),
        ("roll_offset", "rad/s^2", -100, 100),
        ("pitch_offset", "rad/s^2", -100, 100),
        ("yaw_offset", "rad/s^2", -100, 100),
        ("balance_share", "1", 0, 2),
        ("balance_memory", "s", 0.001, 100),
        ("lift_share", "1", 0, 2),
        ("lift_memory", "s", 0.001, 100),
    )
}
"""Optional table of a drone's response as its logs show it: all keys or none.

It predicts flights from logged motor signals, with rotors, gains, damping and balances that belong together
(`testudo_analysis.identify.drone.fitted_model`); a simulation with its own controller uses `rotors`.
"""


def _noise_channels(
    table: str, attribute: str, channels: Sequence[tuple[str, str, tuple[str, ...]]], greatest: tuple[float, float]
) -> dict[str, QuantityRule]:
    """Return the rules of a table of random processes: of channels with unit and kinds of robots.

    ``greatest`` are the upper bounds of the deviation, and of share and timing.
    """
    return {
        f"{table}.{channel}_{name}": QuantityRule(f"{attribute}_{channel}_{name}", unit, low, high, kinds)
        for channel, rate, kinds in channels
        for name, unit, low, high in (
            ("deviation", rate, 0, greatest[0]),
            ("share", "1", 0, greatest[1]),
            ("timing", "s", 0, greatest[1]),
            ("correlation", "s", 0.001, 1000),
        )
    }


MOTION_NOISE: dict[str, QuantityRule] = _noise_channels(
    "motion_noise",
    "noise",
    (("along", "m/s", KINDS), ("across", "m/s", KINDS), ("up", "m/s", _DRONES), ("turn", "rad/s", KINDS)),
    (5, 5),
) | {
    "motion_noise.pose_position": QuantityRule("noise_pose_position_m", "m", 0, 1),
    "motion_noise.pose_yaw": QuantityRule("noise_pose_yaw_rad", "rad", 0, 1),
}
"""Optional table of the residual motion beside the model, as a random process: all keys of the kind or none.

For each channel the standard deviation of the velocity's error: at rest, as a share of the robot's own rate, and as an
error of the time at which it changes; and its correlation time. For one measured pose its standard deviations.
"""
RESPONSE_NOISE: dict[str, QuantityRule] = _noise_channels(
    "response_noise",
    "response_noise",
    (
        ("horizontal", "m/s^2", _DRONES),
        ("vertical", "m/s^2", _DRONES),
        ("tilt", "rad/s^2", _DRONES),
        ("heading", "rad/s^2", _DRONES),
    ),
    (1000, 100),
) | {
    "response_noise.heading_return": QuantityRule("response_noise_heading_return_1_s2", "1/s^2", 0, 1000, _DRONES),
}
"""Optional table of what a drone's response leaves, as a random process: all keys or none.

For each channel the standard deviation of an acceleration that the response lacks, in the parts of `motion_noise`, and
its correlation time (`testudo_analysis.identify.drone.response_noise`).
"""
OPTIONAL_TABLES: dict[str, dict[str, QuantityRule]] = {
    "rotors": ROTORS,
    "attitude": ATTITUDE,
    "propellers": PROPELLERS,
    "power": POWER,
    "heading": HEADING,
    "silence": SILENCE,
    "motion_noise": MOTION_NOISE,
    "response": RESPONSE,
    "response_noise": RESPONSE_NOISE,
}
