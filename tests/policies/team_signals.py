"""Random signals of robots in a team, and the same seen in a rotated world.

In NumPy: each operation of JAX outside of a compiled function would be a program to compile for every shape.
"""

import numpy as np

from testudo_hardware.schema import DIFFERENTIAL_DRIVE


def random_signals(spec, batch=6, slots=4, seed=0):
    """Return signals by name, batch first; no point coincides with another."""
    rng = np.random.default_rng(seed)
    size = spec.dimension

    def normal(*shape):
        return rng.normal(0, 1, shape)

    point = normal(batch, size)
    values = {
        "position_world": point + 0.05,
        "yaw": rng.uniform(-3, 3, (batch, 1)),
        "velocity": 0.2 * normal(batch, size),
        "control_point_world": point,
        "goal_world": point + 0.5 + rng.uniform(0, 1, (batch, size)),
        "neighbour_position_world": point[:, None] + 0.3 + rng.uniform(0, 0.5, (batch, slots, size)),
        "neighbour_velocity_world": 0.2 * normal(batch, slots, size),
        "neighbour_age": rng.uniform(0, 0.3, (batch, slots)),
        "neighbour_valid": np.ones((batch, slots)),
    }
    return {name: value.astype(np.float32) for name, value in values.items()}


def rotated(signals, spec, angle):
    """Return the signals of the scene turned by ``angle`` about the origin (about z in space)."""
    turned = {name: rotate(value, angle) if name.endswith("_world") else value for name, value in signals.items()}
    turned["yaw"] = signals["yaw"] + angle
    if spec.kind != DIFFERENTIAL_DRIVE:  # its channels are axes of the world
        turned["velocity"] = rotate(signals["velocity"], angle)
    return turned


def rotate(vectors, angle):
    """Return vectors (..., D) turned about the last axis of space."""
    cosine, sine = np.cos(angle), np.sin(angle)
    vectors = np.asarray(vectors)
    x, y = vectors[..., 0:1], vectors[..., 1:2]
    return np.concatenate([cosine * x - sine * y, sine * x + cosine * y, vectors[..., 2:]], axis=-1)


def with_entry(values, index, value):
    """Return a copy of an array with ``value`` at an index."""
    values = np.array(values)
    values[index] = value
    return values


def with_slots(signals, order):
    """Return the signals with the neighbour slots chosen by ``order``."""
    return {
        name: value[:, np.array(order)] if name.startswith("neighbour") else value for name, value in signals.items()
    }


def bound_to_the_world(spec):
    """Return the indices of own features that change when the world is turned.

    They are the place in the arena and the direction to the goal in it, which alone tell of walls,
    and the velocity of a robot whose channels are axes of the world. Order of the features:
    distance, near distance, height to the goal, place, direction to the goal, heading, velocity.
    """
    size = spec.dimension
    place = 2 + (size - 2)
    direction = place + size
    velocity = direction + 2 + 2
    indices = [place, place + 1, direction, direction + 1]
    return indices + ([velocity, velocity + 1] if spec.kind != DIFFERENTIAL_DRIVE else [])
