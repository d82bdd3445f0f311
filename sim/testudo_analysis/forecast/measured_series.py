"""True series of a team as its robots measure them: what a run shows that nobody else observes."""

from dataclasses import replace

import numpy as np

from testudo_analysis.forecast.outcomes import TeamSeries
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import RobotSpec

_SIGMAS = 3  # of the error bounds of a robot file


def as_measured(series: TeamSeries, spec: RobotSpec, seed: int) -> TeamSeries:
    """Return places and velocities with the errors of the robot file: independent at each tick, within its bounds.

    The least distance of two noisy places is less than that of the true ones, so that a forecast of true places would
    be wrong about every run that is known by the poses of its robots alone.
    """
    rng = np.random.default_rng([seed, 33])
    place = series.position_world + _noise(rng, series.position_world.shape, spec.position_error_m)
    if series.velocity is None:
        return replace(series, position_world=place)
    error = _noise(rng, series.velocity.shape, spec.velocity_error_m_s)
    if spec.kind == DIFFERENTIAL_DRIVE:  # that of each wheel's rim
        left, right = error[:, 0], error[:, 1]
        error = np.stack([(left + right) / 2, (left - right) / spec.wheel_base_m], axis=1)
    return replace(series, position_world=place, velocity=series.velocity + error)


def _noise(rng: np.random.Generator, shape: tuple[int, ...], bound: float) -> np.ndarray:
    return np.clip(rng.standard_normal(shape), -_SIGMAS, _SIGMAS) * (bound / _SIGMAS)
