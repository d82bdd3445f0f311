"""The fleet of one robot that drives its calibration: the robot as in its fleet file, its shield, and the free area."""

from dataclasses import replace
from pathlib import Path

from testudo_deploy.calibration.area import Area
from testudo_deploy.fleet.fleet import Fleet, load_fleet
from testudo_deploy.fleet.fleet_writer import save_fleet
from testudo_deploy.fleet.robot_links import CommandsEntry
from testudo_deploy.guard.speed_cap import CALIBRATION
from testudo_hardware.errors import TestudoError
from testudo_policies.wrapping.commanded_policy import write_commanded_policy

TOPIC = "cmd_vel_calibration"
_CORNER = 0.99  # of the way to the corner that the body can reach lies the unused goal: no run ends there


def write_calibration_fleet(fleet: Fleet, name: str, area: Area, folder: Path) -> Fleet:
    """Write policy and fleet file of the drive into a folder, and return the fleet.

    The policy file holds the robot's shield within the area and no policy; the commands come from the topic `TOPIC`.

    Raises:
        TestudoError: no such robot, or one whose poses of peers, bodies or untrusted robots cannot be left out.
    """
    robot = fleet.robot(name)
    if robot.untrusted:
        raise TestudoError(f"calibrate: {name} is untrusted in {fleet.file}, expected a robot that Testudo commands")
    folder.mkdir(parents=True, exist_ok=True)
    policy = folder / "policy.onnx"
    report = write_commanded_policy(policy, robot.spec, area.arena, CALIBRATION)
    body_m = robot.spec.body_radius_m
    corner = tuple(
        centre + _CORNER * max(side / 2 - body_m, 0.0)
        for centre, side in zip(area.centre_world, area.size_m, strict=True)
    )
    alone = replace(
        robot,
        link=replace(robot.link, commands=CommandsEntry(TOPIC)),
        goal_world=corner,
        follows=None,
    )
    one = Fleet(
        fleet.file,
        policy,
        report.sha256,
        (alone,),
        tracking=fleet.tracking,
        key_file=fleet.key_file,
        estop_heartbeat_s=fleet.estop_heartbeat_s,
    )
    file = folder / "fleet.yaml"
    save_fleet(one, file)
    return load_fleet(file)
