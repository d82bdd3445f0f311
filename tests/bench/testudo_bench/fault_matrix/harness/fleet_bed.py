"""The robots on which faults are injected: those of our own plant, or emulated robots of a vendor.

A vendor's driver has the topics, types, rates and quality of service of its link profile, and noise, ages, time-outs
and quirks of the profile's `[emulation]`. It knows no fleet key, so such a fleet has none.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from testudo_bench.emulated.vendor_cases import (
    VendorCase,
    find_cases,
    least_age_s,
    robot_tables,
    write_link,
    write_robot,
)
from testudo_deploy.fleet.fleet import Fleet, load_fleet
from testudo_deploy.shield.stop_tube import stop_tube_parameters
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import RobotSpec, load_robot, parse_robot

ROBOT_FILE, FAST_ROBOT_FILE = (Path(__file__).with_name(name) for name in ("robot.toml", "robot_fast.toml"))
_SPACING_M = 0.6
"""Between the paths of our own robots: reservations never overlap, but each needs the acknowledgement of the peers."""
_FILTERED_JUMP_M, _JUMP_M = 0.6, 0.3


@dataclass(frozen=True)
class FleetBed:
    """The robots of one run of the fault matrix."""

    spec: RobotSpec
    case: VendorCase | None = None  # None: our own plant
    scale: float = 1.0
    """Distances between the robots, beside those of our own."""

    @property
    def name(self) -> str:
        """Return the name of the vendor's case; empty for our own plant."""
        return "" if self.case is None else self.case.name

    @property
    def spacing_m(self) -> float:
        """Return the distance between the robots' paths, along y."""
        return self.scale * _SPACING_M

    @property
    def jump_m(self) -> float:
        """Return by how much a localisation jumps: so far that the noise of the bed does not explain it."""
        return _JUMP_M if self.case is None else _FILTERED_JUMP_M

    @property
    def least_pose_age_s(self) -> float:
        """Return the least age of a measurement on arrival; 0 for our own robots, whose limits do not need it."""
        return 0.0 if self.case is None else least_age_s(self.case)

    def write_files(self, folder: Path) -> None:
        """Write the robot file and the link profile of a vendor's robot."""
        if self.case is not None:
            write_robot(self.case, folder)
            write_link(self.case, folder)

    def placed(self, fleet: Fleet) -> Fleet:
        """Return a fleet whose robots are reached and localised as the bed's; its file is changed."""
        if self.case is None:
            return fleet
        tables = yaml.safe_load(fleet.file.read_text(encoding="utf-8"))
        for robot in tables["robots"].values():
            robot |= {"link": "link.toml", "pose": dict(self.case.pose)}
        fleet.file.write_text(yaml.safe_dump(tables, sort_keys=False), encoding="utf-8")
        return load_fleet(fleet.file)


OWN_BED = FleetBed(load_robot(ROBOT_FILE))


def vendor_bed(name: str) -> FleetBed:
    """Return the bed of one vendor's case.

    Transforms need a message type that few installations of the wheels have, so a robot with them is localised by
    `amcl_pose` here: the same noise, rate and filter.

    Raises:
        TestudoError: no such case, more than one, one without odometry, or drones: the messages of Crazyswarm2 are in
            no installation of the wheels.
    """
    cases = find_cases(name, "testudo bench faults: --robot")
    case = next((one for one in cases if one.name == name), cases[0])
    if case.expected == "faults":
        raise TestudoError(
            f"testudo bench faults: --robot: found {name!r}, expected a robot on the ground; faults of drones are "
            f"injected in lock-step: `testudo bench emulated --robot {name}`"
        )
    if case.pose["source"] == "mocap" or (len(cases) > 1 and case.name != name):
        known = ", ".join(one.name for one in cases if one.pose["source"] != "mocap") or "a robot with odometry"
        raise TestudoError(f"testudo bench faults: --robot: found {name!r}, expected one of {known}")
    if case.pose["source"] == "tf":
        case = replace(case, pose={**case.pose, "source": "amcl_pose"})
    spec = parse_robot(robot_tables(case), case.name)
    scale = stop_tube_parameters(spec).clearance_m / stop_tube_parameters(OWN_BED.spec).clearance_m
    return FleetBed(spec, case, scale)
