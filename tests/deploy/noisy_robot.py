"""Robots with residual motion: a shipped robot with a `[motion_noise]` of given numbers."""

import dataclasses

from testudo_hardware.schema import MOTION_NOISE
from testudo_hardware.spec import Quantity


def noisy(spec, *, correlation_s=1000.0, **numbers):
    """Return the robot with a `[motion_noise]` of these numbers by key; the others are zero.

    The correlation of every channel is so long that the error of a velocity stays, if it is not given.
    """
    table = {}
    for key, rule in MOTION_NOISE.items():
        if spec.kind in rule.kinds:
            name = key.removeprefix("motion_noise.")
            value = numbers.get(name, correlation_s if name.endswith("correlation") else 0.0)
            table[key] = Quantity(value, rule.unit, "test", value, value)
    return dataclasses.replace(spec, motion_noise=table)
