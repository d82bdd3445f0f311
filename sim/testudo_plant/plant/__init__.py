"""The plant: a C MuJoCo world with drivers, sensors, batteries and a contact monitor, in place of robots.

In: commands, flight requests and injected faults.
Out: odometry, driver states, contacts.
"""

from testudo_plant.plant.contact_monitor import ContactEvent, ContactWatch, Separation
from testudo_plant.plant.driver import AppliedCommand, CommandVerdict, Driver, DriverReason
from testudo_plant.plant.drone_fleet import DroneOptions
from testudo_plant.plant.injected_faults import RobotFaults, read_faults, read_start_faults
from testudo_plant.plant.link_emulation import LinkEmulation
from testudo_plant.plant.odometry_sensor import LatencyMeter, OdometryModel, OdometrySample
from testudo_plant.plant.plant import Plant, PlantRobot
from testudo_plant.plant.setpoint_radio import RadioModel, read_radio

__all__ = [
    "AppliedCommand",
    "CommandVerdict",
    "ContactEvent",
    "ContactWatch",
    "Driver",
    "DriverReason",
    "DroneOptions",
    "LatencyMeter",
    "LinkEmulation",
    "OdometryModel",
    "OdometrySample",
    "Plant",
    "PlantRobot",
    "RadioModel",
    "RobotFaults",
    "Separation",
    "read_faults",
    "read_radio",
    "read_start_faults",
]
