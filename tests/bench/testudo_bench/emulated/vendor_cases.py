"""The vendors' robots that `testudo bench emulated` and `faults` drive: robot file, link profile, poses, and quirks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testudo_analysis.identify.robot_file_writer import robot_text
from testudo_hardware.errors import TestudoError
from testudo_hardware.links.emulation import Emulation, Number
from testudo_hardware.links.link_profile import link_files, load_link
from testudo_hardware.spec import RobotSpec, SpecError, load_robot, robot_files
from testudo_hardware.strict_files import read_toml

_KALMAN = {"filter": "kalman", "sigma": 0.05, "yaw_sigma": 0.035, "odometry_drift": 0.01}
_LATE = {"latency_low": 0.14, "latency_high": 0.16}
_OF_5_CM = {"position_noise": 0.05, "yaw_noise": 0.035}
_SENSING = {"sensing.position_error": 0.05, "sensing.pose_max_age": 0.25}


@dataclass(frozen=True)
class VendorCase:
    """Robots of one kind under one link profile, localised in one way."""

    name: str
    what: str
    robot: str
    link: str
    pose: Mapping[str, Any]  # entry `pose` of the fleet file
    robot_file: Mapping[str, float] = field(default_factory=dict[str, float])  # what the user states in its file
    emulation: Mapping[str, float] = field(default_factory=dict[str, float])  # worse than the numbers of the profile
    expected: str = "bar"
    """`bar`: success in 95 of 100 episodes; `control`: robots that cannot drive; `shown`: no bar; `faults`: no
    episodes."""
    team_size: int = 4
    onboard_brake: bool = False
    """The fleet file confirms that a drone brakes by itself when its radio is silent."""


_TURTLEBOT4 = VendorCase(
    "turtlebot4",
    "a pose of sigma 5 cm in each odometry message, 150 ms late; Kalman filter",
    "turtlebot4",
    "turtlebot4",
    {"source": "odom", "frame": "odom", **_KALMAN},
    _SENSING,
    {**_LATE, **_OF_5_CM},
)

_CRAZYSWARM2 = VendorCase(
    "crazyswarm2",
    "Crazyflies with the firmware as it comes, under motion capture at 100 Hz",
    "crazyflie_2x",
    "crazyswarm2",
    {"source": "mocap", "frame": "world"},
    {"silence.onboard_brake": 0.0},
    expected="faults",
    team_size=3,
)


def _turtlebot4(name: str, what: str, **changes: Any) -> VendorCase:
    own: dict[str, Any] = {"emulation": {**_TURTLEBOT4.emulation, **changes.pop("emulation", {})}}
    return VendorCase(**{**vars(_TURTLEBOT4), **own, "name": name, "what": what, **changes})


CASES = (
    _TURTLEBOT4,
    _turtlebot4(
        "turtlebot4_tf",
        "wheel odometry, and transforms of sigma 5 cm at 10 Hz, all 150 ms late; Kalman filter",
        pose={"source": "tf", "frame": "map", **_KALMAN},
    ),
    _turtlebot4(
        "turtlebot4_exact",
        "the same robots and starts with poses of sigma 5 mm, 20 to 60 ms old, without filter",
        pose={"source": "odom", "frame": "odom"},
        emulation={"latency_low": 0.02, "latency_high": 0.06, "position_noise": 0.005, "yaw_noise": 0.01},
        expected="shown",
    ),
    _turtlebot4(
        "turtlebot4_raw",
        "the first without filter, robot file as shipped but for the age",
        pose={"source": "odom", "frame": "odom"},
        robot_file={"sensing.pose_max_age": 0.25},
        expected="control",
    ),
    _turtlebot4(
        "turtlebot4_stated",
        "the first without filter, three sigma stated in the robot file",
        pose={"source": "odom", "frame": "odom"},
        robot_file={"sensing.position_error": 0.15, "sensing.yaw_error": 0.105, "sensing.pose_max_age": 0.25},
        expected="shown",
    ),
    _turtlebot4(
        "turtlebot4_reverse",
        "the first, with the backup limit of `safety_override` none",
        emulation={"reverse_way": 0.15},
        expected="shown",
    ),
    _turtlebot4(
        "turtlebot4_zeros",
        "the first, with a joystick node that sends zeros at 20 Hz",
        emulation={"joystick_rate": 20.0},
        expected="shown",
    ),
    VendorCase(
        "turtlebot3",
        "wheel odometry at 20 Hz, transforms of sigma 5 cm at 10 Hz; Kalman filter",
        "turtlebot3_burger",
        "turtlebot3",
        {"source": "tf", "frame": "map", **_KALMAN},
        {"sensing.position_error": 0.05},
        _OF_5_CM,
    ),
    VendorCase(
        "nav2",
        "the generic base: wheel odometry at 20 Hz, map -> odom of sigma 5 cm at 10 Hz; Kalman filter",
        "turtlebot4",
        "generic_twist",
        {"source": "tf", "frame": "map", **_KALMAN},
        {"sensing.position_error": 0.05},
        _OF_5_CM,
    ),
    VendorCase(
        "robotarium",
        "GRITSBot X under the overhead cameras of the testbed",
        "gritsbot_x",
        "robotarium",
        {"source": "mocap", "frame": "world"},
        {},
        {},
        expected="shown",
    ),
    _CRAZYSWARM2,
    VendorCase(
        **{
            **vars(_CRAZYSWARM2),
            "name": "crazyswarm2_brake",
            "what": "the same with an app on board that brakes when no set-points come",
            "robot_file": {},
            "onboard_brake": True,
        }
    ),
)
_UNITS = {
    "latency_low": "s",
    "latency_high": "s",
    "position_noise": "m",
    "yaw_noise": "rad",
    "dead_man": "s",
    "reverse_way": "m",
    "joystick_rate": "Hz",
}


def find_cases(name: str, what: str) -> list[VendorCase]:
    """Return the case of a name, or those whose names begin so.

    Raises:
        TestudoError: there is none; ``what`` is the option that named it.
    """
    found = [one for one in CASES if one.name == name] or [one for one in CASES if one.name.startswith(name)]
    if not found:
        known = ", ".join(one.name for one in CASES)
        raise TestudoError(f"{what}: found {name!r}, expected {known}, or how some begin")
    return found


def least_age_s(case: VendorCase) -> float:
    """Return the least age of a measurement on arrival [s]: of the case, else of its link profile."""
    declared = load_link(case.link).emulation
    return case.emulation.get("latency_low", 0.0 if declared is None else declared.latency_low.value)


def robot_tables(case: VendorCase) -> dict[str, Any]:
    """Return the tables of the robot file, with what the user states in it."""
    # not `to_dict`, which lacks what only the simulation of drones needs
    tables, _ = read_toml(case.robot, robot_files(), "robot", SpecError)
    for key, value in case.robot_file.items():
        section, name = key.split(".")
        tables[section][name] = {**tables[section][name], "value": value, "interval": [value, value]}
    return tables


def write_robot(case: VendorCase, folder: Path) -> RobotSpec:
    """Write `robot.toml` and return the robot."""
    (folder / "robot.toml").write_text(robot_text(robot_tables(case), []), encoding="utf-8")
    return load_robot(folder / "robot.toml")


def write_link(case: VendorCase, folder: Path) -> None:
    """Write `link.toml`: the link profile with the worse numbers of the case."""
    text = link_files()[case.link].read_text(encoding="utf-8")
    head, _, own = text.partition("[emulation]\n")
    declared = load_link(case.link).emulation
    rest = own[own.index("\n[") :] if "\n[" in own else ""
    numbers = {} if declared is None else {k: v for k, v in vars(declared).items() if v is not None}
    numbers |= {key: Number(value, _UNITS[key], "testudo bench emulated") for key, value in case.emulation.items()}
    Emulation(**numbers)  # refuses a key that is missing
    lines = [
        f'{key} = {{ value = {one.value}, unit = "{one.unit}", source = "{one.source}" }}'
        for key, one in numbers.items()
    ]
    (folder / "link.toml").write_text("\n".join([head, "[emulation]", *lines, rest, ""]), encoding="utf-8")
