"""Flights of crazyflow and testudo under the same random commands, with the same tier and parameters.

Run as a program, it writes reference flights for a machine without crazyflow::

    python -m testudo_bench.performance.crazyflow_reference tests/sim/physics/crazyflow_flights.json
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax
import numpy as np

from testudo_hardware.frames import multiply, rotation_vector
from testudo_hardware.motion import attitude_drone, rotor_drone
from testudo_hardware.motion.attitude_drone import AttitudeDroneParameters, AttitudeDroneState
from testudo_hardware.motion.rotor_drone import GRAVITY_M_S2, RotorDroneParameters, RotorDroneState

TIERS = ("so_rpy", "so_rpy_rotor", "so_rpy_rotor_drag", "first_principles")
DRONES = ("cf2x_L250", "cf2x_P250", "cf2x_T350", "cf21B_500")
RATE_HZ = 500
HOLD_STEPS = 10  # steps for which a random command holds
SECONDS = 2.0
FLIGHTS = 3
REFERENCE_STEPS = 250  # interval of the poses of a reference: half a second
_START_M = 100.0  # Start height, far above the floor of crazyflow


@dataclass(frozen=True)
class Poses:
    """Poses of K flights after each of T steps."""

    position_world: np.ndarray  # (T, 3, K) [m]
    quaternion_xyzw: np.ndarray  # (T, 4, K)


@dataclass(frozen=True)
class ReferenceGap:
    """Largest distance between two flights at any time."""

    position_m: float
    turn_rad: float


def has_crazyflow() -> bool:
    """Return whether the package is installed."""
    return find_spec("crazyflow") is not None


def shipped(tier: str, drone: str) -> dict[str, Any]:
    """Return the parameters that crazyflow ships for a drone in one of its tiers, as plain lists and numbers."""
    from crazyflow.dynamics import load_params

    return {key: np.asarray(value, float).tolist() for key, value in load_params(tier, drone).items()}


def random_commands(tier: str, values: Mapping[str, Any], seed: int = 0) -> np.ndarray:
    """Return commands (C, 4, K), each for `HOLD_STEPS`.

    Attitudes are within 0.4 rad, thrusts 0.7 to 1.3 times the weight. Rotor thrusts [N] are within 10 % of a quarter of
    the weight, so that a drone turns over several times in two seconds.
    """
    rng = np.random.default_rng(seed)
    count = round(SECONDS * RATE_HZ / HOLD_STEPS)
    weight = values["mass"] * GRAVITY_M_S2
    if tier == "first_principles":
        return weight / 4 * rng.uniform(0.9, 1.1, (count, 4, FLIGHTS))
    return np.concatenate(
        [rng.uniform(-0.4, 0.4, (count, 3, FLIGHTS)), weight * rng.uniform(0.7, 1.3, (count, 1, FLIGHTS))], axis=1
    )


def our_flights(tier: str, values: Mapping[str, Any], commands: np.ndarray, parts: int = 1) -> Poses:
    """Return the flights of testudo; each step of `RATE_HZ` is divided into ``parts``."""
    place = np.tile([[0.0], [0.0], [_START_M]], (1, FLIGHTS))
    level = np.tile([[0.0], [0.0], [0.0], [1.0]], (1, FLIGHTS))
    still = np.zeros((3, FLIGHTS))
    if tier == "first_principles":
        model, parameters = rotor_drone, RotorDroneParameters.from_crazyflow(values)
        state: Any = RotorDroneState(place, level, still, still, np.full((4, FLIGHTS), weight(values) / 4))
    else:
        model, parameters = attitude_drone, AttitudeDroneParameters.from_crazyflow(values)
        state = AttitudeDroneState(place, level, still, still, np.full(FLIGHTS, weight(values)))
    found = []
    for command in np.repeat(commands, HOLD_STEPS, axis=0):
        for _ in range(parts):
            state = model.step(parameters, state, command, 1 / RATE_HZ / parts)
        found.append((state.position_world, state.quaternion_xyzw))
    return Poses(*(np.stack(each) for each in zip(*found, strict=True)))


def weight(values: Mapping[str, Any]) -> float:
    """Return the weight [N], which is the initial thrust of all flights."""
    return values["mass"] * GRAVITY_M_S2


def their_flights(
    tier: str, drone: str, values: Mapping[str, Any], commands: np.ndarray, integrator: str = "rk4"
) -> Poses:
    """Return the flights of crazyflow in double precision, with one of its integrators."""
    with jax.enable_x64(True):
        simulation, command = _simulation(tier, drone, values, integrator)
        found = []
        for each in np.repeat(commands, HOLD_STEPS, axis=0):
            command(jax.numpy.asarray(each.T[:, None, :]))
            simulation.step(1)
            states = simulation.data.states
            found.append((np.asarray(states.pos)[:, 0].T, np.asarray(states.quat)[:, 0].T))
    return Poses(*(np.stack(each) for each in zip(*found, strict=True)))


def _simulation(tier: str, drone: str, values: Mapping[str, Any], integrator: str) -> tuple[Any, Any]:
    """Return crazyflow's simulation of hovering drones, and the function that sends commands to it."""
    from crazyflow.control import Control
    from crazyflow.control.transform import motor_force2rotor_vel
    from crazyflow.sim import Sim

    by_rotor = tier == "first_principles"
    simulation = Sim(
        n_worlds=FLIGHTS,
        n_drones=1,
        drone=drone,
        dynamics=tier,
        integrator=integrator,
        freq=RATE_HZ,
        control=Control.rotor_vel if by_rotor else Control.attitude,
    )
    states = simulation.data.states
    thrust = jax.numpy.full_like(states.rotor_vel, weight(values))
    curve = jax.numpy.asarray(values.get("rpm2thrust", 0.0))
    spin = motor_force2rotor_vel(thrust / 4, curve) if by_rotor else thrust
    simulation.data = simulation.data.replace(
        states=states.replace(pos=states.pos.at[..., 2].set(_START_M), rotor_vel=spin)
    )
    if by_rotor:
        return simulation, lambda forces: simulation.rotor_vel_control(motor_force2rotor_vel(forces, curve))
    return simulation, simulation.attitude_control


def gap(ours: Poses, theirs: Poses) -> ReferenceGap:
    """Return the largest distance between flights."""
    place = np.linalg.norm(ours.position_world - theirs.position_world, axis=1).max()
    first, second = (np.moveaxis(one.quaternion_xyzw, 1, 0) for one in (ours, theirs))
    back = np.concatenate([-first[:3], first[3:]])
    return ReferenceGap(float(place), float(np.linalg.norm(rotation_vector(multiply(back, second)), axis=0).max()))


def reference() -> dict[str, Any]:
    """Return the flights of every tier and drone by the installed crazyflow, with its parameters and version."""
    flights = []
    for tier in TIERS:
        for drone in DRONES:
            values = shipped(tier, drone)
            poses = their_flights(tier, drone, values, random_commands(tier, values))
            chosen = slice(REFERENCE_STEPS - 1, None, REFERENCE_STEPS)
            flights.append(
                {
                    "tier": tier,
                    "drone": drone,
                    "parameters": values,
                    "position_world": np.round(poses.position_world[chosen], 9).tolist(),
                    "quaternion_xyzw": np.round(poses.quaternion_xyzw[chosen], 9).tolist(),
                }
            )
    return {
        "made_by": "python -m testudo_bench.performance.crazyflow_reference",
        "crazyflow": crazyflow_version(),
        "jax": version("jax"),
        "integrator": "rk4",
        "rate_hz": RATE_HZ,
        "precision": "float64",
        "flights": flights,
    }


def crazyflow_version() -> str:
    """Return the version of the installed package, or `none`."""
    try:
        return version("crazyflow")
    except PackageNotFoundError:
        return "none"


if __name__ == "__main__":
    _found = reference()
    _flights = ",\n".join(json.dumps(flight) for flight in _found.pop("flights"))
    Path(sys.argv[1]).write_text(f'{json.dumps(_found)[:-1]}, "flights": [\n{_flights}\n]}}\n', encoding="utf-8")
