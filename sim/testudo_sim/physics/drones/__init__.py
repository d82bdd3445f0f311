"""Drones as they fly: tiers of physics below velocity commands, at 500 Hz."""

from testudo_sim.physics.drones.drone_tier import DroneState, DroneTier, make_drone_tier

__all__ = ["DroneState", "DroneTier", "make_drone_tier"]
