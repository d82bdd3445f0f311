"""Array libraries that one body must run on, and states of a robot's own motion."""

import array_api_strict
import numpy as np
import pytest

from testudo_hardware.motion import MotionState
from testudo_hardware.schema import DIFFERENTIAL_DRIVE


@pytest.fixture
def x64():
    """Let JAX compute in double precision for one test."""
    import jax

    with jax.enable_x64(True):
        yield


@pytest.fixture(params=["numpy", "jax", "strict"])
def asarray(request):
    """Return a function that makes a double-precision array of one library."""
    if request.param == "jax":
        request.getfixturevalue("x64")
        import jax

        return lambda values: jax.numpy.asarray(values, float)
    make = {"numpy": lambda values: values, "strict": array_api_strict.asarray}[request.param]
    return lambda values: make(np.asarray(values, float))


@pytest.fixture
def make_states():
    """Return a function that draws states (D, count) of a robot within its limits, as NumPy."""

    def make(spec, count, seed=0, speed_share=1.0):
        rng = np.random.default_rng(seed)
        position = rng.uniform(-2, 2, (spec.dimension, count))
        yaw = rng.uniform(-4, 4, count)
        if spec.kind != DIFFERENTIAL_DRIVE:
            direction = rng.standard_normal((spec.dimension, count))
            direction /= np.linalg.norm(direction, axis=0)
            speed = spec.speed_limit_m_s * speed_share * rng.uniform(0, 1, count) ** (1 / spec.dimension)
            return MotionState(position, yaw, direction * speed)
        wheels = rng.uniform(-1, 1, (2, count)) * spec.wheel_limit_m_s * speed_share
        forward, turn = wheels.mean(axis=0), (wheels[1] - wheels[0]) / spec.wheel_base_m
        turn = np.clip(turn, -spec.turn_rate_limit_rad_s, spec.turn_rate_limit_rad_s)
        forward = np.clip(forward, -spec.speed_limit_m_s, spec.speed_limit_m_s)
        return MotionState(position, yaw, np.stack([forward, turn]))

    return make
