"""The quantities of a robot file: key, attribute, unit, plausible range, and the kinds that have it."""

from __future__ import annotations

from dataclasses import dataclass

DIFFERENTIAL_DRIVE = "differential_drive"
VELOCITY_POINT = "velocity_point"
HOLONOMIC = "holonomic"
KINDS = (DIFFERENTIAL_DRIVE, VELOCITY_POINT, HOLONOMIC)


@dataclass(frozen=True)
class QuantityRule:
    """What one quantity must look like."""

    attribute: str
    unit: str
    low: float
    high: float
    kinds: tuple[str, ...] = KINDS
    default: float | None = None
    """Value of a robot whose file does not have it; None if every file must."""


_WHEELED = (DIFFERENTIAL_DRIVE,)

QUANTITIES: dict[str, QuantityRule] = {
    "geometry.body_radius": QuantityRule("body_radius_m", "m", 0.005, 5),
    "geometry.body_height": QuantityRule("body_height_m", "m", 0.005, 5),
    "geometry.mass": QuantityRule("mass_kg", "kg", 0.005, 1000),
    "geometry.look_ahead": QuantityRule("look_ahead_m", "m", 0.005, 1, _WHEELED),
    "geometry.wheel_radius": QuantityRule("wheel_radius_m", "m", 0.002, 1, _WHEELED),
    "geometry.wheel_base": QuantityRule("wheel_base_m", "m", 0.01, 5, _WHEELED),
    "limits.speed": QuantityRule("speed_limit_m_s", "m/s", 0.01, 50),
    "limits.wheel_speed": QuantityRule("wheel_speed_limit_rad_s", "rad/s", 0.1, 1000, _WHEELED),
    "limits.turn_rate": QuantityRule("turn_rate_limit_rad_s", "rad/s", 0.05, 100, _WHEELED),
    "limits.acceleration": QuantityRule("acceleration_limit_m_s2", "m/s^2", 0.05, 200),
    "limits.turn_acceleration": QuantityRule(
        "turn_acceleration_limit_rad_s2", "rad/s^2", 0.05, 5000, _WHEELED),
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
"""Quantities of the optional table of a drone whose rotors are commanded: all of them or none."""
