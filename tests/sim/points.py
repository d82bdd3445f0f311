"""Robots as their motion models have them: drones without what lies below their velocity controller."""

import dataclasses

from testudo_hardware.spec import RobotSpec, load_robot


def load_point(name: str) -> RobotSpec:
    """Return a robot; a drone as a point that follows velocities in MuJoCo, too (see test_flying.py for the others)."""
    spec = load_robot(name)
    return dataclasses.replace(spec, attitude={}) if spec.attitude else spec
