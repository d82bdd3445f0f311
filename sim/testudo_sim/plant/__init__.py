"""The plant: a C MuJoCo world with drivers, sensors and contact watch, in place of robots."""

from testudo_sim.plant.contacts import ContactEvent, ContactWatch, Separation
from testudo_sim.plant.driver import AppliedCommand, CommandVerdict, Driver, DriverReason
from testudo_sim.plant.drones import DroneOptions
from testudo_sim.plant.faults import RobotFaults, read_faults, read_start_faults
from testudo_sim.plant.latency import LatencyMeter
from testudo_sim.plant.odometry import OdometryModel, OdometrySample
from testudo_sim.plant.plant import Plant, PlantRobot
from testudo_sim.plant.radio import RadioModel, read_radio
from testudo_sim.plant.stand_in import StandIn

__all__ = [
    "AppliedCommand",
    "CommandVerdict",
    "ContactEvent",
    "ContactWatch",
    "Driver",
    "DriverReason",
    "DroneOptions",
    "LatencyMeter",
    "OdometryModel",
    "OdometrySample",
    "Plant",
    "PlantRobot",
    "RadioModel",
    "RobotFaults",
    "Separation",
    "StandIn",
    "read_faults",
    "read_radio",
    "read_start_faults",
]
