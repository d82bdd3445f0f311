"""Motions of all robots that a file's intervals permit, under one sequence of commands; NumPy, batched over robots."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import product

import numpy as np

from testudo_deploy.control.task_receiver import OLDEST_TASK_S
from testudo_hardware.motion import LagResponse, MotionState, motion_model
from testudo_hardware.motion.motion_model import effective_command
from testudo_hardware.spec import RobotSpec

STEP_S = 0.017
_LATE_TICKS = 2  # ticks by which a robot may notice later that its commands are too old
_KEYS = ("velocity_lag", "command_delay", "speed_scale", "turn_scale", "turn_slip")
_LIMITS = ("acceleration", "turn_acceleration")


@dataclass(frozen=True)
class RobotSet:
    """P robots of one file; all arrays are (P,)."""

    lag_s: np.ndarray
    delay_s: np.ndarray
    speed_scale: np.ndarray
    turn_scale: np.ndarray
    slip_s_rad: np.ndarray
    acceleration_m_s2: np.ndarray
    turn_acceleration_rad_s2: np.ndarray

    @classmethod
    def of(cls, rows: Sequence[Sequence[float]]) -> "RobotSet":
        """Return the robots of rows (P, 7), in the order of the fields."""
        return cls(*np.array(rows, float).T)

    def take(self, which: np.ndarray) -> "RobotSet":
        """Return some of the robots: indices."""
        return RobotSet(**{field.name: getattr(self, field.name)[which] for field in fields(self)})

    @classmethod
    def corners(cls, spec: RobotSpec) -> "RobotSet":
        """Return the robots at the ends of all intervals of the file, and the one of its values."""
        ends = [sorted({low, high}) for low, high in intervals(spec)]
        return cls.of([*product(*ends), [_value(spec, key) for key in _quantities()]])


@dataclass(frozen=True)
class Motions:
    """Positions (2, P, K) [m] and headings (P, K) [rad] at every step, and where a brake then would end (2, P, K)."""

    position: np.ndarray
    yaw: np.ndarray
    rest: np.ndarray

    def reach_m(self, ahead_m: float = 0.0) -> np.ndarray:
        """Return the largest distance (2,) from the origin along x and y, of places and places of rest.

        ``ahead_m`` adds a point so far ahead of the axle, in any heading.
        """
        both = np.concatenate([self.position, self.rest], axis=2)
        return np.abs(both).max(axis=(1, 2)) + ahead_m


def intervals(spec: RobotSpec) -> list[tuple[float, float]]:
    """Return lowest and highest value of each field of `RobotSet`."""
    found: list[tuple[float, float]] = []
    for key in _quantities():
        quantity = spec.quantities.get(key)
        value = _value(spec, key)
        found.append((value, value) if quantity is None else (quantity.low, quantity.high))
    return found


def motions(
    spec: RobotSpec, robots: RobotSet, commands: np.ndarray, start: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> Motions:
    """Return the motions under commands (2, K), one for each control period, until all robots stand.

    A command that is not a number is silence: the robot brakes by itself once the last one is too old. ``start`` are
    x, y [m] and yaw [rad] (P,), at rest.
    """
    limits = np.stack([robots.acceleration_m_s2, robots.turn_acceleration_rad_s2], axis=1)
    steps = _steps(spec, robots, commands)
    found: list[tuple[np.ndarray, Motions]] = []
    for pair in np.unique(limits, axis=0):  # the motion model has one limit for all robots
        mine = np.flatnonzero((limits == pair).all(axis=1))
        found.append((mine, _motions(spec, robots.take(mine), commands, tuple(part[mine] for part in start), steps)))
    order = np.argsort(np.concatenate([mine for mine, _ in found]))
    return Motions(
        np.concatenate([one.position for _, one in found], axis=1)[:, order],
        np.concatenate([one.yaw for _, one in found])[order],
        np.concatenate([one.rest for _, one in found], axis=1)[:, order],
    )


def _motions(
    spec: RobotSpec, robots: RobotSet, commands: np.ndarray, start: tuple[np.ndarray, ...], steps: int
) -> Motions:
    """Return `motions` of robots with one pair of acceleration limits."""
    per_tick, step_s = _ticks(spec)
    commands = _acting(spec, commands)
    model = motion_model(
        replace(
            spec,
            velocity_lag_s=robots.lag_s,  # pyright: ignore[reportArgumentType] -- the model's body broadcasts
            acceleration_limit_m_s2=float(robots.acceleration_m_s2[0]),
            turn_acceleration_limit_rad_s2=float(robots.turn_acceleration_rad_s2[0]),
        )
    )
    response = LagResponse.create(np.full_like(robots.lag_s, step_s), robots.lag_s)
    asked = np.repeat(np.concatenate([commands, np.zeros((2, 1))], axis=1), per_tick, axis=1)
    late = np.ceil(robots.delay_s / step_s - 1e-9).astype(int)
    state = MotionState(np.stack(start[:2]), start[2], np.zeros((2, len(robots.lag_s))))
    places, yaws, rests = [state.position_world], [state.yaw], [state.position_world]
    for k in range(steps):
        index = k - late
        acting = np.where(index >= 0, asked[:, np.clip(index, 0, asked.shape[1] - 1)], 0.0)
        state = model.step(state, _effective(spec, robots, acting), response)
        places.append(np.asarray(state.position_world))
        yaws.append(np.asarray(state.yaw))
        rests.append(np.asarray(model.rest_position(state)))
    return Motions(np.stack(places, axis=2), np.stack(yaws, axis=1), np.stack(rests, axis=2))


def _acting(spec: RobotSpec, commands: np.ndarray) -> np.ndarray:
    """Return commands (2, K) with what acts in silence (NaN): the last one until it is too old, then a brake."""
    found, held = np.array(commands, float), math.ceil(OLDEST_TASK_S / spec.control_period_s) + _LATE_TICKS
    silent = 0
    for k in range(found.shape[1]):
        silent = silent + 1 if np.isnan(found[0, k]) else 0
        if silent:
            found[:, k] = found[:, k - 1] if 0 < silent <= held and k else 0.0
    return found


def _ticks(spec: RobotSpec) -> tuple[int, float]:
    """Return the steps of a control period, and the length of one [s]."""
    per_tick = max(1, round(spec.control_period_s / STEP_S))
    return per_tick, spec.control_period_s / per_tick


def _steps(spec: RobotSpec, robots: RobotSet, commands: np.ndarray) -> int:
    per_tick, step_s = _ticks(spec)
    rest_s = float(robots.delay_s.max()) + rest_time_s(spec, robots)
    return (commands.shape[1] + 1) * per_tick + int(np.ceil(rest_s / step_s))


def _effective(spec: RobotSpec, robots: RobotSet, command: np.ndarray) -> np.ndarray:
    """Return the velocities (2, P) that commands (2, P) tend to."""
    plain = replace(spec, speed_scale=1.0, turn_scale=1.0, turn_slip_s_rad=0.0)
    forward, turn = effective_command(motion_model(plain), command)
    return np.stack([robots.speed_scale * forward / (1 + (robots.slip_s_rad * turn) ** 2), robots.turn_scale * turn])


def rest_time_s(spec: RobotSpec, robots: RobotSet) -> float:
    """Return the time [s] from the begin of a brake at full speed until all robots (nearly) stand."""
    slowest = max(
        spec.speed_limit_m_s / float(robots.acceleration_m_s2.min()),
        spec.turn_rate_limit_rad_s / float(robots.turn_acceleration_rad_s2.min()),
    )
    return slowest + 2.5 * float(robots.lag_s.max())


def _quantities() -> list[str]:
    return [*(f"dynamics.{key}" for key in _KEYS), *(f"limits.{key}" for key in _LIMITS)]


def _value(spec: RobotSpec, key: str) -> float:
    quantity = spec.quantities.get(key)
    return 0.0 if quantity is None else quantity.value  # turn slip is optional, and zero without
